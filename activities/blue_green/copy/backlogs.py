"""SEED, and the final copy in QUIESCE: copy backlogs of idle subscriptions to green, with `idle_subscriptions: "copy"`.

SEED copies and compares during traffic. The final copy copies and compares the rest while writes are held back, and
places the cursors. DRAIN skips the backlog on blue, and only for subscriptions that the record of the copy names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import TypeVar

from activities.blue_green.context import AnyBlueGreenTask, BatchTask, NamespaceGuard
from activities.blue_green.copy.copied_cursors import compare_cursors, compare_entries, place_cursors
from activities.blue_green.copy.subscription_copy import (
    Idle,
    SubscriptionCopy,
    copy_tail,
    has_uncopied_entries,
    read_managed_ledger,
    read_through_broker,
    seed_topics,
)
from activities.blue_green.namespace_redirect import has_begun_flip
from activities.blue_green.saved_clients import saved_clients
from activities.blue_green.topics import check_topic, others_of, topics_of
from activities.lifecycle.step import step
from activities.pulsar.ledger_ids import ledgers_of
from clients.cas.store import CasReader, CasStore
from clients.errors import FinalError, StoreConflict
from clients.pulsar.names import TopicName
from clients.pulsar.wire.position import EARLIEST
from clients.zookeeper.coordination import CoordinationReader
from models.base import Result
from models.blue_green.claims import FLIPPED
from models.blue_green.copies import CopyFigures, CopyProof, CursorFigures, FinalCopy
from models.blue_green.input import IdleSubscriptions
from models.lifecycle.claim import namespace_record
from models.lifecycle.status import ProgressTask, ProgressUnit
from models.store_url import StoreUrl
from spark.blue_green.copy_record import recorded_copies
from spark.blue_green.positions import count_after
from spark.blue_green.spec import CopyEnds, TopicCopy
from spark.blue_green.tasks import copy_unit

# A round copies messages that were sent during the previous round; the final copy does the rest.
_SEED_ROUNDS = 5
_LITTLE = 1_000
_NAMED = 5


ResultT = TypeVar("ResultT", bound=Result)


class _LateError(Exception):
    """The final copy takes longer than writes may be held back."""


@step(BatchTask)
def seed(task: BatchTask) -> CopyFigures:
    """Copy the backlogs of idle subscriptions during traffic, and compare the copies.

    Raises:
        StoreConflict: a copy differs from blue; or see `seed_topics`.
    """
    guards, store = task.guards, task.store
    rounds: list[CopyFigures] = []
    with task.paced(task.input.auto_throttle, partial(_hold, task), task.input.blue.credentials):
        for guard, idle in _idle(task, guards, store).items():
            guard.note(throttle=task.input.copy_throttle)
            copy = _copy_of(task, guard)
            for _ in range(_SEED_ROUNDS):
                figures = seed_topics(copy, idle)
                rounds.append(figures)
                _require_equal(compare_entries(copy, idle))
                if figures.entries <= _LITTLE:
                    break
    # Rounds see the same topics again.
    return _sum(rounds).model_copy(update={"topics": max((figures.topics for figures in rounds), default=0)})


def _hold(task: BatchTask, held: str) -> None:
    # With a session of its own: another thread uses the step's.
    with task.blue.store() as store:
        for namespace in task.input.batch:
            NamespaceGuard(store, task.attempt, namespace).note(held=held)


@step(BatchTask)
def final_copy(task: BatchTask) -> FinalCopy:
    """Copy the rest while writes are held back, place the cursors, and compare; stop after `quiesce_timeout`.

    Raises:
        StoreConflict: a copy or a cursor differs; or see `place_cursors`.
    """
    return _final_copy(task, task.guards, task.store)


def _final_copy(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> FinalCopy:
    begun = time.monotonic()
    end = begun + task.input.quiesce_timeout.total_seconds()

    def check() -> None:
        task.context.check()
        if time.monotonic() > end:
            raise _LateError

    copied: list[CopyFigures] = []
    cursors: list[CursorFigures] = []
    proofs: list[CopyProof] = []
    in_time = True
    try:
        for guard, before in _idle(task, guards, store).items():
            # Cursors may move from here on: until the end DRAIN skips nothing, and the next attempt repeats all.
            guard.note(copied_in="")  # mutant: blue-green/half-finished-copy-is-relied-upon
            # Subscriptions that have consumers now are drained on blue.
            idle = _still_idle(task, before)
            copy = _copy_of(task, guard, check, urgent=True)
            copied.append(copy_tail(copy, idle))
            _require_equal(compare_entries(copy, idle))
            cursors.append(place_cursors(copy, idle))
            proof = compare_cursors(copy, idle)
            _require_equal(proof.differences)
            proofs.append(proof)
            guard.note(copied_in=task.attempt.run_id)
    except _LateError:
        in_time = False
    return FinalCopy(
        seconds=round(time.monotonic() - begun, 3),
        copied=_sum(copied),
        cursors=reduce(_plus, cursors, CursorFigures()),
        proof=reduce(_plus, proofs, CopyProof()),
        in_time=in_time,
    )


def repeat_final_copy(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> FinalCopy | None:
    """Copy the messages that came since `final_copy`, right before the flag; return None if none came.

    A copy that a lost attempt left half-finished is repeated: it may have set cursors for other consumers than now. So
    is the copy of a namespace with subscriptions that came since: they have no cursor on green yet.

    A producer that connects while writes are quiet gets one message through, and so does each at the next turn of the
    limit, if `final_copy` took long or its worker was lost.

    Args:
        task: of the attempt.
        guards: of the batch.
        store: blue's metadata store.

    Raises:
        StoreConflict: it took too long; or see `final_copy`.
    """
    late = [
        guard.namespace
        for guard, idle in _idle(task, guards, store).items()
        if guard.require().copied_in != task.attempt.run_id  # mutant: blue-green/half-finished-copy-is-not-repeated
        or has_uncopied_entries(_copy_of(task, guard), idle)
    ]
    if not late:
        return None
    copy_result = _final_copy(task, guards, store)
    if not copy_result.in_time:
        raise StoreConflict(
            f"nothing is flipped: messages came after the copies of {', '.join(late)}, and copying them took "
            f"{copy_result.seconds:.0f} s, longer than quiesce_timeout; increase it"
        )
    return copy_result


def adopt_copies(task: AnyBlueGreenTask, guard: NamespaceGuard, store: CasReader) -> None:
    """Complete the records of a namespace that stays on blue: add the copies that came to green after the last record.

    Unless DRAIN has skipped backlogs on blue, no subscription continues with a copy. Entries that are not copies, and
    topics with other producers, are left as they are.
    """
    if not (topics := recorded_copies(store, guard.namespace)):
        return
    copy = _copy_of(task, guard, urgent=True)
    skipped = guard.require().skipped

    def adopt(topic: TopicName) -> None:
        copy.fence()
        # What fails the same way again stays without a record, and counts as the messages of clients.
        with suppress(FinalError):
            _adopt_unrecorded(task, copy, topic)
        recorded = copy.record(topic)
        # mutant: blue-green/copies-that-drain-relied-upon-are-given-up
        if recorded and recorded.record.copied_subscriptions and not skipped:
            copy.note(topic, recorded, copied_subscriptions=(), copied_in="")

    task.each(topics, adopt)


def _adopt_unrecorded(task: AnyBlueGreenTask, copy: SubscriptionCopy, topic: TopicName) -> None:
    """Compare entries of green without a record with blue, and add them to the record."""
    stats = check_topic(task.green.admin, topic).stats
    recorded = copy.record(topic)
    # The copy becomes the only producer of the topic, which closes others.
    # mutant: blue-green/rollback-closes-producers-of-clients
    if stats is None or recorded is None or others_of(stats.publishers):
        return
    last = recorded.record.positions.last
    _, ledgers = read_managed_ledger(task.green.admin, topic)
    if stats.publishers or count_after(ledgers, last[1] if last else EARLIEST):
        inside, lengths = read_managed_ledger(task.blue.admin, topic)
        topic_copy = TopicCopy(topic, lengths, most=0, through_broker=read_through_broker(inside))
        copy_unit(copy.ends, topic_copy, copy.check)


def _idle(task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], store: CasStore) -> dict[NamespaceGuard, Idle]:
    """Return the subscriptions that had no consumer in LOAD, of namespaces that are not flipped yet."""
    if task.input.idle_subscriptions is not IdleSubscriptions.COPY:
        return {}
    idle_by_namespace: dict[NamespaceGuard, Idle] = {}
    for guard in guards:
        # If an attempt was lost between the record and the flag, the copy is still to be done.
        claim = guard.require()
        # Once DRAIN skips backlogs on blue, the cursors there no longer say what was consumed.
        is_skipped = claim.stage in FLIPPED and claim.skipped
        # Clients may be on green, so another copy may fail, and DRAIN would not rely upon the one before.
        # mutant: blue-green/copy-of-what-was-terminated
        if is_skipped or has_begun_flip(task, guard, store):
            continue
        noted = {
            TopicName.parse(topic): names
            for topic, clients in saved_clients(store, guard.namespace).items()
            if (names := tuple(name for name, count in clients.consumers.items() if not count))
        }
        # All subscriptions must start after the copies of an earlier run, even if none is idle any more.
        copied = dict.fromkeys(recorded_copies(store, guard.namespace), ())
        there = {*topics_of(task.blue.admin, guard.namespace)}
        # mutant: blue-green/backlogs-of-deleted-topics
        if idle := {topic: names for topic, names in {**copied, **noted}.items() if topic in there}:
            idle_by_namespace[guard] = idle
    return idle_by_namespace


def _still_idle(task: AnyBlueGreenTask, idle: Idle) -> Idle:
    def names(topic: TopicName) -> tuple[str, ...]:
        stats = check_topic(task.blue.admin, topic).stats
        there: Mapping[str, object] = (
            {name: sub for name, sub in stats.client_subscriptions.items() if not sub.consumers} if stats else {}
        )
        return tuple(name for name in idle[topic] if name in there)

    # Includes topics without idle subscriptions: they have a copy, and all their subscriptions must start after it.
    return dict(zip(idle, task.each(idle, names), strict=True))


def _copy_of(
    task: AnyBlueGreenTask, guard: NamespaceGuard, check: Callable[[], None] | None = None, *, urgent: bool = False
) -> SubscriptionCopy:
    """Return a copy on behalf of a namespace's record, which is the claim that its tasks look at."""
    runtime, context, input = task.runtime, task.context, task.input
    ends = CopyEnds(
        store=input.blue.store,
        attempt=task.attempt,
        blue_url=input.blue.brokers_url,
        green_url=input.green.brokers_url,
        green_admin=input.green.admin_urls,
        ledgers=_ledgers(task),
        access=runtime.stores_of(input.blue.credentials),
        blue_access=runtime.wire_of(input.blue.credentials),
        green_access=runtime.wire_of(input.green.credentials),
        claim=namespace_record(guard.namespace),
        urgent=urgent,
    )
    return SubscriptionCopy(
        engine=runtime.engine,
        tag=task.tag(),
        ends=ends,
        blue=task.blue.admin,
        green=task.green.admin,
        fence=lambda: (guard.require(), None)[1],
        check=check or context.check,
        progress=lambda done, total: context.progress(
            ProgressTask.COPY, ProgressUnit.ENTRIES, done, total, detail=guard.namespace
        ),
    )


def _ledgers(task: AnyBlueGreenTask) -> StoreUrl | None:
    """Return where the ledgers of blue are; None if they cannot be read past its brokers."""
    root = ledgers_of(task.input.blue.store)
    access = task.runtime.stores_of(task.input.blue.credentials).to(root)
    if root.scheme != "zk":
        return None
    with CoordinationReader(root, access=access.zookeeper, timeout=access.timeout) as reader:
        return root if reader.exists("/available") else None


def _require_equal(differences: Sequence[str]) -> None:
    if differences:
        more = f" and {len(differences) - _NAMED} more" if len(differences) > _NAMED else ""
        raise StoreConflict(
            f"copies on the new cluster differ: {'; '.join(differences[:_NAMED])}{more}. Nothing is flipped; delete "
            "these topics there, and try again"
        )


def _sum(parts: Sequence[CopyFigures]) -> CopyFigures:
    return reduce(_plus, parts, CopyFigures())


def _plus(first: ResultT, second: ResultT) -> ResultT:
    mine, theirs = first.model_dump(), second.model_dump()
    return type(first).model_validate({name: value + theirs[name] for name, value in mine.items()})
