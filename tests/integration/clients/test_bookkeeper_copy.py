"""Copying ledgers between two BookKeeper clusters, both written and read by BookKeeper's own Java client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.cluster import Cluster, open_clusters, sleep_polling
from clients.bookkeeper.compare import compare_batch
from clients.bookkeeper.copy_result import Begun, CopyOutcome, Verdict
from clients.bookkeeper.ledger_table import LedgerTable
from clients.bookkeeper.recovery import recover_batch
from clients.errors import BookieNotWritable, StoreConflict, StoreUnreachable
from clients.zookeeper.coordination import Coordination
from models.bookie_registry import SwitchClaim
from models.lifecycle.claim import PacedClaim
from spark.bookie_cluster import jobs as ledger_jobs
from spark.bookie_cluster.spec import LedgerPair, batches
from spark.engine import SparkEngine
from spark.fence import WriteFence
from tests.support.clients.claims import attempt_of
from tests.support.clients.java_ledgers import Digest, Ledger
from tests.support.clients.ledger_copies import (
    BACK_LIMIT,
    CLAIM,
    IDS,
    LARGE,
    ME,
    PAIR,
    Environment,
    damaged,
    metadata,
    verdicts,
)
from tests.support.clients.ledger_verification import verification
from tests.support.waiting import wait_for


def once(action: Callable[[], object]) -> Callable[[int], None]:
    """Return a check that does something before the first bytes are written."""
    pending = [action]

    def check(size: int) -> None:
        if size and pending:
            pending.pop()()

    return check


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
            BACK_LIMIT,
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
