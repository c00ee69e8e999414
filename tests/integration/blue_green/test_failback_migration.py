"""Failback as a migration of its own: blue and green swapped, after clients had moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.plan import mixed_topics
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.environment import Clusters, restart_brokers
from tests.support.blue_green.namespaces import create_topic
from tests.support.lifecycle.environment import Environment

_NAMESPACE = "back/one"
_LIMIT = 300.0
_FIELDS: dict[str, object] = {
    "namespaces": [_NAMESPACE],
    "waves": {"gate": "none", "canary": 0},
    "grace_window": "PT0S",
    "complete_cluster": False,
}


@pytest.mark.exhaustive
def test_failback_loses_nothing(
    clusters: Clusters, environment: Environment, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Clients that were redirected to green return to blue: no loss, order is kept, and no producer fails.

    Before blue's brokers are restarted the failback is refused: they would refuse the producers that they redirected.
    """
    plans = mixed_topics(_NAMESPACE, count=4, rate=10)
    clusters.two.prepare(_NAMESPACE, plans, on_green=False)
    create_topic(clusters.blue_admin, f"persistent://{_NAMESPACE}/unused")
    with Traffic.in_programs(clusters.blue.broker_url, plans, tmp_path, toolchain) as traffic:
        traffic.wait_for_more(10)
        there = environment.operator.run(clusters.input(**_FIELDS), _LIMIT)
        assert (there.outcome, there.certificate["missing_clients"]) == (Outcome.DONE, 0)
        traffic.wait_for_more(10)

        failure = environment.operator.refusal(clusters.failback_input(**_FIELDS), _LIMIT)
        assert failure.type == FailureKind.PRECHECK_FAILED
        assert "[GREEN_NOT_RESTARTED] brokers of blue" in failure.message
        restart_brokers(clusters.blue)

        back = environment.operator.run(clusters.failback_input(**_FIELDS), _LIMIT)
        assert (back.outcome, back.certificate["missing_clients"], back.certificate["faults"]) == (Outcome.DONE, 0, 0)
        assert any("so this is a failback" in note for note in back.notes)
        traffic.wait_for_more(10)
        audit = traffic.stop()
    # As before another migration to green, which is what later tests try.
    restart_brokers(clusters.green)
    assert audit.faults() == []
