"""Steps for a controlled topic as a whole: creation and opening, subscriptions, statistics, and deletion."""

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
from activities.topic_controller.publish import publish, require_epoch, require_latest_layout
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
from models.lifecycle.failures import summarize
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

# Seconds for which clients may leave a topic before it is deleted, and seconds between two checks.
_CLIENTS_LEAVE_TIMEOUT, _CHECK_INTERVAL = 10.0, 0.1
_MAX_NAMED = 3


@step(ControllerTask, name="open", needs_open_run=True)
def open_topic(task: ControllerTask, opening: OpenRequest) -> OpenedTopic:
    """Open the topic, or create it; what an earlier attempt has not finished is completed.

    Args:
        task: an attempt of the controller.
        opening: whether to recover sessions, and which layout a continued run has.

    Raises:
        StoreConflict: an ordinary topic has this name, the namespace does not allow controlled topics, the release of
            the brokers is not supported, the topic is being deleted, or clients or the run have a newer layout.
    """
    recover = opening.recover_sessions
    if recover:
        # A continued run has the same cluster as the one before.
        task.require_cluster()
    task.take_lease()
    record, ensure, findings = task.records.read(), ensure_segments, Findings()
    if record is None:
        ensure = create_segments
        try:
            new = _new_layout(task, findings)
        except StoreConflict:
            # A refused start must leave no lease, so that the next one does not wait for a lost attempt.
            task.lease.release_unused()
            raise
        record = task.records.create(new)
    elif recover:
        # The topic exists already: only warn about releases, as refusing them would leave it without a controller.
        accepted = Accepted(untested_versions=True)
        check_releases(findings, KIND, [read_broker("the broker that answers", task.admin)], accepted=accepted)
        # A step of an earlier run, for example of one that was reset, may still be in flight.
        task.lease.note_lost()
        if not record.deleting:
            require_latest_layout(task, record)
    else:
        require_epoch(task, record, opening.epoch)  # mutant: topic-controller/continues-with-an-older-record
    subscriptions = task.records.subscriptions()
    if not record.deleting:
        ensure(task, record.active, subscriptions)
        if recover:
            complete_last(task, record)
        else:
            # The previous run has completed its changes.
            publish(task)
    sessions = recover_sessions(task, record, subscriptions) if recover and not record.deleting else {}
    # An existing topic is controlled even if its brokers are no longer supported.
    warnings = (*(blocker.cause for blocker in findings.blockers), *findings.warnings)
    return OpenedTopic(record=record, subscriptions=subscriptions, sessions=sessions, warnings=warnings)


def _new_layout(task: ControllerTask, findings: Findings) -> ControlledLayout:
    """Return the first layout of a topic, if it can be created; read-only.

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
    """Store and publish new addresses of the controller; idempotent.

    Args:
        task: an attempt of the controller.
        request: the addresses; empty for none.
        epoch: expected epoch of the layout with them; a layout with a later epoch is returned.

    Raises:
        StoreConflict: the topic is deleted, a change of segments is in progress, or an old record was restored.
    """

    def with_urls(layout: ControlledLayout) -> ControlledLayout:
        if layout.deleting:
            raise StoreConflict(f"{task.name} is being deleted")
        try:
            new = layout.with_controller_urls(request.urls)
        except LayoutError as error:
            raise StoreConflict(f"the addresses of the controller cannot be changed now: {error}") from error
        if new.epoch < epoch:  # mutant: topic-controller/adds-addresses-to-an-older-record
            # Unless the addresses are the same, the run has the epoch before the expected one.
            require_epoch(task, layout, max(layout.epoch + 1, epoch - 1))
        return new

    record = task.records.change(with_urls)
    publish(task)
    return PreparedChange(record=None if record.epoch == epoch else record)


@step(LeaderTask)
def subscribe(task: LeaderTask, request: SubscriptionRequest) -> None:
    """Create a cursor of a subscription on each segment, and register the subscription.

    A new subscription starts at the messages that sealed segments still have, or at new messages, as requested. One
    with
    cursors on active segments is not new: missing cursors are created so that it neither loses messages nor gets old
        ones.

    Raises:
        StoreConflict: it exists with another kind, or brokers refuse it.
    """
    _finish_deletion(task, request.name)
    record, is_new = _record(task), request.name not in task.records.subscriptions()
    segments = record.segments.values()
    cursors = subscriptions_by_segment(task, segments)
    is_fresh = not any(request.name in (cursors[segment] or ()) for segment in record.active)
    is_latest = request.initial_position is InitialPosition.LATEST
    task.records.register(request.name, request.kind)
    try:
        # Sealed segments first: if an attempt dies in between, the next one finds no cursor on an active segment yet,
        # or all cursors on sealed ones.
        sealed = [segment for segment in segments if segment.sealed]
        create_cursors(task, sealed, request.name, EARLIEST if is_fresh and not is_latest else LATEST)
        create_segments(task, record.active, [request.name], position=LATEST if is_fresh and is_latest else EARLIEST)
    except AdminConflict:
        # For example a limit of the namespace: cursors on only some segments would retain messages without use.
        if is_new:
            missing = [segment for segment, names in cursors.items() if request.name not in (names or ())]
            _delete_subscription(task, request.name, missing)
        raise


@step(LeaderTask, name="ensure")
def ensure_segment(task: LeaderTask, request: SegmentRequest) -> None:
    """Create the topic of a segment if it is missing, with cursors of subscriptions; idempotent.

    Raises:
        StoreConflict: the segment is not in the layout, or it is sealed and its topic was deleted.
    """
    segment = _record(task).segments.get(request.segment)
    if segment is None:
        raise StoreConflict(f"{task.name} has no segment {request.segment}")
    name = segment_topic(task.name, segment.descriptor)
    if segment.active:
        create_segments(task, [segment], request.subscriptions)
    else:
        _require_existing(task, name)
    ensure_cursors(task, [segment], request.subscriptions)


@step(LeaderTask)
def unsubscribe(task: LeaderTask, request: Unsubscription) -> None:
    """Delete a subscription with its cursors on all segments; idempotent."""
    name, segments = request.name, _record(task).segments.values()
    topics = [segment_topic(task.name, segment.descriptor) for segment in segments]
    _await_clients(
        task, topics, lambda stats: name in stats.subscriptions and bool(stats.subscriptions[name].consumers)
    )
    _delete_subscription(task, name, segments)


@step(LeaderTask)
def delete(task: LeaderTask, deletion: Deletion) -> None:
    """Delete the topic with all its messages; continues where an earlier attempt died.

    After a lost attempt it takes a minute longer: its late requests must not delete a topic that is created again.

    Raises:
        StoreConflict: clients are connected, and `force` is not set, or the record was removed.
    """
    record = task.records.read()
    if record is None:
        # Either deleted by an earlier attempt, which deletes the layout topic before the record, or the record was
        # lost.
        _require_no_layout(task)
    else:
        if not (deletion.force or record.deleting):
            # Check before the deletion is recorded: it cannot be undone, and later attempts continue it.
            _require_idle(task, record)
        record = task.records.change(lambda layout: layout.model_copy(update={"deleting": True}))
        # Also segments of a change in progress, and segments that left the layout.
        created = record.pending.new_segments(record) if record.pending else []
        publish(task)
        names = [
            segment_topic(task.name, segment.descriptor)
            for segment in (*record.segments.values(), *created, *record.retired)
        ]
        _await_clients(task, [*names, layout_topic(task.name)], lambda stats: stats.has_clients)
        task.each(names, lambda name: delete_topic(task, name))
        delete_topic(task, layout_topic(task.name))
        task.await_lost_attempts()
    task.records.delete_all()


def _await_clients(task: ControllerTask, names: Iterable[TopicName], are_there: Callable[[TopicStats], bool]) -> None:
    """Wait up to `_CLIENTS_LEAVE_TIMEOUT` seconds for clients to leave, after the deletion was published.

    A client that is still connected when its topic is deleted reconnects before it learns why. Where brokers
    auto-create topics, this makes an ordinary topic, and a producer's messages seem to be stored. In the same way a
    consumer would create its subscription again.
    """
    deadline = time.monotonic() + _CLIENTS_LEAVE_TIMEOUT

    def used(name: TopicName) -> list[TopicName]:
        with suppress(AdminNotFound):
            if are_there(task.admin.topics.stats(name)):
                return [name]
        return []

    with task.context.waiting(WaitKind.CLIENTS, f"clients of {task.name} to leave before what they use is deleted"):
        while (names := [name for used_names in task.each(names, used) for name in used_names]) and (
            time.monotonic() < deadline
        ):
            task.context.pause(_CHECK_INTERVAL)


def _delete_subscription(task: ControllerTask, subscription: str, segments: Collection[SegmentInfo]) -> None:
    """Delete a subscription with its cursors on segments; the record of the deletion lets another attempt continue."""
    task.records.note_deletion(subscription, [segment.segment_id for segment in segments])
    delete_cursors(task, segments, subscription)
    if task.await_lost_attempts():
        # A lost attempt may have created cursors since then.
        delete_cursors(task, segments, subscription)
    task.records.delete_subscription(subscription)


def _finish_deletion(task: ControllerTask, subscription: str) -> None:
    """Finish the deletion of a subscription that an earlier attempt has started."""
    ids = task.records.segments_in_deletion(subscription)
    if ids is None:
        return
    segments = _record(task).segments
    _delete_subscription(task, subscription, [segments[segment_id] for segment_id in ids if segment_id in segments])


@step(ControllerTask, reads_only=True)
def report(task: ControllerTask) -> TopicReport:
    """Return statistics of the topic from the brokers that serve its segments."""
    record = _record(task)
    segments = task.each(record.segments.values(), lambda segment: _stats(task, segment))
    backlog: dict[str, int] = dict.fromkeys(task.records.subscriptions(), 0)
    for segment in segments:
        for name, messages in segment.backlog.items():
            backlog[name] = backlog.get(name, 0) + messages
    return TopicReport(epoch=record.epoch, segments=tuple(segments), subscriptions=backlog)


def _stats(task: ControllerTask, segment: SegmentInfo) -> SegmentStats:
    identity = {"segment": segment.segment_id, "descriptor": segment.descriptor, "active": segment.active}
    try:
        stats = task.admin.topics.stats(segment_topic(task.name, segment.descriptor))
    except StoreError as error:
        return SegmentStats.model_validate({**identity, "unavailable_reason": str(error)})
    durable = stats.durable_subscriptions
    return SegmentStats.model_validate(
        {
            **identity,
            "messages_in": stats.msg_rate_in,
            "bytes_in": stats.msg_throughput_in,
            "stored_bytes": stats.storage_size,
            "producers": len(stats.publishers),
            "backlog": {name: subscription.msg_backlog for name, subscription in durable.items()},
            "consumers": {name: len(subscription.consumers) for name, subscription in durable.items()},
        }
    )


def _record(task: ControllerTask) -> ControlledLayout:
    record = task.records.read()
    if record is None or record.deleting:
        raise StoreConflict(f"{task.name} is deleted, or was never created")
    return record


def _require_existing(task: ControllerTask, sealed: TopicName) -> None:
    """Raise StoreConflict if the topic of a sealed segment was deleted: a new one would take messages."""
    try:
        task.admin.topics.internal_stats(sealed)
    except AdminNotFound as error:
        raise StoreConflict(
            f"{sealed}, a sealed segment, was deleted with its messages, and cannot be restored"
        ) from error


def _check_cluster(task: ControllerTask, findings: Findings) -> None:
    """Note features of the brokers, metadata and namespace that are not known to work with controlled topics."""
    census, admin = FeatureCensus(task.input.cluster), task.runtime.admin_of(task.input.credentials)
    namespace, tenant = task.name.namespace_path, task.name.namespace_path.partition("/")[0]
    brokers = survey(
        census, task.input.store, task.cluster.stores, admin, lambda name: name == namespace, tenants=[tenant]
    )
    check_releases(findings, KIND, brokers, accepted=task.input.accepted)
    # A controller needs no permission to read the settings of brokers.
    census.check(findings, KIND, task.input.accept, [BROKERS_UNKNOWN])
    if census.silent:
        findings.warn(f"the settings of brokers are not known: {summarize(census.silent)}")
    policies, settings = task.admin.namespaces.policies(namespace).raw, [broker.settings or {} for broker in brokers]
    # mutant: topic-controller/subscriptions-expire-on-segments
    if minutes := max((subscription_expiration(policies, setting) for setting in settings), default=0):
        findings.block(
            "SUBSCRIPTIONS_EXPIRE",
            f"brokers delete a subscription from each segment in {namespace} where it has had no consumer for "
            f"{minutes} minutes, but ordered consumers reach a new segment only after its parents are consumed",
            "choose another namespace, or turn expiration off (pulsar-admin namespaces "
            f"set-subscription-expiration-time -t 0 {namespace})",
        )


def _require_free(task: ControllerTask) -> None:
    """Raise StoreConflict if an ordinary topic has this name, or a controlled topic whose record was lost.

    Clients of the ordinary topic and of the scalable topic would exchange no messages.
    """
    _require_no_layout(task)
    for read in (task.admin.topics.partitions, task.admin.topics.internal_stats):
        try:
            read(task.name)
        except AdminNotFound:
            continue
        raise StoreConflict(f"{task.name} is an ordinary topic; delete it first, or choose another name")


def _require_no_leftovers(task: ControllerTask, new: ControlledLayout) -> None:
    """Raise StoreConflict if topics of the new segments exist with messages, or are terminated.

    Consumers would get messages of an earlier topic of this name.
    """
    names = {*task.admin.topics.names(task.name.namespace_path)}
    existing = [segment for segment in new.active if str(segment_topic(task.name, segment.descriptor)) in names]
    if taken := taken_by_others(task, existing):
        examples = ", ".join(str(segment_topic(task.name, segment.descriptor)) for segment in taken[:_MAX_NAMED])
        raise StoreConflict(
            f"the topics of {len(taken)} segments of {task.name} exist with messages, or are terminated: {examples}. "
            "They belong to an earlier topic of this name: consume and delete them, or choose another name"
        )


def _require_no_layout(task: ControllerTask) -> None:
    """Raise StoreConflict if there is a layout topic without a record, in which case the segments are unknown."""
    if has_own_layout_topic(task):
        raise StoreConflict(
            f"{layout_topic(task.name)} exists, but {task.metadata.url} has no layout of {task.name}: restore "
            f"{record_path(task.name)} from the newest message with the key layout, or correct metadata_url, or, if "
            "its messages are not needed, delete that topic and the segments"
        )


def _require_idle(task: ControllerTask, record: ControlledLayout) -> None:
    for segment in task.each(record.segments.values(), lambda segment: _stats(task, segment)):
        if segment.producers or any(segment.consumers.values()):
            raise StoreConflict(
                f"segment {segment.descriptor} of {task.name} has {segment.producers} producers and consumers of "
                f"{', '.join(name for name, count in segment.consumers.items() if count) or 'no subscription'}; "
                "stop them, or use force"
            )
