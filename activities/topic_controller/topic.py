"""A controlled topic as a whole: opened or created, its subscriptions, its statistics, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.coverage import survey
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.releases import check_releases, read_broker
from activities.topic_controller.context import ControllerTask, LeaderTask
from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.observe import recover_sessions
from activities.topic_controller.publish import publish, require_latest_layout
from activities.topic_controller.records import record_path
from activities.topic_controller.segments import (
    create_cursors,
    create_segments,
    delete_cursors,
    delete_topic,
    ensure_cursors,
    ensure_segments,
    has_own_layout_topic,
    subscriptions_by_segment,
    taken_by_others,
)
from activities.topic_controller.split_merge import complete_last
from clients.errors import StoreConflict, StoreError
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound
from clients.pulsar.admin.topics import EARLIEST, LATEST, TopicStats
from clients.pulsar.names import TopicName
from models.broker_settings import subscription_expiration
from models.lifecycle.failures import some
from models.lifecycle.input import Accepted
from models.lifecycle.status import WaitKind
from models.segments.segment import LayoutError, SegmentInfo
from models.topic_controller.input import (
    KIND,
    ControllerUrls,
    Deletion,
    InitialPosition,
    SegmentRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.record import ControlledLayout
from models.topic_controller.state import OpenedTopic, OpenRequest, PreparedChange, SegmentStats, TopicReport

# Seconds that clients must leave what is being deleted, and between two looks whether they have.
_CLIENTS_LEAVE_TIMEOUT, _LOOK = 10.0, 0.1
_SHOWN = 3


@step(ControllerTask, name="open", needs_open_run=True)
def open_topic(task: ControllerTask, opening: OpenRequest) -> OpenedTopic:
    """Find the topic, or create it; what an earlier attempt did not make is made.

    Args:
        task: an attempt of the controller.
        opening: whether to look for sessions.

    Raises:
        StoreConflict: there is an ordinary topic of this name, its namespace cannot have such topics, the release of
            the brokers is not supported, the topic is being deleted, or clients have a newer layout.
    """
    recall = opening.recover_sessions
    if recall:
        # A later run is of the same cluster.
        task.require_cluster()
    task.take_lease()
    record, make, findings = task.records.read(), ensure_segments, Findings()
    if record is None:
        make = create_segments
        try:
            new = _new_layout(task, findings)
        except StoreConflict:
            # A start that is refused leaves nothing behind, and the next one follows no lost attempt.
            task.lease.release_unused()
            raise
        record = task.records.create(new)
    elif recall:
        # A controller that could not continue with a newer release would stop its topic.
        accepted = Accepted(untested_versions=True)
        check_releases(findings, KIND, [read_broker("the broker that answers", task.admin)], accepted=accepted)
        # What became of the steps of a run that was reset, or of another one, nobody knows here.
        task.lease.note_lost()
        if not record.deleting:
            require_latest_layout(task, record)
    subscriptions = task.records.subscriptions()
    if not record.deleting:
        make(task, record.active, subscriptions)
        if recall:
            complete_last(task, record)
        else:
            # The run before has completed what it began.
            publish(task)
    found = recover_sessions(task, record, subscriptions) if recall and not record.deleting else {}
    # A topic that is there is led on, whatever its brokers are by now.
    warnings = (*(blocker.cause for blocker in findings.blockers), *findings.warnings)
    return OpenedTopic(record=record, subscriptions=subscriptions, sessions=found, warnings=warnings)


def _new_layout(task: ControllerTask, findings: Findings) -> ControlledLayout:
    """Return the first layout of a topic that can be created; changes nothing.

    Raises:
        StoreConflict: see `open_topic`.
    """
    _check_cluster(task, findings)  # mutant: coverage/controllers-are-not-compared
    if findings.blockers:
        raise StoreConflict(f"{task.name} cannot be created: {'; '.join(map(str, findings.blockers))}")
    _require_free(task)
    now = time.time_ns() // 1_000_000
    given = task.input
    new = ControlledLayout.created(given.segments, given.properties, now, given.controller_urls)
    _require_no_leftovers(task, new)
    return new


@step(LeaderTask)
def publish_controller_urls(task: LeaderTask, request: ControllerUrls, epoch: int) -> PreparedChange:
    """Keep and publish other addresses of the controller; harmless when done twice.

    Args:
        task: an attempt of the controller.
        request: the addresses; none for nowhere.
        epoch: of the layout with them, as the workflow expects it; one of another epoch is answered.

    Raises:
        StoreConflict: the topic is deleted, or a change of segments is under way.
    """

    def directed(found: ControlledLayout) -> ControlledLayout:
        if found.deleting:
            raise StoreConflict(f"{task.name} is being deleted")
        try:
            return found.with_controller_urls(request.urls)
        except LayoutError as error:
            raise StoreConflict(f"the addresses of the controller cannot be changed now: {error}") from error

    record = task.records.change(directed)
    publish(task)
    return PreparedChange(record=None if record.epoch == epoch else record)


@step(LeaderTask)
def subscribe(task: LeaderTask, request: SubscriptionRequest) -> None:
    """Give a subscription a cursor on each segment, and note it.

    A new one starts with what sealed segments still have, or with what comes next, as is asked. One that has cursors on
    active segments is not new: it gets those that it lacks so that nothing is lost, and nothing old comes.

    Raises:
        StoreConflict: it is there, and is consumed in another way, or brokers refuse it.
    """
    _end_leaving(task, request.name)
    record, is_new = _record(task), request.name not in task.records.subscriptions()
    segments = record.segments.values()
    before = subscriptions_by_segment(task, segments)
    is_fresh = not any(request.name in (before[one] or ()) for one in record.active)
    is_latest = request.initial_position is InitialPosition.LATEST
    task.records.register(request.name, request.kind)
    try:
        # Sealed segments first: where an attempt dies amid this, the next one finds no cursor on an active segment, or
        # all of them on sealed ones.
        sealed = [segment for segment in segments if segment.sealed]
        create_cursors(task, sealed, request.name, EARLIEST if is_fresh and not is_latest else LATEST)
        create_segments(task, record.active, [request.name], position=LATEST if is_fresh and is_latest else EARLIEST)
    except AdminConflict:
        # A limit of the namespace, for example: places on some segments alone would only keep messages.
        if is_new:
            _leave(task, request.name, [one for one, there in before.items() if request.name not in (there or ())])
        raise


@step(LeaderTask, name="ensure")
def ensure_segment(task: LeaderTask, request: SegmentRequest) -> None:
    """See that a segment has its topic, with places of subscriptions; harmless when done twice.

    Raises:
        StoreConflict: the layout does not name it, or it is sealed and its topic is gone.
    """
    segment = _record(task).segments.get(request.segment)
    if segment is None:
        raise StoreConflict(f"{task.name} has no segment {request.segment}")
    name = segment_topic(task.name, segment.descriptor)
    if segment.active:
        create_segments(task, [segment], request.subscriptions)
    else:
        _require_kept(task, name)
    ensure_cursors(task, [segment], request.subscriptions)


@step(LeaderTask)
def unsubscribe(task: LeaderTask, request: Unsubscription) -> None:
    """Delete a subscription with its places on all segments; harmless where it is gone."""
    name, segments = request.name, _record(task).segments.values()
    topics = [segment_topic(task.name, segment.descriptor) for segment in segments]
    _await_clients(
        task, topics, lambda stats: name in stats.subscriptions and bool(stats.subscriptions[name].consumers)
    )
    _leave(task, name, segments)


@step(LeaderTask)
def delete(task: LeaderTask, deletion: Deletion) -> None:
    """Delete the topic with all that it holds; another attempt continues where one died.

    It takes a minute longer where an attempt was given up right before: the topic may be created again behind it.

    Raises:
        StoreConflict: clients are connected, and it is not forced, or somebody has removed its record.
    """
    record = task.records.read()
    if record is None:
        # The last step of a deletion; before it the topic of the layout goes.
        _require_no_layout(task)
    else:
        if not (deletion.force or record.deleting):
            # Before it is noted: from there on nothing leads back, and whoever comes next continues.
            _require_idle(task, record)
        record = task.records.change(lambda found: found.model_copy(update={"deleting": True}))
        # Also those of a change that was under way, and those that are not in the layout any more.
        made = record.pending.new_segments(record) if record.pending else []
        publish(task)
        names = [
            segment_topic(task.name, segment.descriptor)
            for segment in (*record.segments.values(), *made, *record.retired)
        ]
        _await_clients(task, [*names, layout_topic(task.name)], lambda stats: stats.has_clients)
        task.each(names, lambda name: delete_topic(task, name))
        delete_topic(task, layout_topic(task.name))
        task.await_lost_attempts()
    task.records.delete_all()


def _await_clients(task: ControllerTask, names: Iterable[TopicName], are_there: Callable[[TopicStats], bool]) -> None:
    """Wait for clients that were told of the deletion to leave, `_CLIENTS_LEAVE_TIMEOUT` seconds at most.

    A client that is there when its topic goes connects again before it can know why, and, where brokers create topics
    by themselves, makes an ordinary one: a producer would be told that its messages are stored. In the same way a
    consumer would create its subscription again.
    """
    until = time.monotonic() + _CLIENTS_LEAVE_TIMEOUT

    def used(name: TopicName) -> list[TopicName]:
        with suppress(AdminNotFound):
            if are_there(task.admin.topics.stats(name)):
                return [name]
        return []

    with task.context.waiting(WaitKind.CLIENTS, f"clients of {task.name} to leave before what they use is deleted"):
        while (names := [name for found in task.each(names, used) for name in found]) and time.monotonic() < until:
            task.context.pause(_LOOK)


def _leave(task: ControllerTask, subscription: str, segments: Collection[SegmentInfo]) -> None:
    """Delete a subscription with its places on segments; an attempt that dies during it leaves a note."""
    task.records.note_deletion(subscription, [segment.segment_id for segment in segments])
    delete_cursors(task, segments, subscription)
    if task.await_lost_attempts():
        # One that was to make places may have made them meanwhile.
        delete_cursors(task, segments, subscription)
    task.records.delete_subscription(subscription)


def _end_leaving(task: ControllerTask, subscription: str) -> None:
    """Continue where an attempt died, or is frozen, during the deletion of a subscription."""
    left = task.records.segments_in_deletion(subscription)
    if left is None:
        return
    segments = _record(task).segments
    _leave(task, subscription, [segments[number] for number in left if number in segments])


@step(ControllerTask, reads_only=True)
def report(task: ControllerTask) -> TopicReport:
    """Return how the topic is, segment by segment, as the brokers see it that have them."""
    record = _record(task)
    found = task.each(record.segments.values(), lambda one: _stats(task, one))
    backlog: dict[str, int] = dict.fromkeys(task.records.subscriptions(), 0)
    for one in found:
        for name, messages in one.backlog.items():
            backlog[name] = backlog.get(name, 0) + messages
    return TopicReport(epoch=record.epoch, segments=tuple(found), subscriptions=backlog)


def _stats(task: ControllerTask, segment: SegmentInfo) -> SegmentStats:
    known = {"segment": segment.segment_id, "descriptor": segment.descriptor, "active": segment.active}
    try:
        stats = task.admin.topics.stats(segment_topic(task.name, segment.descriptor))
    except StoreError as error:
        return SegmentStats.model_validate({**known, "unavailable_reason": str(error)})
    durable = stats.durable_subscriptions
    return SegmentStats.model_validate(
        {
            **known,
            "messages_in": stats.msg_rate_in,
            "bytes_in": stats.msg_throughput_in,
            "stored_bytes": stats.storage_size,
            "producers": len(stats.publishers),
            "backlog": {name: one.msg_backlog for name, one in durable.items()},
            "consumers": {name: len(one.consumers) for name, one in durable.items()},
        }
    )


def _record(task: ControllerTask) -> ControlledLayout:
    record = task.records.read()
    if record is None or record.deleting:
        raise StoreConflict(f"{task.name} is deleted, or was never created")
    return record


def _require_kept(task: ControllerTask, sealed: TopicName) -> None:
    """A new topic in the place of a sealed segment's would take messages."""
    try:
        task.admin.topics.internal_stats(sealed)
    except AdminNotFound as error:
        raise StoreConflict(
            f"{sealed} is gone, with the messages of a sealed segment; nothing can take its place"
        ) from error


def _check_cluster(task: ControllerTask, findings: Findings) -> None:
    """Note what brokers, metadata and the topic's namespace have that is not known to go with a controlled topic."""
    census, admin = FeatureCensus(task.input.cluster), task.runtime.admin_of(task.input.credentials)
    namespace, tenant = task.name.namespace_path, task.name.namespace_path.partition("/")[0]
    seen = survey(
        census, task.input.store, task.cluster.stores, admin, lambda name: name == namespace, tenants=[tenant]
    )
    check_releases(findings, KIND, seen, accepted=task.input.accepted)
    # Leading a topic needs no right to read the settings of brokers.
    census.check(findings, KIND, task.input.accept, [BROKERS_UNKNOWN])
    if census.silent:
        findings.warn(f"the settings of brokers are not known: {some(census.silent)}")
    policies, settings = task.admin.namespaces.policies(namespace).raw, [broker.settings or {} for broker in seen]
    # mutant: topic-controller/subscriptions-expire-on-segments
    if minutes := max((subscription_expiration(policies, setting) for setting in settings), default=0):
        findings.block(
            "SUBSCRIPTIONS_EXPIRE",
            f"brokers delete a subscription from each segment in {namespace} on which it has had no consumer for "
            f"{minutes} minutes, and ordered consumers come to a new segment only when those before are consumed",
            "choose another namespace, or switch it off (pulsar-admin namespaces set-subscription-expiration-time -t 0 "
            f"{namespace})",
        )


def _require_free(task: ControllerTask) -> None:
    """Clients of an ordinary topic of this name would see another one than clients of the scalable one.

    Nor may another layout hide what a topic of this name holds whose record was lost.
    """
    _require_no_layout(task)
    for look in (task.admin.topics.partitions, task.admin.topics.internal_stats):
        try:
            look(task.name)
        except AdminNotFound:
            continue
        raise StoreConflict(f"{task.name} is an ordinary topic; delete it first, or give the scalable one another name")


def _require_no_leftovers(task: ControllerTask, new: ControlledLayout) -> None:
    """Messages of an earlier topic of this name would come as if they were new, and what has ended takes none."""
    there = {*task.admin.topics.names(task.name.namespace_path)}
    found = [one for one in new.active if str(segment_topic(task.name, one.descriptor)) in there]
    if taken := taken_by_others(task, found):
        names = ", ".join(str(segment_topic(task.name, one.descriptor)) for one in taken[:_SHOWN])
        raise StoreConflict(
            f"{len(taken)} segments of {task.name} are topics already that hold messages, or take none: {names}. They "
            "are of an earlier topic of this name: read what is left in them, and delete them, or choose another name"
        )


def _require_no_layout(task: ControllerTask) -> None:
    """Without its record nobody knows which segments a topic has."""
    if has_own_layout_topic(task):
        raise StoreConflict(
            f"{layout_topic(task.name)} is there, and {task.metadata.url} has no layout of {task.name}: put the newest "
            f"message with the key layout back to {record_path(task.name)}, correct metadata_url, or, if what the "
            "topic holds may go, delete that topic and the segments"
        )


def _require_idle(task: ControllerTask, record: ControlledLayout) -> None:
    for one in task.each(record.segments.values(), lambda segment: _stats(task, segment)):
        if one.producers or any(one.consumers.values()):
            raise StoreConflict(
                f"segment {one.descriptor} of {task.name} has {one.producers} producers and consumers of "
                f"{', '.join(name for name, count in one.consumers.items() if count) or 'nothing'}; end them, or force"
            )
