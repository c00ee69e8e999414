"""How one topic becomes scalable: the brokers' migration, and at once all that it leaves out (PIP-475, "Migration").

Brokers make new segments without cursors of the subscriptions that there are (5.0.1), so a consumer that begins at the
end misses what was sent before it came. Subscriptions get no record: at the next split or merge they lose their places.
A migration whose last step fails leaves regular topics that take messages which no consumer reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from activities.lifecycle.context import Cancelled
from activities.lifecycle.parallel import ItemMapper, map_sequential
from activities.pulsar.namespace_guard import RecordGuard
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.conversion.name_taken import foreign_layout, name_taken_problem
from activities.scalable_topic.conversion.segments import (
    TopicGuard,
    Withdrawal,
    make_children,
    take_back_children,
    unexpected_segment_topics,
)
from activities.scalable_topic.regular_topic import (
    is_terminated,
    open_transactions,
    regular_parts,
    unrecordable,
    with_types,
)
from activities.scalable_topic.subscriptions import give_cursors, record_all, to_record
from clients.cas.store import CasStore, retry
from clients.errors import StoreConflict, StoreError
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminDenied, AdminError, AdminServerError, AdminUnreachable
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.creation_locks import allow_creation
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import (
    RecordState,
    ScalableRecord,
    clear_empty,
    controller_of,
    read_scalable,
    set_while_none_leads,
    unreadable,
)
from models.scalable_topic.claims import Stage, TopicClaim
from models.scalable_topic.input import ClusterInput, cleans_up
from models.scalable_topic.results import FlippedTopic
from models.segments.layout import SegmentLayout
from models.segments.layout_check import migration_faults
from models.segments.repair import with_kept_parents
from models.segments.segment import SubscriptionKind

_TRIES = 3
# What a broker also says when a report of load makes an empty record between its look and its write.
_RECORD_EXISTS = "already scalable"
# A broker has decided not to do it: clients that cannot follow are attached, or the worker lacks the right.
_REFUSALS = (AdminConflict, AdminDenied)


@dataclass(frozen=True)
class TopicConversion:
    """Makes one topic scalable. Each step can be done again, also behind one that died.

    Attributes:
        admin: of the cluster.
        store: the brokers' metadata store.
        read: reads the regular topic, which stays when it is scalable.
        guard: of the topic; asked before each change, since brokers cannot be fenced.
        change: makes what must not arrive late.
        each: does the same for many items; a topic may have hundreds of partitions.
        stage: how far an earlier attempt came.
        noted: what it has noted; None where there was none.
        keep: have brokers never drop regular parents, nor delete regular topics.
        await_late_requests: waits until nothing arrives any more that one may have sent.
        registered: returns names of all brokers.
        answering: returns names of those that answer now.
        pause: waits for seconds.
    """

    admin: PulsarAdmin
    store: CasStore
    read: Callable[[], TopicInventory]
    guard: TopicGuard
    change: ChangeOrNever
    each: ItemMapper = map_sequential
    stage: Stage = Stage.CLAIMED
    noted: TopicClaim | None = None
    keep: bool = True
    await_late_requests: Callable[[], object] = lambda: None
    registered: Callable[[], Sequence[str]] = tuple
    answering: Callable[[], Collection[str]] = frozenset
    pause: Callable[[float], object] = time.sleep

    def run(self, topic: TopicInventory | None = None, *, force: bool = False) -> FlippedTopic:
        """Make the topic scalable, unless it is, and complete what that leaves out.

        Args:
            topic: the regular one as it was right before; None to read it.
            force: also under clients that cannot follow.

        Raises:
            AdminConflict: such clients are attached; nothing has changed.
            AdminDenied: the worker's role may not make it scalable; nothing has changed.
            StoreConflict: the record is empty or broken, and people must decide.
            AdminError: a broker refuses, or does not answer; another attempt continues from there.
        """
        begun = time.monotonic()
        if self.stage is Stage.WITHDRAWING:  # mutant: scalable-topic/late-deletions-are-not-waited-for
            # What deletes segments must not arrive when they have become the topic's own.
            self.await_late_requests()
            topic = None
        topic = topic or self.read()
        self._leave_old_plan(topic)
        layout, of_brokers = self._made_scalable(topic, force=force)
        # Before a broker leads the topic, which the first record of a subscription has one do.
        led = _keep_parents(self.store, topic.name, self.guard.require) if self.keep else ""
        known = self._to_record(topic)
        self._register(topic.name, known)  # mutant: scalable-topic/no-records
        before = regular_parts(topic)
        ended = sum(self.each(before, self._terminated))  # mutant: scalable-topic/regular-topics-that-take-messages
        # Until the topic has ended, and is scalable for all brokers, clients may make more of them, and partitions too.
        topic = self.read()
        ended += sum(self.each([part for part in regular_parts(topic) if part not in before], self._terminated))
        late = {name: kind for name, kind in self._to_record(topic).items() if name not in known}
        self._register(topic.name, late)  # mutant: scalable-topic/no-records-of-late-ones
        registered = [*known, *late]
        self._give_cursors(topic.name, layout, registered)  # mutant: scalable-topic/no-check-of-cursors
        # With those of before: what has been deleted since stays deleted for the next attempt too.
        ever = {*registered, *(self.noted.registered if self.noted else ())}
        self.guard.note(stage=Stage.FLIPPED, registered=tuple(sorted(ever)), asked=())
        return FlippedTopic(
            segments=len(layout.active),
            registered=len(known) + len(late),
            terminated=ended,
            migrate_seconds=round(of_brokers, 3),
            seconds=round(time.monotonic() - begun, 3),
            faults=(
                *migration_faults(layout, [str(part) for part in regular_parts(topic)]),
                *unexpected_segment_topics(layout, before),
                *unrecordable(topic),
                *_unfinished(topic),
                *filter(None, (led,)),
            ),
        )

    def withdrawn(self) -> bool:
        """Take back what an earlier attempt may have begun; whether the topic stays regular."""
        if self.stage is Stage.CLAIMED:
            return True
        topic = self.read()
        begun = self._begun
        partitions = begun.partitions if begun else topic.partitions
        return self.withdrawal.run(topic.name, partitions, self._may_have_it) is not None

    @property
    def withdrawal(self) -> Withdrawal:
        """What takes back that which was made for a topic that stays regular."""
        return Withdrawal(
            self.store,
            self.guard,
            self.change,
            each=self.each,
            await_late_requests=self.await_late_requests,
            answering=self.answering,
            pause=self.pause,
        )

    def take_back(self, name: TopicName, partitions: int) -> None:
        """Delete what was made for a topic that stays regular."""
        take_back_children(self.change, self.store, name, partitions, self.guard, each=self.each)

    def _leave_old_plan(self, topic: TopicInventory) -> None:
        """Where somebody has added partitions since an earlier attempt, what that has made is nobody's."""
        before = self._begun.partitions if self._begun else topic.partitions
        if before != topic.partitions and read_scalable(self.store, topic.name).layout is None:
            self.withdrawal.run(topic.name, before, self._may_have_it)

    def _made_scalable(self, topic: TopicInventory, *, force: bool) -> tuple[SegmentLayout, float]:
        """Return the layout, and the seconds of the brokers' own call; 0 where the topic was scalable."""
        name, partitions = topic.name, topic.partitions
        subscriptions = [*self._to_record(topic)]
        call = _Call({*self._may_have_it}, unclear=self.stage is not Stage.CLAIMED)
        for _ in range(_TRIES):
            record = read_scalable(self.store, name)
            if record.layout is not None:
                return self._own(topic, record), call.seconds
            if record.state is RecordState.BROKEN or (call.is_refused and not call.found_record):
                break
            if record.state is RecordState.EMPTY:
                # A broker told the load of a new segment before another had written the record.
                clear_empty(self.store, name, self.guard.check)
            self._ask(name, partitions, subscriptions, call, force=force)
        record = read_scalable(self.store, name)
        if record.layout is None and record.state is not RecordState.BROKEN and call.refusal is not None:
            if not self._left_alone(name, partitions, call):
                raise call.refusal
            record = read_scalable(self.store, name)
        if record.layout is not None:
            return self._own(topic, record), call.seconds
        raise StoreConflict(unreadable(name, record.state)) from call.refusal

    def _ask(self, name: TopicName, partitions: int, subscriptions: Sequence[str], call: _Call, *, force: bool) -> None:
        """Ask a broker to make the topic scalable; what it says proves nothing."""
        brokers = {*self.registered()}
        call.sent = False
        self.guard.note(stage=Stage.FLIPPING, partitions=partitions, asked=tuple(sorted(call.silent)))
        try:
            allow_creation(self.store, name, self.guard.check)
            # mutant: scalable-topic/no-segments-before-the-call
            make_children(self.change, name, partitions, subscriptions, self.guard.require, each=self.each)
            # An attempt that dies from here on does not know whether it was sent.
            self.guard.note(asked=tuple(sorted(call.silent | brokers)))
            begun = time.monotonic()
            self._migrate(name, call, force=force)
            call.seconds = time.monotonic() - begun
        except Cancelled:
            self._stop(name, partitions)  # mutant: scalable-topic/a-cancelled-flip-leaves-segments
            raise
        except _REFUSALS as error:
            call.refusal = error
        except AdminUnreachable as error:
            # It may have written the record, and another attempt may have.
            call.refusal, call.unclear = error, True
            # mutant: scalable-topic/brokers-with-the-request-are-not-waited-for
            # mutant: scalable-topic/brokers-without-the-request-are-waited-for
            if call.sent and error.sent:
                call.silent |= brokers
            self.guard.note(asked=tuple(sorted(call.silent)))

    def _left_alone(self, name: TopicName, partitions: int, call: _Call) -> bool:
        """Take back what was made for a topic that was refused; returns whether it is scalable all the same."""
        if not call.is_refused:
            if isinstance(call.refusal, AdminServerError):
                # That may last; the next attempt makes it again.
                self._stop(name, partitions)
            return False
        if call.unclear or call.silent:
            return self.withdrawal.run(name, partitions, call.silent) is None
        # A broker has refused it, and no request is on its way.
        self.take_back(name, partitions)
        self.guard.note(stage=Stage.CLAIMED, asked=())
        return False

    def _own(self, topic: TopicInventory, record: ScalableRecord) -> SegmentLayout:
        """Return the layout, if the topic has become what it describes."""
        # What was to keep brokers from it would keep them from it indefinitely once the topic is deleted.
        # mutant: scalable-topic/a-topic-that-is-scalable-stays-barred
        allow_creation(self.store, topic.name, self.guard.check)
        if record.layout is None or foreign_layout(self.store, record, topic) is not None:
            raise StoreConflict(name_taken_problem(topic.name))
        return record.layout

    def _migrate(self, name: TopicName, call: _Call, *, force: bool) -> None:
        def migrate(admin: PulsarAdmin) -> None:
            call.sent = True
            admin.scalable_topics.migrate(name, force=force)

        def fence() -> None:
            self.guard.require()
            # A report of load that came since segments were made would have the brokers fail; as late as can be.
            clear_empty(self.store, name, self.guard.check)

        self.change(
            connect=lambda admin: admin.scalable_topics.names(name.namespace_path),
            fence=fence,
            change=migrate,
        )

    @property
    def _begun(self) -> TopicClaim | None:
        """What an earlier attempt has noted that began with the topic; None where none did."""
        return None if self.stage is Stage.CLAIMED else self.noted

    def _to_record(self, topic: TopicInventory) -> dict[str, SubscriptionKind]:
        return to_record(self.store, topic, self.noted.registered if self.noted else ())

    @property
    def _may_have_it(self) -> tuple[str, ...]:
        """Brokers that may still have a request of an earlier attempt."""
        return self.noted.asked if self.noted else ()

    def _stop(self, name: TopicName, partitions: int) -> None:
        """Leave no segments to a topic that stays regular for now, if that can be done."""
        with suppress(StoreError):
            replace(self, each=map_sequential).withdrawal.stop(name, partitions)
            # All deletions were answered: none can arrive when the next attempt has made the segments again.
            self.guard.note(stage=Stage.FLIPPING)

    def _register(self, name: TopicName, subscriptions: Mapping[str, SubscriptionKind]) -> None:
        cure = (
            ". It is tried again; if brokers never take it, delete it from the regular topic (pulsar-admin topics "
            "unsubscribe)"
        )
        record_all(self.admin, self.store, name, subscriptions, fence=self.guard.check, each=self.each, cure=cure)

    def _terminated(self, part: TopicName) -> bool:
        """Return whether a regular topic had to be ended."""
        if is_terminated(self.admin, part):
            return False
        # A late one would end another topic of the same name for good.
        self.change(
            connect=lambda admin: admin.topics.internal_stats(part),
            fence=self.guard.require,
            change=lambda admin: admin.topics.terminate(part),
        )
        if not is_terminated(self.admin, part):
            raise StoreConflict(f"{part} still takes messages, although its broker said that it was terminated")
        return True

    def _give_cursors(self, name: TopicName, layout: SegmentLayout, subscriptions: Sequence[str]) -> None:
        fence = self.guard.require
        give_cursors(self.admin, self.store, name, layout.active, subscriptions, fence=fence, each=self.each)


def conversion_of(
    task: ClusterTask[ClusterInput],
    store: CasStore,
    guard: RecordGuard[TopicClaim],
    name: TopicName,
    record: TopicClaim,
    *,
    stage: Stage = Stage.FLIPPING,
) -> TopicConversion:
    """Return the conversion of a topic on behalf of an attempt that has taken its record; see `TopicConversion`."""
    return TopicConversion(
        task.admin,
        store,
        lambda: with_types(task.read_topic(name), record.types),
        guard,
        task.cluster.change_or_never,
        each=task.each,
        stage=stage,
        noted=record,
        keep=not cleans_up(task.input),
        await_late_requests=task.cluster.await_late_requests,
        registered=task.registered,
        answering=task.answering,
        pause=task.context.pause,
    )


# Inside ---------------------------------------------------------------------------------------------------------------


@dataclass
class _Call:
    """The brokers' own call to make a topic scalable, and what came of it.

    Attributes:
        silent: names of brokers that may have it still, since it was not answered.
        unclear: whether something that was asked for may have been done.
        sent: whether the last one was sent; what is asked for before it may fail.
        refusal: of the last one.
        seconds: that the last one took; 0 where it was refused.
    """

    silent: set[str]
    unclear: bool
    sent: bool = False
    refusal: AdminError | None = None
    seconds: float = 0.0

    @property
    def is_refused(self) -> bool:
        """Whether a broker has decided not to do it."""
        return isinstance(self.refusal, _REFUSALS)

    @property
    def found_record(self) -> bool:
        """Whether a broker refused for a record: if that turns out to be empty, the request can be sent again."""
        return isinstance(self.refusal, AdminConflict) and _RECORD_EXISTS in self.refusal.reason


def _unfinished(topic: TopicInventory) -> list[str]:
    """Return transactions that were open when a regular topic was ended, in words."""
    return [
        f"transactions were open when {transactions} was ended: consumers do not get their messages, nor any after them"
        for transactions in open_transactions(topic)
    ]


def _keep_parents(store: CasStore, topic: TopicName, fence: Callable[[], object]) -> str:
    """Have brokers never drop the regular parents of a topic, nor delete the regular topic; harmless when done twice.

    Brokers check once a minute whether all subscriptions have consumed a regular parent, and the retention has ended.
    Then they drop it from the layout, and delete the regular topic (5.0.1). A broker that leads the topic uses the
    layout that it has read, so none may.

    Args:
        store: the brokers' metadata store.
        topic: the scalable one.
        fence: raises where another attempt is in charge; asked before the change.

    Returns:
        why that cannot be done, in words; empty where it is done.

    Raises:
        StoreConflict: the topic is not scalable any more.
        StoreContention: the record changes again and again.
    """

    def keep() -> str:
        record = read_scalable(store, topic)
        if record.layout is None:
            raise StoreConflict(f"the record of {topic} is {record.state} now")
        wanted = with_kept_parents(record.layout)
        if wanted == record.layout:
            return ""
        if leader := controller_of(store, topic):
            return (
                f"{leader} led {topic} before its regular topic could be marked, and deletes that once every "
                "subscription has consumed it"
            )
        fence()
        set_while_none_leads(store, topic, wanted, record.version)
        return ""

    return retry(keep, topic.scalable_path)
