"""On an ensemble of three ZooKeepers, whose follower lags: what decides something is read from the leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from activities.metadata_store.flag import FlagKeeper
from activities.pulsar.registrations import BROKERS, brokers
from clients.bookkeeper.idgen import raise_generator, read_generator
from clients.errors import Superseded
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.stores import Access, open_cas, open_reader, trees_overlap
from clients.zookeeper.coordination import Coordination
from models.bookie_registry import ClusterStatus, RegisteredCluster
from models.lifecycle.claim import CLAIM, PacedClaim
from models.migration_flag import FlagPhase
from models.store_url import StoreUrl
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import StackSpec
from spark.fence import WriteFence, claim_in
from tests.support.clients.claims import attempt_of, open_registry
from tests.support.clients.ensemble import Ensemble
from tests.support.stacks import MakeStack

_TARGET = "oxia://127.0.0.1:6648/default"
_LAG = 0.5


@pytest.fixture(scope="module")
def ensemble(make_stack: MakeStack) -> Iterator[Ensemble]:
    """Three ZooKeepers."""
    with ExitStack() as opened:
        ensembles: list[Ensemble] = []
        make_stack(StackSpec(zookeepers=3), lambda stack: ensembles.append(opened.enter_context(Ensemble(stack))))
        yield ensembles[0]


class Places(NamedTuple):
    """One store, by the address of its leader and by that of a follower which is made to lag."""

    ensemble: Ensemble
    lagging: Server
    leader: StoreUrl
    follower: StoreUrl

    def then(self, change: Callable[[], object]) -> None:
        """Change something on the leader that the follower receives only later."""
        with self.ensemble.lagging(self.lagging, _LAG):
            change()


@pytest.fixture
def places(ensemble: Ensemble, request: pytest.FixtureRequest) -> Places:
    """A store of the test's own."""
    lagging = ensemble.follower()
    root = f"/{request.node.name}"
    leader, follower = (
        ensemble.url(server).model_copy(update={"root": root}) for server in (ensemble.leader(), lagging)
    )
    return Places(ensemble, lagging, leader, follower)


def test_a_rollback_sees_that_writes_are_blocked(places: Places) -> None:
    """An attempt that takes writes back through a follower which lags finds that an earlier one has blocked them."""
    with open_cas(places.leader, Access()) as there, open_cas(places.follower, Access()) as here:
        first, second = FlagKeeper(there, attempt_of()), FlagKeeper(here, attempt_of(attempt=2))
        first.take()
        assert second.state().flag.phase is FlagPhase.NOT_STARTED
        places.then(lambda: first.advance(FlagPhase.PREPARATION, _TARGET))
        assert second.is_at_phase(FlagPhase.PREPARATION)
        assert second.unblock().flag.phase is FlagPhase.FAILED


def test_a_superseded_attempt_is_stopped(places: Places) -> None:
    """Flag, claim and the executors' fence stop an attempt whose server does not know the newer attempt yet."""
    with (
        open_cas(places.leader, Access()) as there,
        open_cas(places.follower, Access()) as here,
        open_reader(places.follower, Access()) as executor,
    ):
        old = FlagKeeper(here, attempt_of())
        old.take()

        def write() -> None:
            def claim() -> PacedClaim | None:
                return claim_in(executor, CLAIM, PacedClaim)

            WriteFence(claim, attempt=attempt_of(), what="here", parallelism=1).check(1)

        looks = [write, lambda: old.require(FlagPhase.NOT_STARTED)]
        for number, read_state in enumerate(looks, 2):
            newer = FlagKeeper(there, attempt_of(attempt=number))
            read_state() if number == 2 else None
            places.then(newer.renew)
            with pytest.raises(Superseded):
                read_state()


def test_the_registry_shows_who_is_active(places: Places) -> None:
    """The ACTIVE cluster and the redirected brokers are read as committed last, also through a lagging follower."""
    with open_registry(places.leader, attempt_of()) as there, open_cas(places.follower, Access()) as store:
        there.claim.take()
        for name, status in (("a", ClusterStatus.ACTIVE), ("b", ClusterStatus.STANDBY)):
            uri = f"zk+hierarchical://zk-1:2181/{name}"
            there.register(RegisteredCluster(name=name, metadataServiceUri=uri, status=status))
        here = BookieRegistry(store, there.path, there.claim)
        assert (_active(here), here.switch_target()) == ("a", None)
        places.then(lambda: (there.set_target("b", "test"), there.flip(new="b", old="a")))
        directive = here.switch_target()
        assert directive
        assert directive[0].target == "b"
        places.then(lambda: there.flip(new="a", old="b"))
        assert _active(here) == "a"


def test_a_broker_that_came_is_seen(places: Places) -> None:
    """A broker that has registered is seen through a session that was open before."""
    with Coordination(places.leader) as there, open_reader(places.follower, Access()) as here:
        there.create(BROKERS.decode(), parents=True)
        assert brokers(here) == []
        places.then(lambda: there.create(f"{BROKERS.decode()}/one", ephemeral=True))
        assert [service.name for service in brokers(here)] == ["broker one"]


def test_the_id_generator_is_not_taken_for_lower(places: Places) -> None:
    """Ids that were lifted a moment ago are not given again."""
    with Coordination(places.leader) as there, Coordination(places.follower) as here:
        there.create("/idgen", parents=True)
        before = read_generator(here).next_id
        places.then(lambda: raise_generator(there, before + 1))
        assert read_generator(here).next_id > before + 1


def test_members_of_an_ensemble_are_one_store(places: Places) -> None:
    """An address that names another member leads to the same tree, and a member that lags hides no node of it."""

    def create() -> None:
        with Coordination(places.leader) as there:
            there.create("/ledgers", parents=True)

    places.then(create)
    ledgers = places.follower.model_copy(update={"root": f"{places.follower.root}/ledgers"})
    assert trees_overlap(places.leader, ledgers, Access())
    assert not trees_overlap(places.leader, places.follower.model_copy(update={"root": "/other"}), Access())


def _active(registry: BookieRegistry) -> str | None:
    active = registry.active()
    return active.cluster.name if active else None
