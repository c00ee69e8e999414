"""Copies of ledgers whose ids the target has already: half-finished copies, closed ones, and ledgers of others."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest

from clients.bookkeeper import batch_copy
from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.compare import compare_batch
from clients.bookkeeper.copy_result import CopyOutcome, Verdict
from clients.bookkeeper.metadata import (
    COPY_TOKEN,
    LedgerState,
    Segment,
    encode_metadata,
)
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.recovery import recover_batch
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import StoreConflict, StoreError
from spark.bookie_cluster.spec import LedgerPair
from tests.support.clients.ledger_copies import (
    IDS,
    PAIR,
    Environment,
    damaged,
    metadata,
    verdicts,
)
from tests.support.clients.ledger_verification import verification


class _Died(Exception):
    """The worker has died."""


def _begin_copy(clusters: tuple[Cluster, Cluster], ledger_id: int, entries: int) -> None:
    """Create an open copy with the first entries of a ledger, as a worker leaves it that dies then."""
    source, target = clusters
    begun = replace(
        metadata(source, ledger_id),
        state=LedgerState.OPEN,
        length=0,
        last_entry=-1,
        segments=(Segment(0, tuple(target.bookies.writable()[:2])),),
        token=COPY_TOKEN,
    )
    assert target.directory.create([(ledger_id, begun)]) == [True]
    writer = LedgerWriter(target.bookies)
    writer.add(ledger_id, begun, 0, _bodies(source, ledger_id, entries))
    writer.flush()


def _bodies(cluster: Cluster, ledger_id: int, entries: int) -> list[bytes]:
    reader = LedgerReader(cluster.bookies)
    return list(chain.from_iterable(reader.entries(ledger_id, metadata(cluster, ledger_id), 0, entries - 1)))


@pytest.mark.parametrize("dead", ["live bookies", "vanished bookies"])
def test_an_interrupted_copy_is_completed(
    environment: Environment, clusters: tuple[Cluster, Cluster], dead: str
) -> None:
    """Open metadata with half of the entries is taken over, and gets other bookies where its own are gone."""
    source, target = clusters
    (ledger_id,) = environment.create(PAIR)
    _begin_copy(clusters, ledger_id, 10)
    if dead == "vanished bookies":
        gone = replace(metadata(target, ledger_id), segments=(Segment(0, ("second-bookie-1", "second-bookie-9")),))
        target.directory.update([(ledger_id, gone, 0)])
    assert verdicts(copy_batch(source, target, [ledger_id])) == {ledger_id: Verdict.COPIED}
    assert metadata(target, ledger_id).segments == (Segment(0, metadata(target, ledger_id).segments[0].ensemble),)
    environment.assert_copied([ledger_id], PAIR)


def test_another_ledger_of_the_same_id_is_left_alone(
    environment: Environment, clusters: tuple[Cluster, Cluster]
) -> None:
    """A different ledger in the target is reported and not changed, whether its metadata or only its bytes differ.

    A shorter one, or one that is still written, may belong to another Pulsar cluster that has a topic of the same name.
    """
    ids = environment.create(PAIR, count=7)
    others = [replace(PAIR, entries=21), replace(PAIR, custom={}), replace(PAIR, seed=1)]
    for ledger_id, other in zip(ids, others, strict=False):
        environment.java.create(environment.target_uri, other, ids=[ledger_id])
    environment.java.create(environment.target_uri, replace(PAIR, custom={}), ids=[ids[3]], close=False)
    environment.java.create(environment.target_uri, replace(PAIR, entries=10, seed=1), ids=[ids[4]])
    environment.java.create(environment.target_uri, PAIR, ids=[ids[5]], close=False)
    environment.java.create(environment.target_uri, replace(PAIR, sizes=(1,)), ids=[ids[6]])
    before = clusters[1].directory.read(ids)
    outcomes = copy_batch(*clusters, ids)
    assert verdicts(outcomes) == dict.fromkeys(ids, Verdict.DIFFERENT)
    details = {outcome.ledger_id: outcome.detail for outcome in outcomes}
    assert ["last_entry" in details[ids[0]], "custom" in details[ids[1]], "entry 0" in details[ids[2]]] == [True] * 3
    assert ["last_entry" in details[ids[4]], "not closed" in details[ids[5]], "length" in details[ids[6]]] == [True] * 3
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
        pytest.fail(f"not interrupted: {copy_batch(*clusters, [ledger_id, bad], check=die)}")
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


@pytest.mark.parametrize("entries", [10, PAIR.entries])
def test_copies_that_a_recovery_has_closed(
    environment: Environment, clusters: tuple[Cluster, Cluster], pair: LedgerPair, entries: int
) -> None:
    """BookKeeper adds the last entries of a copy again, and these name another confirmed entry: they are equal."""
    ledger_id = damaged(clusters[0], PAIR, {}, confirmed=lambda entry: max(-1, entry - 2))
    _begin_copy(clusters, ledger_id, entries)
    (content,) = environment.java.read(environment.target_uri, [ledger_id], recover=True)
    assert content.entries == entries
    originals, copies = (_bodies(cluster, ledger_id, entries) for cluster in clusters)
    assert originals[:-2] == copies[:-2]
    assert originals[-2] != copies[-2]

    done = Verdict.EQUAL if entries == PAIR.entries else Verdict.COPIED
    assert verdicts(copy_batch(*clusters, [ledger_id])) == {ledger_id: done}
    environment.assert_copied([ledger_id], PAIR)
    assert verdicts(compare_batch(*clusters, [ledger_id])) == {ledger_id: Verdict.EQUAL}
    assert verification(pair, f"{ledger_id}-{ledger_id}").equal == 1


@pytest.mark.parametrize("last", [15, PAIR.entries - 1])
@pytest.mark.parametrize("lost", [10, 15])
def test_copies_that_a_recovery_has_closed_above_their_end(
    environment: Environment, clusters: tuple[Cluster, Cluster], lost: int, last: int
) -> None:
    """Entries that replaced lost replicas name one that was written later: a recovery takes it for the copy's last."""
    source, target = clusters
    ledger_id = damaged(source, PAIR, {}, confirmed=lambda _: last)
    _begin_copy(clusters, ledger_id, lost)
    environment.java.read(environment.target_uri, [ledger_id], recover=True)
    closed = metadata(target, ledger_id)
    assert (closed.last_entry, closed.is_copy) == (last, False)
    assert closed.length < metadata(source, ledger_id).length

    assert verdicts(copy_batch(source, target, [ledger_id])) == {ledger_id: Verdict.COPIED}
    environment.assert_copied([ledger_id], PAIR)


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


def test_a_copy_that_cannot_be_read_is_found(environment: Environment, clusters: tuple[Cluster, Cluster]) -> None:
    """A closed copy whose bytes are lost is distinguished from an equal one, and left as it is."""
    (ledger_id,) = environment.create(PAIR)
    damaged(clusters[1], PAIR, {"second-bookie-1": [7], "second-bookie-2": [7]}, ledger_id=ledger_id)
    before = clusters[1].directory.read([ledger_id])
    for outcomes in (compare_batch(*clusters, [ledger_id]), copy_batch(*clusters, [ledger_id])):
        (outcome,) = outcomes
        assert (outcome.verdict, "in the target: entry 7" in outcome.detail) == (Verdict.UNREADABLE, True)
    assert clusters[1].directory.read([ledger_id]) == before
