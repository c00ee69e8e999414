"""The flip of one topic: the brokers' migration, and the steps that it leaves out (PIP-475, "Migration").

Brokers create the new segments without cursors of existing subscriptions (5.0.1), so a consumer that starts at the end
misses earlier messages. Subscriptions get no record, and lose their cursors at the next split or merge. If the last
step of the migration fails, regular topics still take messages, which no consumer reads.
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
    create_children,
    delete_children,
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
from models.scalable_topic.input import ClusterInput
from models.scalable_topic.results import FlippedTopic
from models.segments.layout import SegmentLayout
from models.segments.layout_check import migration_faults
from models.segments.repair import with_kept_parents
from models.segments.segment import SubscriptionKind

_TRIES = 3
# A broker also answers this if a load report creates an empty record between its check and its write.
_RECORD_EXISTS = "already scalable"
# A broker refuses: clients that cannot follow are attached, or the worker lacks the right.
_REFUSALS = (AdminConflict, AdminDenied)


@dataclass(frozen=True)
class TopicConversion:
    """Makes one topic scalable. Each step can be repeated, also after an attempt that died.

    Attributes:
        admin: of the cluster.
        store: the brokers' metadata store.
        read: reads the regular topic, which stays when it is scalable.
        guard: of the topic; checked before each change, since brokers cannot be fenced.
        change: sends requests that must not arrive late.
        each: calls a function for many items; a topic may have hundreds of partitions.
        stage: the progress of an earlier attempt.
        noted: the record of an earlier attempt; None if there was none.
        keep: keep brokers from dropping regular parents and deleting regular topics.
        await_late_requests: waits until no request of an earlier attempt can arrive any more.
        registered: returns names of all brokers.
        answering: returns names of the brokers that answer now.
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
        """Make the topic scalable, unless it already is, and do what the brokers' migration leaves out.

        Args:
            topic: the regular topic, just read; None to read it.
            force: migrate even if clients that cannot follow are connected.

        Raises:
            AdminConflict: such clients are attached; nothing has changed.
            AdminDenied: the worker's role may not make it scalable; nothing has changed.
            StoreConflict: the record is empty or broken, and an operator must decide.
            AdminError: a broker refuses, or does not answer; another attempt continues from there.
        """
        begun = time.monotonic()
        if self.stage is Stage.WITHDRAWING:  # mutant: scalable-topic/late-deletions-are-not-waited-for
            # Deletions of segments must not arrive after the segments have become part of the topic.
            self.await_late_requests()
            topic = None
        topic = topic or self.read()
        self._withdraw_old_plan(topic)
        layout, of_brokers = self._made_scalable(topic, force=force)
        # Before a broker leads the topic: recording the first subscription makes a broker the leader.
        leader_warning = _keep_parents(self.store, topic.name, self.guard.require) if self.keep else ""
        recorded = self._to_record(topic)
        self._register(topic.name, recorded)  # mutant: scalable-topic/no-records
        before = regular_parts(topic)
        ended = sum(self.each(before, self._terminated))  # mutant: scalable-topic/regular-topics-that-take-messages
        # Until the topic is terminated, clients may create more subscriptions, and partitions too.
        topic = self.read()
        ended += sum(
            self.each([partition for partition in regular_parts(topic) if partition not in before], self._terminated)
        )
        late = {name: kind for name, kind in self._to_record(topic).items() if name not in recorded}
        self._register(topic.name, late)  # mutant: scalable-topic/no-records-of-late-ones
        registered = [*recorded, *late]
        self._give_cursors(topic.name, layout, registered)  # mutant: scalable-topic/no-check-of-cursors
        # Includes previously recorded ones: subscriptions that were deleted since stay deleted in the next attempt.
        ever = {*registered, *(self.noted.registered if self.noted else ())}
        self.guard.note(stage=Stage.FLIPPED, registered=tuple(sorted(ever)), asked=())
        return FlippedTopic(
            segments=len(layout.active),
            registered=len(recorded) + len(late),
            terminated=ended,
            migrate_seconds=round(of_brokers, 3),
            seconds=round(time.monotonic() - begun, 3),
            faults=(
                *migration_faults(layout, [str(partition) for partition in regular_parts(topic)]),
                *unexpected_segment_topics(layout, before),
                *unrecordable(topic),
                *_unfinished(topic),
                *filter(None, (leader_warning,)),
            ),
        )

    def try_withdraw(self) -> bool:
        """Withdraw what an earlier attempt may have begun; return whether the topic stays regular."""
        if self.stage is Stage.CLAIMED:
            return True
        topic = self.read()
        begun = self._begun
        partitions = begun.partitions if begun else topic.partitions
        return self.withdrawal.run(topic.name, partitions, self._may_have_it) is not None

    @property
    def withdrawal(self) -> Withdrawal:
        """The withdrawal of segments and requests for a topic that stays regular."""
        return Withdrawal(
            self.store,
            self.guard,
            self.change,
            each=self.each,
            await_late_requests=self.await_late_requests,
            answering=self.answering,
            pause=self.pause,
        )

    def delete_children(self, name: TopicName, partitions: int) -> None:
        """Delete the segments that were created for a topic that stays regular."""
        delete_children(self.change, self.store, name, partitions, self.guard, each=self.each, pause=self.pause)

    def _withdraw_old_plan(self, topic: TopicInventory) -> None:
        """Delete the segments of an earlier attempt if partitions were added since."""
        before = self._begun.partitions if self._begun else topic.partitions
        if before != topic.partitions and read_scalable(self.store, topic.name).layout is None:
            self.withdrawal.run(topic.name, before, self._may_have_it)

    def _made_scalable(self, topic: TopicInventory, *, force: bool) -> tuple[SegmentLayout, float]:
        """Return the layout and the seconds of the brokers' call, 0 if the topic was already scalable."""
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
                # A broker reported the load of a new segment before another one had written the record.
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
        """Ask a broker to make the topic scalable; its answer proves nothing."""
        brokers = {*self.registered()}
        call.sent = False
        self.guard.note(stage=Stage.FLIPPING, partitions=partitions, asked=tuple(sorted(call.silent)))
        try:
            allow_creation(self.store, name, self.guard.check)
            # mutant: scalable-topic/no-segments-before-the-call
            create_children(self.change, name, partitions, subscriptions, self.guard.require, each=self.each)
            # If the attempt dies from here on, the request may have been sent.
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
            # This request, or one of another attempt, may have written the record.
            call.refusal, call.unclear = error, True
            # mutant: scalable-topic/brokers-with-the-request-are-not-waited-for
            # mutant: scalable-topic/brokers-without-the-request-are-waited-for
            if call.sent and error.sent:
                call.silent |= brokers
            self.guard.note(asked=tuple(sorted(call.silent)))

    def _left_alone(self, name: TopicName, partitions: int, call: _Call) -> bool:
        """Delete the segments of a topic that was refused; return whether it is scalable nevertheless."""
        if not call.is_refused:
            if isinstance(call.refusal, AdminServerError):
                # The failure may last; the next attempt creates the segments again.
                self._stop(name, partitions)
            return False
        if call.unclear or call.silent:
            return self.withdrawal.run(name, partitions, call.silent) is None
        # A broker has refused, and no request is in flight.
        self.delete_children(name, partitions)
        self.guard.note(stage=Stage.CLAIMED, asked=())
        return False

    def _own(self, topic: TopicInventory, record: ScalableRecord) -> SegmentLayout:
        """Return the layout, if it came from this topic."""
        # A remaining lock would keep brokers from creating the topic again after its deletion.
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
            # As late as possible: a load report since the creation of the segments would let the broker fail.
            clear_empty(self.store, name, self.guard.check)

        self.change(
            connect=lambda admin: admin.scalable_topics.names(name.namespace_path),
            fence=fence,
            change=migrate,
        )

    @property
    def _begun(self) -> TopicClaim | None:
        """The record of an earlier attempt that began with the topic; None if there was none."""
        return None if self.stage is Stage.CLAIMED else self.noted

    def _to_record(self, topic: TopicInventory) -> dict[str, SubscriptionKind]:
        return to_record(self.store, topic, self.noted.registered if self.noted else ())

    @property
    def _may_have_it(self) -> tuple[str, ...]:
        """Brokers that may still have a request of an earlier attempt."""
        return self.noted.asked if self.noted else ()

    def _stop(self, name: TopicName, partitions: int) -> None:
        """Delete the segments of a topic that stays regular for now, if possible."""
        with suppress(StoreError):
            replace(self, each=map_sequential).withdrawal.stop(name, partitions)
            # All deletions were answered: none can arrive after the next attempt has created the segments again.
            self.guard.note(stage=Stage.FLIPPING)

    def _register(self, name: TopicName, subscriptions: Mapping[str, SubscriptionKind]) -> None:
        cure = (
            ". It is tried again; if brokers never take it, delete it from the regular topic (pulsar-admin topics "
            "unsubscribe)"
        )
        record_all(self.admin, self.store, name, subscriptions, fence=self.guard.check, each=self.each, cure=cure)

    def _terminated(self, partition: TopicName) -> bool:
        """Terminate a regular topic; return false if it already was terminated."""
        if is_terminated(self.admin, partition):
            return False
        # A late request would permanently terminate another topic of the same name.
        self.change(
            connect=lambda admin: admin.topics.internal_stats(partition),
            fence=self.guard.require,
            change=lambda admin: admin.topics.terminate(partition),
        )
        if not is_terminated(self.admin, partition):
            raise StoreConflict(f"{partition} still takes messages, although its broker said that it was terminated")
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
        keep=not task.input.deletes_source,
        await_late_requests=task.cluster.await_late_requests,
        registered=task.registered,
        answering=task.answering,
        pause=task.context.pause,
    )


# Inside ---------------------------------------------------------------------------------------------------------------


@dataclass
class _Call:
    """The request to make a topic scalable, and its result.

    Attributes:
        silent: names of brokers that may still have a request, since it was not answered.
        unclear: whether a request may have been carried out.
        sent: whether the last request was sent; the calls before it may fail.
        refusal: the error of the last request.
        seconds: duration of the last request; 0 if it was refused.
    """

    silent: set[str]
    unclear: bool
    sent: bool = False
    refusal: AdminError | None = None
    seconds: float = 0.0

    @property
    def is_refused(self) -> bool:
        """Whether a broker has refused."""
        return isinstance(self.refusal, _REFUSALS)

    @property
    def found_record(self) -> bool:
        """Whether a broker refused because of a record; if that is empty, the request can be sent again."""
        return isinstance(self.refusal, AdminConflict) and _RECORD_EXISTS in self.refusal.reason


def _unfinished(topic: TopicInventory) -> list[str]:
    """Return a description of the transactions that were open when a regular topic was terminated."""
    return [
        f"transactions were open when {transactions} was terminated: consumers get neither its messages nor later ones"
        for transactions in open_transactions(topic)
    ]


def _keep_parents(store: CasStore, topic: TopicName, fence: Callable[[], object]) -> str:
    """Mark the regular parents of a topic, so that brokers never drop or delete them; idempotent.

    Brokers check once a minute whether all subscriptions have consumed a regular parent, and the retention has ended.
    Then they drop it from the layout, and delete the regular topic (5.0.1). The leader of a
    topic uses the layout that it has read, so the topic must not have a leader.

    Args:
        store: the brokers' metadata store.
        topic: the scalable one.
        fence: raises if another attempt is in charge; called before the change.

    Returns:
        Why the parents cannot be marked; empty if they are.

    Raises:
        StoreConflict: the topic is not scalable any more.
        StoreContention: the record keeps changing.
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
