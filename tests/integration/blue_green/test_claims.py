"""Claims on both clusters: who may change them, their release at the end, and refusals of late attempts."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from activities.blue_green import cluster
from activities.blue_green.cluster import KEEP_LOADED
from activities.blue_green.precheck import precheck
from clients.cas.claims import ClaimKeeper, read_claim
from clients.errors import ClaimHeld, StoreConflict, Superseded
from clients.pulsar.admin.clusters import ClusterMigration, ClusterUrls
from clients.pulsar.names import TopicName
from clients.pulsar.records.cluster_flag import set_cluster_flag
from clients.pulsar.records.dynamic_settings import change_dynamic_settings
from clients.pulsar.records.namespace_flag import set_flag
from clients.stores import Access, open_cas
from models.blue_green.claims import BlueGreenClaim, ChangedSetting
from models.blue_green.results import Released
from models.lifecycle.claim import Attempt, Claim
from models.store_url import parse_store_url
from tests.support.blue_green.environment import BLUE, Clusters
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.clients.dynamic_settings import dynamic_values, remove_dynamic, set_dynamic
from tests.support.waiting import wait_for

SHEDDING, CLOSING = "loadBalancerSheddingEnabled", "brokerCloseInactiveTopicsEnabled"
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


def test_late_attempt_does_not_take_a_released_claim(clusters: Clusters, steps: Steps) -> None:
    """Only the first step of a run takes the claim: what comes after its end finds that it has none, and stops."""
    steps.begin()
    steps.end()
    with pytest.raises(Superseded):
        steps.whole(cluster.disable_load_shedding)
    with pytest.raises(Superseded):
        steps.whole(cluster.complete)
    steps.whole(cluster.finish)
    assert steps.whole(cluster.release).restored == 0
    assert not _held(clusters)
    assert not _settings(clusters)


def test_run_that_was_refused_at_green_releases_blue(clusters: Clusters, steps: Steps) -> None:
    """If another migration holds green, the rollback releases blue, and leaves green to the other one."""
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


def test_settings_are_restored_after_a_lost_attempt(clusters: Clusters, steps: Steps) -> None:
    """If an attempt set the old value and was lost before it removed it, the next attempt completes that."""
    before = clusters.blue_admin.brokers.runtime_configuration()
    held = {name: value for name, value in KEEP_LOADED.items() if before.get(name, value) != value}
    steps.begin()
    assert _settings(clusters) == held
    set_dynamic(clusters.blue_admin, SHEDDING, before[SHEDDING])
    released = steps.whole(cluster.release)
    assert (released.restored, released.notes) == (len(held), ())
    assert not _settings(clusters)
    assert _running(clusters) == [{name: before.get(name) for name in KEEP_LOADED}] * 2


def test_settings_of_a_late_attempt_are_refused(clusters: Clusters, steps: Steps) -> None:
    """An attempt that froze before it disabled load shedding does not do so after the rollback, however soon."""
    steps.whole(cluster.register)
    before = clusters.blue_admin.brokers.runtime_configuration()[SHEDDING]
    with steps.task() as task, task.blue.store() as store:
        keeper = task.keeper(store)
        keeper.renew(settings={SHEDDING: ChangedSetting(before=before, ours="false")})
        later: list[Released] = []

        def freeze() -> None:
            keeper.require()
            if not later:
                later.append(steps.whole(cluster.release))

        with pytest.raises(Superseded):
            change_dynamic_settings(store, freeze, lambda settings: {**settings, SHEDDING: "false"})
    assert (later[0].restored, later[0].notes) == (0, ())
    assert not _settings(clusters)


def test_setting_of_an_operator_stays_set(clusters: Clusters, steps: Steps) -> None:
    """A dynamic setting of an operator gets its value again, and does not fall back to the brokers' files.

    Inactive topics are closed by no broker in the meantime, where brokers can do that.
    """
    admin = clusters.blue_admin
    names = [name for name in (SHEDDING, CLOSING) if name in admin.brokers.dynamic_names()]
    for name in names:
        set_dynamic(admin, name, "true")
    try:
        wait_for(
            "the settings", lambda: all(running[name] == "true" for running in _running(clusters) for name in names), 30
        )
        steps.begin()
        assert {name: _settings(clusters)[name] for name in names} == dict.fromkeys(names, "false")
        steps.end()
        assert _settings(clusters) == dict.fromkeys(names, "true")
    finally:
        for name in names:
            remove_dynamic(admin, name)


def test_address_of_another_cluster_is_not_replaced(clusters: Clusters, steps: Steps) -> None:
    """Blue has one address for all it sends away: with another one they would all go there, so nothing begins."""
    _, admin = steps.whole(cluster.register), clusters.blue_admin
    own = ClusterUrls(service_url=clusters.blue.admin_urls[0], broker_service_url=clusters.blue.broker_url)
    admin.clusters.set_migration(BLUE, own, migrated=False)
    make_namespace(clusters, "claims/sent-away", "topic")
    admin.topics.stats(TopicName.parse("claims/sent-away/topic"))
    try:
        with steps.task() as task, task.blue.store() as store:
            set_flag(store, "claims/sent-away", lambda: None, migrated=True)
        blockers = {blocker.code: blocker for blocker in steps.whole(precheck).blockers}
        assert "claims/sent-away" in blockers["BLUE_SENDS_ELSEWHERE"].cause
        assert clusters.green.admin_urls[0] in blockers["BLUE_SENDS_ELSEWHERE"].cure
        with pytest.raises(StoreConflict, match="which is the cluster 'blue', and not to green; nothing is flipped"):
            steps.whole(cluster.disable_load_shedding)
        migration = admin.clusters.migration(BLUE)
        assert migration is not None
        assert migration.migrated_cluster_url == own
    finally:
        admin.clusters.set_migration(BLUE, clusters.green_urls, migrated=False)
        admin.namespaces.set_migrated("claims/sent-away", migrated=False)


def test_late_attempt_does_not_redirect_all_clients(clusters: Clusters, steps: Steps) -> None:
    """An attempt that froze before it set the flag of the whole cluster is refused once another one has set it."""
    steps.begin()
    with steps.task() as task, task.blue.store() as store:
        guard = task.keeper(store)
        guard.renew()

        def freeze() -> None:
            # Between what it read and its write: the fence itself has been asked.
            guard.require()
            if not later:
                later.append(steps.whole(cluster.disable_load_shedding))

        later: list[object] = []
        with pytest.raises(Superseded):
            set_cluster_flag(store, BLUE, freeze, lambda now: ClusterMigration(migrated=True))
    migration = clusters.blue_admin.clusters.migration(BLUE)
    assert migration is not None
    assert (migration.migrated, migration.migrated_cluster_url) == (False, clusters.green_urls)


def _settings(clusters: Clusters) -> dict[str, str]:
    return dynamic_values(clusters.blue_admin)


def _running(clusters: Clusters) -> list[dict[str, str | None]]:
    settings: list[dict[str, str | None]] = []
    with Steps(clusters, "claims/one").task() as task:
        for _, admin in task.blue.brokers():
            running = admin.brokers.runtime_configuration()
            settings.append({name: running.get(name) for name in KEEP_LOADED})
    return settings


def _held(clusters: Clusters) -> list[str]:
    """Return migrations that hold one of both clusters."""
    holders: list[str] = []
    for stack in (clusters.blue, clusters.green):
        with open_cas(parse_store_url(stack.metadata_url), Access()) as store:
            if held := read_claim(store, BlueGreenClaim):
                holders.append(held.claim.workflow_id)
    return holders
