"""Sources of the automatic throttle: metrics of real servers, and HTTP endpoints."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

import clients.load
from clients.load import NoReading, Reading, Sources
from clients.tls import Tls
from models.lifecycle.auto_throttle import AutoThrottle
from tests.support.hostile import HostileServer, Script, dripping_body, dripping_header, received
from tests.support.http_server import Answers, HttpServer
from tests.support.waiting import timeout_for

METRICS = Path(__file__).parent / "metrics"
LONG_TIMEOUT = "1m"
"""The longest timeout of a source: only a source that hangs reaches it."""


def read(answers: dict[str, tuple[int, str]], **wanted: str) -> list[Reading]:
    """Return what the only source reports; paths in its fields become addresses."""
    with Answers(answers) as server:
        urls: dict[str, object] = {}
        for name, value in wanted.items():
            if value.startswith("/"):
                url = f"{server.base_url}{value}"
                urls[name] = url if name == "http" else [url]
        throttle = AutoThrottle.model_validate({"timeout": LONG_TIMEOUT, **wanted, **urls})
        with Sources(throttle, admin=Tls()) as sources:
            (source,) = sources.all
            return source.read()


def page(name: str) -> tuple[int, str]:
    """Return a page as a real server has answered it, or lines of it."""
    return 200, (METRICS / name).read_text()


def test_latency_of_bookies() -> None:
    """The slowest one in a hundred entries counts, over all threads of the bookie; requests that failed do not."""
    answers = {"/metrics": page("bookie-4.17.txt")}
    (reading,) = read(answers, bookies="/metrics", bookie_latency="4ms")
    assert str(reading) == "the time to add entries (99 %) is 4.845 ms, and the limit is 4 ms"
    assert reading.too_high
    (reading,) = read(answers, bookies="/metrics", bookie_latency="5ms")
    assert not reading.too_high


def test_latency_of_brokers() -> None:
    """A broker answers `/metrics` with a redirect, as a real one does."""
    answers = {"/metrics": (302, "/metrics/"), "/metrics/": page("broker-5.0.txt")}
    (reading,) = read(answers, brokers="/metrics", broker_latency="10ms")
    assert reading.value > 10
    assert reading.too_high


@pytest.mark.parametrize(("kind", "name"), [("bookies", "bookie-4.17-idle.txt"), ("brokers", "broker-5.0-idle.txt")])
def test_idle_servers_do_not_stop_a_copy(kind: str, name: str) -> None:
    """A server without requests reports what is not a number."""
    assert "NaN" in page(name)[1]
    (reading,) = read({"/metrics": page(name)}, **{kind: "/metrics"})
    assert reading.value == 0


def as_json(values: Mapping[str, int]) -> str:
    """Return values as ZooKeeper's AdminServer writes them."""
    return json.dumps({"outstanding_requests": 7, **values})


def as_metrics(values: Mapping[str, int]) -> str:
    """Return values as ZooKeeper's metrics for Prometheus have them."""
    named = {"sum_readlatency": "readlatency_sum", "cnt_readlatency": "readlatency_count"}
    return "outstanding_requests 7\n" + "".join(f"{named[name]} {value}\n" for name, value in values.items())


@pytest.mark.parametrize("written", [as_json, as_metrics])
def test_zookeeper_counts_since_the_last_look(written: Callable[[Mapping[str, int]], str]) -> None:
    """The average since ZooKeeper's start would hide that it is slow now."""
    early, late = {"cnt_readlatency": 100, "sum_readlatency": 50}, {"cnt_readlatency": 110, "sum_readlatency": 1_050}
    answers: dict[str, tuple[int, str]] = {}
    with Answers(answers) as server:
        wanted = AutoThrottle.model_validate(
            {"zookeeper_metrics": [f"{server.base_url}/metrics"], "zookeeper_latency": "99ms", "timeout": LONG_TIMEOUT}
        )
        with Sources(wanted, admin=Tls()) as sources:
            (source,) = sources.all
            seen: list[list[Reading]] = []
            for values in (early, late, early):
                answers["/metrics"] = 200, written(values)
                seen.append(source.read())
    first, second, restarted = seen
    assert [reading.value for reading in second] == [7, 100]
    assert [reading.too_high for reading in second] == [False, True]
    # Without two looks, or after a restart, there is no average.
    assert len(first) == len(restarted) == 1


def test_zookeepers_admin_server() -> None:
    """`/commands/monitor` has the values of `mntr` as JSON."""
    readings = read({"/commands/monitor": page("zookeeper-3.9-monitor.json")}, zookeeper_metrics="/commands/monitor")
    assert [reading.value for reading in readings] == [0]


@pytest.mark.parametrize("status", [200, 204])
def test_an_endpoint_agrees(status: int) -> None:
    """Each answer of success lets the copy run."""
    assert read({"/may-copy": (status, "")}, http="/may-copy") == []


@pytest.mark.parametrize("status", [302, 401, 417, 429, 500])
def test_an_endpoint_objects(status: int) -> None:
    """Any other answer stops it; a redirect may lead to a page that always succeeds."""
    with pytest.raises(NoReading, match=f"it answers {status}"):
        read({"/may-copy": (status, "/may-copy")}, http="/may-copy")


def test_what_is_not_known_is_an_objection() -> None:
    """A source that does not answer, is protected, or reports something else is an objection with its reason."""
    for answer, message in (
        ((401, ""), "it answers 401 to http://"),
        ((200, "up 1\n"), "its metrics lack bookkeeper_server_ADD_ENTRY and bookkeeper_server_ADD_ENTRY_REQUEST"),
        ((200, 'bookkeeper_server_ADD_ENTRY{quantile="0.99"} much\n'), "cannot be read"),
    ):
        with pytest.raises(NoReading, match=message):
            read({"/metrics": answer}, bookies="/metrics")
    with pytest.raises(NoReading, match="its values lack outstanding_requests"):
        read({"/metrics": (200, "up 1\n")}, zookeeper_metrics="/metrics")
    with pytest.raises(NoReading, match="its values lack readlatency and updatelatency, which"):
        read({"/metrics": (200, "outstanding_requests 0\nreadlatency_count 1\n")}, zookeeper_metrics="/metrics")
    closed = AutoThrottle(http="http://127.0.0.1:9/may-copy")
    with Sources(closed, admin=Tls()) as sources, pytest.raises(NoReading, match="it does not answer"):
        sources.all[0].read()


@pytest.mark.parametrize("value", ["-5", "-Inf", "+Inf", "1e999"])
def test_a_latency_that_cannot_be_true_stops_the_copy(value: str) -> None:
    """Below zero, or without end."""
    line = f'bookkeeper_server_ADD_ENTRY{{quantile="0.99"}} {value}\n'
    (reading,) = read({"/metrics": (200, line)}, bookies="/metrics")
    assert reading.too_high


@pytest.mark.parametrize("value", ["-5", "NaN", "+Inf"])
def test_waiting_requests_that_cannot_be_true_stop_the_copy(value: str) -> None:
    """A value that is not a number is not below the limit."""
    text = f"outstanding_requests {value}\nreadlatency_count 0\nreadlatency_sum 0\n"
    (reading,) = read({"/metrics": (200, text)}, zookeeper_metrics="/metrics")
    assert reading.too_high


@pytest.mark.parametrize("value", ["9" * 400, "9" * 5_000, "[" * 100_000, "{}", "NaN"])
def test_json_that_lies_is_an_objection(value: str) -> None:
    """Neither a number of any length nor nesting of any depth ends the copy with an unexpected error."""
    with pytest.raises(NoReading, match=r"its values lack outstanding_requests|its answer is not JSON"):
        read({"/monitor": (200, f'{{"outstanding_requests": {value}}}')}, zookeeper_metrics="/monitor")


def _denied(host: str, command: str, **_: object) -> str | None:
    """Answer as a server that does not allow the command."""
    assert (host, command) == ("zk:2181", "mntr")
    return None


def test_a_server_that_may_not_answer_mntr(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper's default allows `srvr` only; the message names the setting and the other way."""
    monkeypatch.setattr(clients.load, "four_letter", _denied)
    with (
        Sources(AutoThrottle(zookeepers=("zk:2181",)), admin=Tls()) as sources,
        pytest.raises(NoReading, match=r"add mntr to its 4lw\.commands\.whitelist, or use zookeeper_metrics"),
    ):
        sources.all[0].read()


def test_a_slow_endpoint_is_not_waited_for() -> None:
    """The timeout counts for the whole answer."""
    ended = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ended.wait(timeout_for(10))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Write nothing."""

    with HttpServer(Slow) as server:
        wanted = AutoThrottle.model_validate({"http": f"{server.base_url}/", "timeout": "200ms"})
        with Sources(wanted, admin=Tls()) as sources, pytest.raises(NoReading, match=r"within 0\.2 s"):
            sources.all[0].read()
        ended.set()


@pytest.mark.parametrize("script", [dripping_header, dripping_body])
def test_metrics_that_drip_are_an_objection(script: Script) -> None:
    """The timeout counts for the whole answer, also if something comes all the time, and no line ends."""
    with HostileServer(script) as server:
        wanted = AutoThrottle.model_validate({"bookies": [f"http://{server.address}/metrics"], "timeout": "300ms"})
        with Sources(wanted, admin=Tls()) as sources, pytest.raises(NoReading, match=r"within 0\.3 s"):
            sources.all[0].read()


def _packed(connected: socket.socket) -> None:
    received(connected)
    body = gzip.compress(b"a 1\n")
    connected.sendall(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    received(connected)


def _endless_line(connected: socket.socket) -> None:
    received(connected)
    connected.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for piece in repeat(b"a" * 10_000):
        connected.sendall(piece)


@pytest.mark.parametrize(
    ("script", "why"),
    [(_packed, "packed, which was not asked for"), (_endless_line, "does not end within")],
)
def test_metrics_have_a_limit(script: Script, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are not unpacked, which could take all memory, and a line without an end counts as well."""
    monkeypatch.setattr(clients.load, "_MOST_BYTES", 10_000)
    with HostileServer(script) as server:
        wanted = AutoThrottle.model_validate({"bookies": [f"http://{server.address}/metrics"], "timeout": LONG_TIMEOUT})
        with Sources(wanted, admin=Tls()) as sources, pytest.raises(NoReading, match=why):
            sources.all[0].read()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("http", "http://me:secret@host/", "user or a password"),
        ("zookeepers", ["http://zk:8080"], "host:port"),
        ("zookeepers", ["zk"], "host:port"),
        ("bookies", ["bookie:8000"], "expected http://host:port or https://host:port"),
        ("every", "10ms", "greater than or equal to 1 second"),
    ],
)
def test_wrong_sources_are_refused(field: str, value: object, message: str) -> None:
    """The message names the form, and never a password."""
    with pytest.raises(ValueError, match=message) as refusal:
        AutoThrottle.model_validate({field: value})
    if "secret" in str(value):
        assert "secret" not in str(refusal.value).partition("[type=")[0]
