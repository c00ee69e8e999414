"""Two BookKeeper clusters for tests that copy ledgers, and ledgers to copy; fixtures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

import pytest

from clients.bookkeeper.cluster import Cluster, open_clusters
from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.digests import pack_entry
from clients.bookkeeper.metadata import (
    DigestType,
    LedgerMetadata,
    LedgerState,
    Segment,
)
from clients.bookkeeper.writer import LedgerWriter
from clients.stores import Access
from models.ledger_store import parse_ledger_store_uri
from models.store_url import parse_store_url
from pulsar_devstack.servers.child_programs import Refused
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from spark.bookie_cluster.spec import LedgerPair
from tests.support.clients.claims import attempt_of
from tests.support.clients.java_ledgers import JavaLedgers, Ledger, LedgerRead
from tests.support.metadata_store.stores import read_zookeeper
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

PAIR = Ledger(ensemble=2, write=2, ack=2, entries=20, custom={"component": b"\x00\xffschema", "a": b""})
LARGE = Ledger(ensemble=2, write=2, ack=2, entries=6_000, sizes=(2_000,), seed=11)
CLAIM = "/claims/copy"
ME = attempt_of(attempt=3)
BACK_LIMIT = 60.0
#: Ids that the generator will not come to.
IDS = count(1 << 33)


@dataclass
class Environment:
    """Two clusters, their URIs, and the Java client."""

    stack: Stack
    java: JavaLedgers
    source_uri: str
    target_uri: str

    def create(self, ledger: Ledger, *, count: int = 1, close: bool = True) -> list[int]:
        """Make ledgers in the source."""
        return self.java.create(self.source_uri, ledger, count=count, close=close)

    def bring_back(self, *names: str) -> None:
        """Start bookies of the source again, where they are down, and wait until the Java client writes to both."""
        down = [name for name in names if not self.stack[name].alive]
        # One that meets its former registration as that expires shuts down, and its process stays (seen).
        registered = {f"/ledgers/available/{name}" for name in down}
        wait_for(
            f"the end of the sessions of {down}",
            lambda: registered.isdisjoint(read_zookeeper(self.stack.zk_url)),
            BACK_LIMIT,
        )
        for name in down:
            self.stack[name].start()

        def written() -> bool:
            with suppress(Refused):
                self.create(PAIR)
                return True
            return False

        wait_for(f"a ledger on both bookies after {names}", written, BACK_LIMIT)

    def read(self, uri: str, ids: Sequence[int], ledger: Ledger) -> list[LedgerRead]:
        """Return the ledgers as the Java client reads them."""
        return self.java.read(uri, ids, digest=ledger.digest, password=ledger.password)

    def assert_copied(self, ids: Sequence[int], ledger: Ledger) -> None:
        """Assert that the Java client reads the same in both clusters, except for the bookies."""
        for mine, theirs in zip(
            self.read(self.source_uri, ids, ledger), self.read(self.target_uri, ids, ledger), strict=True
        ):
            assert (theirs.error, theirs.state, theirs.entries) == (None, "CLOSED", mine.entries)
            assert theirs._replace(segments={}) == mine._replace(segments={})


@pytest.fixture(scope="module")
def environment(
    make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Environment]:
    """Two bookies in each cluster."""
    stack = make_stack(StackSpec(zookeepers=1, bookies=2, second_bookies=2))
    with JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as java:
        yield Environment(stack, java, stack.bookkeeper_uri, stack.second_bookkeeper_uri)


@pytest.fixture
def pair(environment: Environment) -> LedgerPair:
    """Both clusters, as executors get them."""
    return LedgerPair(
        source=parse_ledger_store_uri(environment.source_uri).url,
        target=parse_ledger_store_uri(environment.target_uri).url,
        access=Access(),
        read_timeout=5.0,
        store=parse_store_url(environment.stack.zk_url),
        claim=CLAIM,
        attempt=ME,
    )


@pytest.fixture
def clusters(pair: LedgerPair) -> Generator[tuple[Cluster, Cluster]]:
    """Connections of our own to both."""
    with open_clusters(pair.source, pair.target, pair.access, pair.read_timeout) as both:
        yield both


def verdicts(outcomes: Sequence[CopyOutcome]) -> dict[int, Verdict]:
    """Return outcomes by ledger."""
    return {outcome.ledger_id: outcome.verdict for outcome in outcomes}


def metadata(cluster: Cluster, ledger_id: int) -> LedgerMetadata:
    """Return a ledger's metadata, which it must have."""
    (record,) = cluster.directory.read([ledger_id])
    assert record is not None
    return record.metadata


def damaged(
    cluster: Cluster,
    ledger: Ledger,
    bad: Mapping[str, Collection[int]],
    *,
    ledger_id: int | None = None,
    confirmed: Callable[[int], int] = lambda entry: entry - 1,
) -> int:
    """Make a closed ledger on two bookies, of which some have bad copies of some entries; returns its id.

    Written so from the start: of an entry that is written again, a bookie may give the old copy or the new one.

    Args:
        cluster: where.
        ledger: what it holds.
        bad: numbers of bad entries, by bookie.
        ledger_id: its id; a new one by default.
        confirmed: which entry each names as the last confirmed one.
    """
    ensemble = tuple(cluster.bookies.writable()[:2])
    begun = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        state=LedgerState.OPEN,
        length=0,
        last_entry=-1,
        segments=(Segment(0, ensemble),),
        digest=DigestType.CRC32C,
        custom=tuple(ledger.custom.items()),
    )
    chosen = next(IDS) if ledger_id is None else ledger_id
    assert cluster.directory.create([(chosen, begun)]) == [True]
    bodies: list[bytes] = []
    length = 0
    for entry, data in enumerate(ledger.payloads()):
        length += len(data)
        bodies.append(pack_entry(chosen, entry, data, length=length, last_add_confirmed=confirmed(entry)))
    for bookie in ensemble:
        writer = LedgerWriter(cluster.bookies, leave_out=set(ensemble) - {bookie})
        worse = [
            body[:-1] + bytes([body[-1] ^ 1]) if entry in bad.get(bookie, ()) else body
            for entry, body in enumerate(bodies)
        ]
        writer.add(chosen, begun, 0, worse)
        writer.flush()
    closed = replace(begun, state=LedgerState.CLOSED, length=length, last_entry=len(bodies) - 1)
    cluster.directory.update([(chosen, closed, 0)])
    return chosen
