"""Requests in a broker's log."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from bench.blue_green.scale import count_calls

_LOG = """\
2026-11-23T13:24:34,702 [pulsar-web-59-5] INFO  JettyRequestLogFactory - HTTP request
2026-11-23T13:24:35,000 [broker-topic-workers-OrderedExecutor-0-0] INFO  JettyRequestLogFactory - HTTP request
2026-11-23T13:24:36,000 [pulsar-web-59-5] INFO  BrokerService - HTTP request
java.lang.IllegalStateException: 2026
2026-11-23T13:24:39,785 [pulsar-web-59-5] INFO  JettyRequestLogFactory - HTTP request
"""


def test_requests_of_a_time_are_counted(tmp_path: Path) -> None:
    """Only requests, of all logs, and only of the time asked for."""
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    for log in logs:
        log.write_text(_LOG)
    begin = datetime(2026, 11, 23, 13, 24, 35).astimezone().timestamp()
    assert count_calls(logs, begin, begin + 10) == 4
    assert count_calls(logs[:1], begin - 1, begin + 1) == 2
