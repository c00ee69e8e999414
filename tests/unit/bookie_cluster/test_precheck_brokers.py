"""Checks of the brokers in PRECHECK of the bookie cluster migration; their admin interface is a double."""

from __future__ import annotations

import pytest

from activities.bookie_cluster.precheck_brokers import ask_brokers
from activities.lifecycle.precheck import Findings
from activities.pulsar.registrations import Service
from activities.pulsar.releases import SeenBroker
from tests.support.bookie_cluster.in_memory import MemorySwitch, opened

SETTINGS = {"bookkeeperMetadataServiceUri": "zk+hierarchical://127.0.0.1:2181/ledgers"}
NAME = "broker one"


class _View:
    """Gives what one broker reports."""

    def __init__(self, seen: SeenBroker) -> None:
        self._seen = seen

    def read(self, _: Service) -> SeenBroker:
        """Return the stored answer."""
        return self._seen


def codes(seen: SeenBroker) -> list[str]:
    """Return the codes of the blockers for one broker."""
    task, findings = MemorySwitch().task(), Findings()
    task.broker_view = lambda: opened(_View(seen))
    ask_brokers(task, [Service(NAME, 1, b"{}")], findings, 3, committed=False)
    return [blocker.code for blocker in findings.blockers]


@pytest.mark.parametrize(
    ("seen", "blockers"),
    [
        (SeenBroker(NAME, "5.0.1", SETTINGS), []),
        (SeenBroker(NAME, "", SETTINGS), ["BROKERS_UNKNOWN"]),
        (SeenBroker(NAME, "", None, "it refuses"), ["BROKERS_UNKNOWN"]),
        (SeenBroker(NAME, "5.0.1", None, "it refuses"), ["BROKERS_UNKNOWN"]),
        (SeenBroker(NAME, "5.0.1", {}, ""), ["BROKERS_UNKNOWN"]),
        (SeenBroker(NAME, "5.0.1", {**SETTINGS, "autoSkipNonRecoverableData": "true"}), ["AUTO_SKIP"]),
        (SeenBroker(NAME, "5.0.1", {**SETTINGS, "managedLedgerDefaultEnsembleSize": "4"}), ["ENSEMBLE_TOO_LARGE"]),
    ],
    ids=["all read", "no release", "nothing", "no configuration", "no store", "skips", "too many bookies"],
)
def test_a_broker_that_cannot_be_read_stops_the_switch(seen: SeenBroker, blockers: list[str]) -> None:
    """A broker whose release or configuration was not read may have any defect and use any cluster."""
    assert codes(seen) == blockers
