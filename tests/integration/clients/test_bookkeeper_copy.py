"""Copying ledgers between two BookKeeper clusters, both written and read by BookKeeper's own Java client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import pytest

from activities.lifecycle.context import ActivityContext
from activities.verification.context import Comparison, MigrationGate
from activities.verification.ledgers import LedgerComparison, LedgerSide
from clients.bookkeeper import batch_copy
from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.cluster import Cluster, open_clusters, sleep_polling
from clients.bookkeeper.compare import compare_batch
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from clients.bookkeeper.digests import pack_entry
from clients.bookkeeper.ledger_table import LedgerTable
from clients.bookkeeper.metadata import (
    COPY_TOKEN,
    DigestType,
    LedgerMetadata,
    LedgerState,
    Segment,
    encode_metadata,
)
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.recovery import recover_batch
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import BookieNotWritable, StoreConflict, StoreError, StoreUnreachable
from clients.stores import Access
from clients.verification.bookie_entries import BookieEntries
from clients.verification.ledger_records import LedgerRecords
from clients.zookeeper.coordination import Coordination
from models.bookie_cluster.input import KIND
from models.bookie_registry import SwitchClaim
from models.ledger_store import parse_ledger_store_uri
from models.lifecycle.claim import PacedClaim
from models.lifecycle.status import ProgressUnit
from models.store_url import StoreUrl, parse_store_url
from models.verification.input import VerificationInput
from models.verification.results import Tally
from pulsar_devstack.servers.child_programs import Refused
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from spark.bookie_cluster import jobs as ledger_jobs
from spark.bookie_cluster.spec import LedgerPair, batches
from spark.engine import SparkEngine
from spark.fence import WriteFence
from tests.support.clients.claims import attempt_of
from tests.support.clients.java_ledgers import Digest, JavaLedgers, Ledger, LedgerRead
from tests.support.metadata_store.stores import read_zookeeper
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

PAIR = Ledger(ensemble=2, write=2, ack=2, entries=20, custom={"component": b"\x00\xffschema", "a": b""})
LARGE = Ledger(ensemble=2, write=2, ack=2, entries=6_000, sizes=(2_000,), seed=11)
CLAIM = "/claims/copy"
ME = attempt_of(attempt=3)
_BACK_LIMIT = 60.0
#: Ids that the generator will not come to.
IDS = count(1 << 33)


class _Died(Exception):
    """The worker has died."""


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
            _BACK_LIMIT,
        )
        for name in down:
            self.stack[name].start()

        def written() -> bool:
            with suppress(Refused):
                self.create(PAIR)
                return True
            return False

        wait_for(f"a ledger on both bookies after {names}", written, _BACK_LIMIT)

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


def once(action: Callable[[], object]) -> Callable[[int], None]:
    """Return a check that does something before the first bytes are written."""
    pending = [action]

    def check(size: int) -> None:
        if size and pending:
            pending.pop()()

    return check


def damaged(
    cluster: Cluster, ledger: Ledger, bad: Mapping[str, Collection[int]], *, ledger_id: int | None = None
) -> int:
    """Make a closed ledger on two bookies, of which some have bad copies of some entries; returns its id.

    Written so from the start: of an entry that is written again, a bookie may give the old copy or the new one.
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
        bodies.append(pack_entry(chosen, entry, data, length=length))
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


SHAPES = [
    pytest.param(PAIR, id="pair"),
    pytest.param(replace(PAIR, digest="CRC32", password=b"secret"), id="crc32"),
    pytest.param(replace(PAIR, digest="HMAC", password=b"secret"), id="hmac"),
    pytest.param(replace(PAIR, digest="DUMMY"), id="dummy"),
    pytest.param(Ledger(2, 1, 1, entries=301, sizes=(10, 70_000, 0)), id="striped"),
    pytest.param(Ledger(1, 1, 1, entries=7), id="one bookie"),
    pytest.param(replace(PAIR, entries=0), id="empty"),
    pytest.param(LARGE, id="large"),
    pytest.param(Ledger(2, 1, 1, entries=2_500, sizes=(3_000,)), id="large and striped"),
]


@pytest.mark.parametrize("ledger", SHAPES)
def test_every_shape_is_copied(environment: Environment, clusters: tuple[Cluster, Cluster], ledger: Ledger) -> None:
    """BookKeeper's Java client reads from the copy what it wrote; a second copy finds every byte equal."""
    ids = environment.create(ledger, count=2)
    outcomes = copy_batch(*clusters, ids)
    assert verdicts(outcomes) == dict.fromkeys(ids, Verdict.COPIED)
    assert {outcome.entries for outcome in outcomes} == {ledger.entries}
    environment.assert_copied(ids, ledger)
    mine, theirs = (metadata(cluster, ids[0]) for cluster in clusters)
    assert theirs.custom == mine.custom
    again = copy_batch(*clusters, ids)
    assert verdicts(again) == dict.fromkeys(ids, Verdict.EQUAL)
    assert {repeated.mzxid for repeated in again} == {outcome.mzxid for outcome in outcomes}
    assert all(repeated.mzxid for repeated in again)
    assert verdicts(compare_batch(*clusters, ids)) == dict.fromkeys(ids, Verdict.EQUAL)


def test_segments_become_one(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """A ledger whose writer lost a bookie is read from both of its segments."""
    alone = Ledger(entries=20)
    held = environment.java.hold(environment.source_uri, alone)
    (first,) = metadata(clusters[0], held.ledger_id).segments[0].ensemble
    environment.stack[first].kill()
    try:
        held.add(b"after")
        held.close()
    finally:
        environment.bring_back(first)
    assert len(metadata(clusters[0], held.ledger_id).segments) == 2
    assert verdicts(copy_batch(*clusters, [held.ledger_id])) == {held.ledger_id: Verdict.COPIED}
    assert len(metadata(clusters[1], held.ledger_id).segments) == 1
    environment.assert_copied([held.ledger_id], alone)


def test_open_ledgers_wait_or_are_recovered(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """An open ledger is left alone until it is recovered; then it is copied with every entry."""
    ids = environment.create(PAIR, count=3, close=False)
    assert verdicts(copy_batch(*clusters, ids)) == dict.fromkeys(ids, Verdict.OPEN)
    assert clusters[1].directory.read(ids) == [None] * 3
    assert recover_batch(clusters[0], ids) == []
    assert verdicts(copy_batch(*clusters, ids)) == dict.fromkeys(ids, Verdict.COPIED)
    environment.assert_copied(ids, PAIR)
    (content, *_) = environment.read(environment.target_uri, ids, PAIR)
    assert content.entries == 20


@pytest.mark.parametrize("dead", ["live bookies", "vanished bookies"])
def test_an_interrupted_copy_is_completed(
    environment: Environment, clusters: tuple[Cluster, Cluster], dead: str
) -> None:
    """Open metadata with half of the entries is taken over, and gets other bookies where its own are gone."""
    source, target = clusters
    (ledger_id,) = environment.create(PAIR)
    original = metadata(source, ledger_id)
    ensemble = ("second-bookie-1", "second-bookie-2")
    segments = (Segment(0, ensemble),)
    begun = replace(original, state=LedgerState.OPEN, length=0, last_entry=-1, segments=segments, token=COPY_TOKEN)
    gone = replace(begun, segments=(Segment(0, ("second-bookie-1", "second-bookie-9")),))
    assert target.directory.create([(ledger_id, begun if dead == "live bookies" else gone)]) == [True]
    writer = LedgerWriter(target.bookies)
    for bodies in LedgerReader(source.bookies).entries(ledger_id, original, 0, 9):
        writer.add(ledger_id, begun, 0, bodies)
    writer.flush()
    assert verdicts(copy_batch(source, target, [ledger_id])) == {ledger_id: Verdict.COPIED}
    assert metadata(target, ledger_id).segments == (Segment(0, metadata(target, ledger_id).segments[0].ensemble),)
    environment.assert_copied([ledger_id], PAIR)


def test_another_ledger_of_the_same_id_is_left_alone(
    environment: Environment, clusters: tuple[Cluster, Cluster]
) -> None:
    """A different ledger in the target is reported and not changed, whether its metadata or only its bytes differ.

    A shorter one, or one that is still written, may belong to another Pulsar cluster that has a topic of the same name.
    """
    ids = environment.create(PAIR, count=6)
    others = [replace(PAIR, entries=21), replace(PAIR, custom={}), replace(PAIR, seed=1)]
    for ledger_id, other in zip(ids, others, strict=False):
        environment.java.create(environment.target_uri, other, ids=[ledger_id])
    environment.java.create(environment.target_uri, replace(PAIR, custom={}), ids=[ids[3]], close=False)
    environment.java.create(environment.target_uri, replace(PAIR, entries=10, seed=1), ids=[ids[4]])
    environment.java.create(environment.target_uri, PAIR, ids=[ids[5]], close=False)
    before = clusters[1].directory.read(ids)
    outcomes = copy_batch(*clusters, ids)
    assert verdicts(outcomes) == dict.fromkeys(ids, Verdict.DIFFERENT)
    details = {outcome.ledger_id: outcome.detail for outcome in outcomes}
    assert ["last_entry" in details[ids[0]], "custom" in details[ids[1]], "entry 0" in details[ids[2]]] == [True] * 3
    assert ["last_entry" in details[ids[4]], "not closed" in details[ids[5]]] == [True] * 2
    assert [outcome.ledger_id for outcome in outcomes if outcome.transient] == [ids[5]]
    assert clusters[1].directory.read(ids) == before
    assert environment.read(environment.target_uri, ids[2:3], PAIR)[0].error is None


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_a_rollback_leaves_originals_that_were_never_closed(
    environment: Environment, clusters: tuple[Cluster, Cluster], state: LedgerState
) -> None:
    """Their bookies were down at the switch, and only a part was copied; what the copy lacks is still there then."""
    (ledger_id,) = environment.create(PAIR, close=False)
    source, target = clusters
    (original,) = source.directory.read([ledger_id])
    assert original is not None
    source.directory.update([(ledger_id, replace(original.metadata, state=state), original.version)])
    environment.java.create(environment.target_uri, replace(PAIR, entries=10), ids=[ledger_id])
    before = source.directory.read([ledger_id])

    (outcome,) = copy_batch(target, source, [ledger_id])

    assert (outcome.verdict, outcome.transient) == (Verdict.DIFFERENT, True)
    assert source.directory.read([ledger_id]) == before
    assert recover_batch(source, [ledger_id]) == []
    assert verdicts(copy_batch(target, source, [ledger_id])) == {ledger_id: Verdict.DIFFERENT}
    (content,) = environment.read(environment.source_uri, [ledger_id], PAIR)
    assert content.entries == PAIR.entries


def test_a_copy_that_another_client_has_closed_is_completed(
    environment: Environment, clusters: tuple[Cluster, Cluster]
) -> None:
    """It holds what the original begins with; where the rest cannot be read, it is as before.

    So it is if the worker that opened it has died, and after a round that failed.
    """
    (ledger_id,) = environment.create(PAIR)
    lost = PAIR.entries - 2
    bad = damaged(clusters[0], PAIR, {"bookie-1": [lost], "bookie-2": [lost]})
    environment.java.create(environment.target_uri, replace(PAIR, entries=10), ids=[ledger_id])
    damaged(clusters[1], replace(PAIR, entries=10), {}, ledger_id=bad)
    before = metadata(clusters[1], bad)

    def die(size: int) -> None:
        if size and not metadata(clusters[1], bad).closed:
            raise _Died

    with pytest.raises(_Died):
        copy_batch(*clusters, [ledger_id, bad], check=die)
    assert [metadata(clusters[1], number).closed for number in (ledger_id, bad)] == [False, False]

    rounds: list[str] = []

    def check(size: int) -> None:
        if size and not rounds and not metadata(clusters[1], bad).closed:
            rounds.append("first")
            raise StoreConflict("another client has changed a ledger")

    outcomes = copy_batch(*clusters, [ledger_id, bad], check=check)

    assert rounds == ["first"]

    assert verdicts(outcomes) == {ledger_id: Verdict.COPIED, bad: Verdict.UNREADABLE}
    environment.assert_copied([ledger_id], PAIR)
    assert not metadata(clusters[1], ledger_id).closed_before
    assert metadata(clusters[1], bad) == before


def test_bookkeeper_closes_a_copy_that_remembers_what_was_there(
    environment: Environment, clusters: tuple[Cluster, Cluster]
) -> None:
    """BookKeeper reads metadata with our own field, and leaves it out, as the mark of a copy, when it closes them."""
    (ledger_id,) = environment.java.create(environment.target_uri, PAIR, ids=[next(IDS)], close=False)
    directory = clusters[1].directory
    (record,) = directory.read([ledger_id])
    assert record is not None
    remembers = replace(record.metadata, token=COPY_TOKEN, closed_before=encode_metadata(record.metadata))
    directory.update([(ledger_id, remembers, record.version)])
    assert metadata(clusters[1], ledger_id) == remembers
    (content,) = environment.java.read(environment.target_uri, [ledger_id], recover=True)
    closed = metadata(clusters[1], ledger_id)
    assert content.entries == PAIR.entries
    assert (closed.closed, closed.is_copy, closed.closed_before) == (True, False, b"")


def test_what_another_client_has_closed_outlasts_bookies_that_are_down(
    environment: Environment, clusters: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed, shorter ledger is as before also if the rest may be read later: an open copy would hold less."""

    def down(_: Cluster, ledger_id: int, why: StoreError) -> CopyOutcome:
        return CopyOutcome(ledger_id, Verdict.UNREADABLE, detail=str(why), transient=True)

    monkeypatch.setattr(batch_copy, "unreadable", down)
    lost = PAIR.entries - 2
    bad = damaged(clusters[0], PAIR, {"bookie-1": [lost], "bookie-2": [lost]})
    damaged(clusters[1], replace(PAIR, entries=10), {}, ledger_id=bad)
    before = metadata(clusters[1], bad)
    (outcome,) = copy_batch(*clusters, [bad])
    assert (outcome.verdict, outcome.transient, outcome.begun) == (Verdict.UNREADABLE, True, None)
    assert metadata(clusters[1], bad) == before


def test_a_corrupt_replica_is_passed_over(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """If one replica of an entry is corrupt, the other one is copied."""
    ledger_id = damaged(clusters[0], PAIR, {"bookie-1": [4], "bookie-2": [5, 19]})
    assert verdicts(copy_batch(*clusters, [ledger_id])) == {ledger_id: Verdict.COPIED}
    environment.assert_copied([ledger_id], PAIR)


@pytest.mark.parametrize("ledger", [PAIR, LARGE], ids=["small", "large"])
def test_a_ledger_that_cannot_be_read_is_named(
    environment: Environment, clusters: tuple[Cluster, Cluster], ledger: Ledger
) -> None:
    """A ledger with an entry that is corrupt everywhere leaves nothing in the target, and others are copied."""
    (good,) = environment.create(ledger)
    lost = ledger.entries - 2
    bad = damaged(clusters[0], ledger, {"bookie-1": [lost], "bookie-2": [lost]})
    outcomes = copy_batch(*clusters, [bad, good])
    assert verdicts(outcomes) == {bad: Verdict.UNREADABLE, good: Verdict.COPIED}
    (detail,) = [outcome.detail for outcome in outcomes if outcome.failed]
    assert f"entry {lost} of ledger {bad}" in detail
    assert "CRC32C digest differs" in detail
    assert clusters[1].directory.read([bad]) == [None]
    assert verdicts(compare_batch(*clusters, [bad, good])) == {bad: Verdict.DIFFERENT, good: Verdict.EQUAL}


def test_a_copy_that_cannot_be_read_is_found(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """A closed copy whose bytes are lost is distinguished from an equal one, and left as it is."""
    (ledger_id,) = environment.create(PAIR)
    damaged(clusters[1], PAIR, {"second-bookie-1": [7], "second-bookie-2": [7]}, ledger_id=ledger_id)
    before = clusters[1].directory.read([ledger_id])
    for outcomes in (compare_batch(*clusters, [ledger_id]), copy_batch(*clusters, [ledger_id])):
        (outcome,) = outcomes
        assert (outcome.verdict, "in the target: entry 7" in outcome.detail) == (Verdict.UNREADABLE, True)
    assert clusters[1].directory.read([ledger_id]) == before


def test_ledgers_deleted_during_the_copy_are_gone(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """A ledger that is deleted before or during its copy is not a failure, and leaves no copy."""
    (before,) = environment.create(PAIR)
    environment.java.delete(environment.source_uri, [before])
    last = LARGE.entries - 1
    during = damaged(clusters[0], LARGE, {"bookie-1": [last], "bookie-2": [last]})
    delete = once(lambda: environment.java.delete(environment.source_uri, [during]))
    outcomes = copy_batch(*clusters, [before, during], check=delete)
    assert verdicts(outcomes) == {before: Verdict.DELETED, during: Verdict.DELETED}
    assert clusters[1].directory.read([before, during]) == [None, None]


def test_a_bookie_of_the_source_dies_during_the_copy(
    environment: Environment, clusters: tuple[Cluster, Cluster]
) -> None:
    """The rest is read from the other replica."""
    ids = environment.create(LARGE, count=2)
    try:
        outcomes = copy_batch(*clusters, ids, check=once(environment.stack["bookie-1"].kill))
    finally:
        environment.bring_back("bookie-1")
    assert verdicts(outcomes) == dict.fromkeys(ids, Verdict.COPIED)
    environment.assert_copied(ids, LARGE)


def test_entries_on_a_dead_bookie_fail_one_ledger_only(
    environment: Environment, clusters: tuple[Cluster, Cluster]
) -> None:
    """A ledger that only a dead bookie has is named, others are copied; without any bookie the copy itself fails.

    Its copy stays open until the bookie is back: bookies refuse an id that they have deleted.
    """
    ids: list[int] = []
    on_first: set[int] = set()

    def both_have_some() -> bool:
        # The client takes one of both at random, and a bookie that has just started only once it knows it.
        (ledger_id,) = environment.create(Ledger(entries=5), count=1)
        ids.append(ledger_id)
        if metadata(clusters[0], ledger_id).segments[0].ensemble == ("bookie-1",):
            on_first.add(ledger_id)
        return 0 < len(on_first) < len(ids)

    wait_for("ledgers on each of both bookies", both_have_some, 60)
    environment.stack["bookie-1"].kill()
    try:
        outcomes = copy_batch(*clusters, ids)
        results = verdicts(outcomes)
        copies = clusters[1].directory.read(sorted(on_first))
        left_open = {record.ledger_id: record.mzxid for record in copies if record}
        environment.stack["bookie-2"].kill()
        with pytest.raises(StoreUnreachable):
            copy_batch(*clusters, ids)
    finally:
        environment.bring_back("bookie-1", "bookie-2")
    assert {number for number, verdict in results.items() if verdict is Verdict.UNREADABLE} == on_first
    assert {number for number, verdict in results.items() if verdict is Verdict.COPIED} == set(ids) - on_first
    assert {outcome.ledger_id: outcome.begun for outcome in outcomes if outcome.begun} == {
        ledger_id: Begun(-1, 0, mzxid) for ledger_id, mzxid in left_open.items()
    }
    assert left_open.keys() == on_first
    assert verdicts(copy_batch(*clusters, sorted(on_first))) == dict.fromkeys(on_first, Verdict.COPIED)


@pytest.mark.exhaustive
def test_a_bookie_of_the_target_dies_during_the_copy(
    environment: Environment, clusters: tuple[Cluster, Cluster]
) -> None:
    """The copy continues with the bookies that are left, where they are enough."""
    ledger = Ledger(entries=6_000, sizes=(2_000,))
    ids = environment.create(ledger, count=4)
    try:
        outcomes = copy_batch(*clusters, ids, check=once(environment.stack["second-bookie-2"].kill))
        assert verdicts(outcomes) == dict.fromkeys(ids, Verdict.COPIED)
        assert {metadata(clusters[1], id_).segments[0].ensemble for id_ in ids} == {("second-bookie-1",)}
        environment.assert_copied(ids, ledger)
        (pair_id,) = environment.create(PAIR)
        with pytest.raises(BookieNotWritable, match="needs 2 bookies, and the target has 1"):
            copy_batch(*clusters, [pair_id])
    finally:
        wait_for(
            "the end of the session of second-bookie-2",
            lambda: "second-bookie-2" not in clusters[1].directory.bookies(),
            _BACK_LIMIT,
        )
        environment.stack["second-bookie-2"].start()
    assert clusters[1].directory.read([pair_id]) == [None]


@pytest.mark.exhaustive
def test_an_entry_that_is_too_large_for_the_target(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """It fails its own ledger, which is named with the cure, and holds up no other."""
    ids = environment.create(PAIR, count=5)
    poison = environment.create(Ledger(ensemble=2, write=2, ack=2, entries=3, sizes=(10, 2_000_000)), count=2)
    try:
        for name in ("second-bookie-1", "second-bookie-2"):
            environment.stack.reconfigure(name, nettyMaxFrameSizeBytes=str(1 << 20))
        outcomes = {outcome.ledger_id: outcome for outcome in copy_batch(*clusters, [*ids[:2], *poison, *ids[2:]])}
    finally:
        for name in ("second-bookie-1", "second-bookie-2"):
            environment.stack.reconfigure(name, nettyMaxFrameSizeBytes=str(5 << 20))
    assert verdicts([*outcomes.values()]) == {
        **dict.fromkeys(ids, Verdict.COPIED),
        **dict.fromkeys(poison, Verdict.TOO_LARGE),
    }
    assert re.match(r"entry 1 has 2,000,036 bytes, and bookie second-bookie-", outcomes[poison[0]].detail)
    assert clusters[1].directory.read(poison) == [None, None]
    environment.assert_copied(ids, PAIR)


def test_the_throttle_is_kept(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """A copy keeps to its share of the throttle, and answers that wait for it do not count as a fault."""
    (ledger_id,) = environment.create(LARGE)
    sleep = partial(sleep_polling, clusters[0].bookies.loop)
    fence = WriteFence(
        lambda: PacedClaim(**ME._asdict(), throttle=8.0), attempt=ME, what="the store", parallelism=2, sleep=sleep
    )
    begun = time.monotonic()
    (outcome,) = copy_batch(*clusters, [ledger_id], check=fence.check)
    assert outcome.verdict is Verdict.COPIED
    assert time.monotonic() - begun > outcome.bytes / 4e6 * 0.9


def test_a_verification_finds_what_the_copy_has_not_made(
    environment: Environment, clusters: tuple[Cluster, Cluster], pair: LedgerPair
) -> None:
    """A verification by request, which shares no code with the copy, names each difference, and continues after a kill.

    Ledgers with the digests that Java's client writes are equal; a damaged copy, other bytes under a valid digest, and
    another length are found; a damaged replica of the source is not a difference.
    """
    source, target = clusters
    first = next(IDS)
    equal, hurt, other, longer, half = (next(IDS) for _ in range(5))
    for ledger_id in (equal, hurt, other, longer):
        damaged(source, PAIR, {}, ledger_id=ledger_id)
    damaged(source, PAIR, {source.bookies.writable()[0]: range(PAIR.entries)}, ledger_id=half)
    for ledger_id in (equal, half):
        damaged(target, PAIR, {}, ledger_id=ledger_id)
    damaged(target, PAIR, {bookie: [7] for bookie in target.bookies.writable()}, ledger_id=hurt)
    damaged(target, replace(PAIR, seed=12), {}, ledger_id=other)
    damaged(target, replace(PAIR, entries=21), {}, ledger_id=longer)
    names = [
        f"ledger {hurt}, entry 7: in the target, the copy of bookie",
        f"ledger {other}, entry 0: other bytes in the target",
        f"ledger {longer}, last entry 19, and 20 in the target",
    ]

    whole = verification(pair, f"{first}-{half}")
    assert [name for name, item in zip(names, whole.differing.items, strict=True) if item.startswith(name)] == names
    assert (whole.seen, whole.equal, whole.unreadable.count) == (5, 2, 0)
    noted = {"tally": verification(pair, f"{first}-{hurt}").model_dump_json()}
    assert verification(pair, f"{first}-{half}", noted=noted) == whole
    assert verification(pair, f"{equal}-{equal}").differing.count == 0

    digests: tuple[Digest, ...] = ("CRC32", "CRC32C", "HMAC", "DUMMY")
    ids = [ledger_id for digest in digests for ledger_id in environment.create(replace(PAIR, digest=digest))]
    assert {*verdicts(copy_batch(source, target, ids)).values()} == {Verdict.COPIED}
    assert all(verification(pair, f"{ledger_id}-{ledger_id}").equal == 1 for ledger_id in ids)


def verification(pair: LedgerPair, ledgers: str, *, noted: dict[str, str] | None = None) -> Tally:
    """Compare some ledgers, as one attempt at the step of a verification does."""
    values: dict[str, object] = {"cluster": "c", "migration": "m", "migration_run": "r", "migration_input": {}}
    input = VerificationInput.model_validate({**values, "migration_kind": KIND, "ledgers": ledgers})
    context = ActivityContext(noted)
    gate = MigrationGate(lambda: ("ROLLBACK_WINDOW", True), KIND, context)
    comparison = Comparison(context, input, gate, ProgressUnit.LEDGERS)
    with ExitStack() as stack:

        def side(url: StoreUrl) -> LedgerSide:
            records = stack.enter_context(LedgerRecords(url))
            access = pair.access.to(url).bookies
            return LedgerSide(records, stack.enter_context(BookieEntries(records.bookies, access=access, timeout=5.0)))

        LedgerComparison(comparison, side(pair.source), side(pair.target), input.ledger_range).run()
    return comparison.tally


def test_jobs_copy_and_compare(environment: Environment, pair: LedgerPair, engine: SparkEngine) -> None:
    """Spark jobs bring every ledger to its outcome, open ones recovered where that is wanted, at the pace allowed."""
    ids = environment.create(PAIR, count=40)
    ids += environment.create(LARGE, count=2)
    opened = environment.create(PAIR, count=2, close=False)
    with claimed(pair, SwitchClaim(**ME._asdict())):
        results = run(engine, pair, [*ids, *opened], recover=False)
        assert results == {**dict.fromkeys(ids, Verdict.COPIED), **dict.fromkeys(opened, Verdict.OPEN)}
        results = run(engine, pair, [*ids, *opened], recover=True)
        assert results == {**dict.fromkeys(ids, Verdict.EQUAL), **dict.fromkeys(opened, Verdict.COPIED)}
        assert run(engine, pair, ids, compare=True) == dict.fromkeys(ids, Verdict.EQUAL)
    environment.assert_copied([*ids[:2], *opened], PAIR)


def test_a_superseded_attempt_stops(environment: Environment, pair: LedgerPair, engine: SparkEngine) -> None:
    """Tasks of an attempt that is not the newest write nothing."""
    ids = environment.create(PAIR, count=3)
    with (
        claimed(pair, SwitchClaim(**attempt_of(attempt=4)._asdict())),
        pytest.raises(StoreConflict, match=r"attempt 3 was superseded by .* attempt 4"),
    ):
        run(engine, pair, ids)
    assert {content.error for content in environment.read(environment.target_uri, ids, PAIR)} != {None}


@contextmanager
def claimed(pair: LedgerPair, claim: SwitchClaim) -> Generator[None]:
    """Set the claim."""
    with Coordination(pair.store) as zookeeper:
        if zookeeper.exists(CLAIM) is None:
            zookeeper.create(CLAIM, parents=True)
        zookeeper.set(CLAIM, claim.encode(), -1)
        yield


def run(
    engine: SparkEngine, pair: LedgerPair, ids: Sequence[int], *, recover: bool = False, compare: bool = False
) -> dict[int, Verdict]:
    """Run a job over some ledgers."""
    with open_clusters(pair.source, pair.target, pair.access, pair.read_timeout) as (source, _):
        records = LedgerTable(record.facts for record in source.directory.read(ids) if record)
    outcomes: list[CopyOutcome] = []

    job = ledger_jobs.compare if compare else ledger_jobs.copy
    parts, tag = batches(records, recover=recover), engine.new_tag("test")
    job(engine, pair, parts, tag=tag, on_outcomes=outcomes.extend, concurrency=lambda: 2)
    assert len(outcomes) == len(ids)
    return verdicts(outcomes)
