"""Who may change both clusters, what is given back at the end, and what a late attempt finds."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from activities.blue_green import cluster
from activities.blue_green.cluster import HELD_OFF
from clients.cas.claims import ClaimKeeper, read_claim
from clients.errors import ClaimHeld, Superseded
from clients.stores import Access, open_cas
from models.blue_green.claims import BlueGreenClaim
from models.lifecycle.claim import Attempt, Claim
from models.store_url import parse_store_url
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.steps import Steps, make_namespace

SHEDDING = "loadBalancerSheddingEnabled"
OTHER = Attempt("metadata-store/green", "other-run", 1, 1, 1)


@pytest.fixture
def steps(clusters: Clusters) -> Generator[Steps]:
    """The steps of a migration of one namespace."""
    ready = Steps(clusters, "claims/one")
    if "claims" not in clusters.blue_admin.tenants.names():
        make_namespace(clusters, "claims/one", "topic")
    yield ready
    ready.end()
    assert not _settings(clusters)


def test_late_attempt_takes_nothing_that_nobody_holds(clusters: Clusters, steps: Steps) -> None:
    """Only the first step of a run takes the claim: what comes after its end finds that it has none, and stops."""
    steps.begin()
    steps.end()
    with pytest.raises(Superseded):
        steps.whole(cluster.hold_load)
    with pytest.raises(Superseded):
        steps.whole(cluster.complete)
    steps.whole(cluster.finish)
    assert steps.whole(cluster.release).restored == 0
    assert not _held(clusters)
    assert not _settings(clusters)


def test_run_that_was_refused_at_green_gives_blue_back(clusters: Clusters, steps: Steps) -> None:
    """Where another migration holds green, the way back gives up blue, and leaves green to the other."""
    with open_cas(parse_store_url(clusters.green.metadata_url), Access()) as store:
        theirs = ClaimKeeper(store, Claim, OTHER)
        theirs.take()
        try:
            with pytest.raises(ClaimHeld):
                steps.whole(cluster.register)
            steps.end()
            assert _held(clusters) == [OTHER.workflow_id]
        finally:
            theirs.release()


def test_settings_are_put_back_after_a_lost_attempt(clusters: Clusters, steps: Steps) -> None:
    """An attempt that set the old value, and was lost before it removed it, is made good by the next one."""
    before = clusters.blue_admin.brokers.runtime_configuration()
    steps.begin()
    assert _settings(clusters) == HELD_OFF
    clusters.blue_admin.brokers.set_dynamic(SHEDDING, before[SHEDDING])
    released = steps.whole(cluster.release)
    assert (released.restored, released.kept) == (len(HELD_OFF), ())
    assert not _settings(clusters)
    assert _running(clusters) == [{name: before[name] for name in HELD_OFF}] * 2


def test_setting_of_an_operator_stays_set(clusters: Clusters, steps: Steps) -> None:
    """What an operator had set while brokers ran has that value again, and is not left to their files."""
    brokers = clusters.blue_admin.brokers
    brokers.set_dynamic(SHEDDING, "true")
    try:
        steps.begin()
        steps.end()
        assert _settings(clusters) == {SHEDDING: "true"}
    finally:
        brokers.remove_dynamic(SHEDDING)


def _settings(clusters: Clusters) -> dict[str, str]:
    return clusters.blue_admin.brokers.dynamic_values()


def _running(clusters: Clusters) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    with Steps(clusters, "claims/one").task() as task:
        for _, admin in task.blue_brokers():
            running = admin.brokers.runtime_configuration()
            found.append({name: running[name] for name in HELD_OFF})
    return found


def _held(clusters: Clusters) -> list[str]:
    """Migrations that hold one of both clusters."""
    found: list[str] = []
    for stack in (clusters.blue, clusters.green):
        with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
            if held := read_claim(store, BlueGreenClaim):
                found.append(held.claim.workflow_id)
    return found
