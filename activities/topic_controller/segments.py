"""Segments of a controlled topic, each an ordinary topic: creation, termination, cursors and deletion."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

from activities.lifecycle.parallel import run_both
from activities.topic_controller.context import ControllerTask
from activities.topic_controller.names import layout_topic, segment_topic
from clients.errors import RetryableError
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminNotFound, AdminServerError
from clients.pulsar.admin.policy_calls import BACKLOG_QUOTAS
from clients.pulsar.admin.topics import COMPACTION, EARLIEST, InternalStats, Position
from clients.pulsar.names import TopicName
from models.segments.segment import SegmentInfo

# By default brokers delete unused topics, and with them the messages for later consumers.
_KEEP_UNUSED = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}
_KEEP_ALL = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
# States of managed ledgers: its broker unloads the topic, whether it was terminated or not.
_CLOSED, _FENCED = "Closed", "Fenced"
_INACTIVE, _RETENTION = "inactiveTopicPolicies", "retention"
_UNLIMITED = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
# Brokers take -1 as unset, and then apply the namespace's rate.
_ANY_RATE = 2**31 - 1
_ANY_DISPATCH = {
    "dispatchThrottlingRateInMsg": _ANY_RATE,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
_LAYOUT: dict[str, Any] = {
    _INACTIVE: _KEEP_UNUSED,
    # Until it is compacted, the topic has a backlog. With a quota, brokers would refuse messages, or drop some.
    BACKLOG_QUOTAS: {"destination_storage": _UNLIMITED, "message_age": _UNLIMITED},
    # Every client reads it; the limits of the namespace are meant for segments.
    "maxConsumers": 0,
    "maxSubscriptionsPerTopic": 0,
    "subscriptionTypesEnabled": ["Exclusive"],
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": _ANY_RATE, "ratePeriodInSecond": 1},
    "dispatchRate": _ANY_DISPATCH,
    "subscriptionDispatchRate": _ANY_DISPATCH,
    # Every client waits until it is published.
    "publishRate": {"publishThrottlingRateInMsg": _ANY_RATE, "publishThrottlingRateInByte": -1},
    # Set last, as `has_own_layout_topic` checks it: the topic was created completely.
    _RETENTION: _KEEP_ALL,
}


class SegmentsTaken(Exception):
    """Topics with the names of new segments exist, and cannot be used as segments.

    Attributes:
        segments: segments whose topics exist.
    """

    def __init__(self, segments: Sequence[SegmentInfo]) -> None:
        super().__init__(", ".join(segment.descriptor for segment in segments))
        self.segments = segments


def create_segments(
    task: ControllerTask,
    segments: Iterable[SegmentInfo],
    subscriptions: Iterable[str],
    *,
    like: Iterable[SegmentInfo] = (),
    position: Position = EARLIEST,
    are_new: bool = False,
) -> None:
    """Create segments that brokers keep while unused, with cursors of subscriptions; idempotent.

    Args:
        task: an attempt of the controller.
        segments: segments to create.
        subscriptions: subscriptions that get a cursor on each.
        like: existing segments, all of whose subscriptions get cursors too.
        position: position of new cursors, `EARLIEST` or `LATEST`.
        are_new: whether no client knows the segments yet, so that existing topics must be empty.

    Raises:
        SegmentsTaken: topics of new segments contain messages, or are terminated.
    """
    segments = [*segments]
    names = [segment_topic(task.name, segment.descriptor) for segment in segments]
    existing, cursors = run_both(
        lambda: task.each(names, lambda name: _create_topic(task, name)), lambda: subscriptions_by_segment(task, like)
    )
    new = {name: stats is None for name, stats in zip(names, existing, strict=True)}
    taken = [segment for segment, stats in zip(segments, existing, strict=True) if stats and not _is_unused(stats)]
    if are_new and taken:
        raise SegmentsTaken(taken)
    wanted = _union(subscriptions, cursors.values())

    def create_subscription_or_policy(pair: tuple[TopicName, str | None]) -> None:
        name, subscription = pair
        with retry_if_deleted(name):
            if subscription is None:
                _set_policy(task, name, _INACTIVE, _KEEP_UNUSED, new=new[name])
            else:
                _create_cursor(task, name, subscription, position)

    # All at once, since operators, and writers without a segment, wait for a change.
    task.each(
        [(name, subscription) for name in names for subscription in (None, *wanted)], create_subscription_or_policy
    )


def copy_grants(task: ControllerTask, sealed: Iterable[SegmentInfo], made: Iterable[SegmentInfo]) -> None:
    """Copy the permissions that roles have on any of the old segments to the new ones; idempotent.

    Args:
        task: an attempt of the controller.
        sealed: old segments.
        made: new segments.

    Raises:
        AdminError: brokers refuse it.
    """
    namespace = task.name.namespace_path
    rights: dict[str, Any] = task.admin.namespaces.policies(namespace).raw.get("auth_policies") or {}
    # By topic and role.
    grants: dict[str, dict[str, list[str]]] = rights.get("destination_auth") or {}
    wanted: dict[str, set[str]] = {}
    for segment in sealed:
        for role, actions in grants.get(str(segment_topic(task.name, segment.descriptor)), {}).items():
            wanted.setdefault(role, set()).update(actions)
    for segment in made if wanted else ():  # mutant: topic-controller/rights-do-not-follow
        topic = str(segment_topic(task.name, segment.descriptor))
        for role, actions in wanted.items():
            # Each call writes all policies of the namespace, so leave out what is granted already.
            if not actions <= {*grants.get(topic, {}).get(role, [])}:
                path = ("auth_policies", "destination_auth", topic, role)
                try:
                    task.admin.namespaces.set_policy(namespace, path, sorted(actions))
                except AdminServerError as error:
                    if error.status != HTTPStatus.NOT_IMPLEMENTED:
                        raise
                    # These brokers have no authorization.
                    return


def taken_by_others(task: ControllerTask, segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
    """Return the segments whose topics contain messages, or are terminated, though no client knows the segments yet."""

    def find(segment: SegmentInfo) -> list[SegmentInfo]:
        with suppress(AdminNotFound):
            stats = task.admin.topics.internal_stats(segment_topic(task.name, segment.descriptor))
            return [] if _is_unused(stats) else [segment]
        return []

    return [segment for taken in task.each(segments, find) for segment in taken]


def ensure_segments(task: ControllerTask, segments: Iterable[SegmentInfo], subscriptions: Iterable[str]) -> None:
    """Create what existing segments lack, as `create_segments` does; needs few requests where nothing is missing."""
    segments = [*segments]
    ensure_cursors(task, segments, subscriptions)

    def keep(segment: SegmentInfo) -> None:
        name = segment_topic(task.name, segment.descriptor)
        with retry_if_deleted(name):
            _set_policy(task, name, _INACTIVE, _KEEP_UNUSED, new=False)

    task.each(segments, keep)


def create_layout_topic(task: ControllerTask) -> None:
    """Create the topic in which the layout is published, with all messages until compaction, and for any reader."""
    name = layout_topic(task.name)
    new = _create_topic(task, name) is None
    with retry_if_deleted(name):
        # Brokers that auto-create no subscriptions do not even create their own.
        _create_cursor(task, name, COMPACTION)
        for policy, value in _LAYOUT.items():
            _set_policy(task, name, policy, value, new=new)


def has_own_layout_topic(task: ControllerTask) -> bool:
    """Return whether the layout topic has our policies; one that clients auto-created has not."""
    try:
        return task.admin.topic_policies.get(layout_topic(task.name), _RETENTION) == _KEEP_ALL
    except AdminNotFound:
        return False


def ensure_cursors(
    task: ControllerTask,
    segments: Iterable[SegmentInfo],
    subscriptions: Iterable[str],
    *,
    like: Iterable[SegmentInfo] = (),
) -> None:
    """Ensure that subscriptions have cursors on segments; missing ones are created, with their segments if needed.

    Args:
        task: an attempt of the controller.
        segments: segments that must have the cursors.
        subscriptions: subscriptions that must have cursors.
        like: other segments, all of whose subscriptions must have cursors too.

    Raises:
        RetryableError: a broker reported a cursor as created, but it does not exist.
    """
    segments, others = [*segments], [*like]
    existing = subscriptions_by_segment(task, [*segments, *others])
    wanted = _union(subscriptions, (existing[segment] for segment in others))
    incomplete = [segment for segment in segments if (cursors := existing[segment]) is None or wanted - cursors]
    if not incomplete:
        return
    create_segments(task, incomplete, sorted(wanted))
    for segment, cursors in subscriptions_by_segment(task, incomplete).items():
        if cursors is None or wanted - cursors:
            missing = ", ".join(sorted(wanted - (cursors or set()))) or "its topic"
            raise RetryableError(f"{segment.descriptor} lacks {missing}, which its broker reported as created")


def create_cursors(
    task: ControllerTask, segments: Iterable[SegmentInfo], subscription: str, position: Position
) -> None:
    """Create missing cursors of a subscription on sealed segments; deleted segments are skipped.

    Also needed at `LATEST`: else the first consumer that attached to a segment would get a cursor at its start.

    Args:
        task: an attempt of the controller.
        segments: sealed segments.
        subscription: name of the subscription.
        position: `EARLIEST` or `LATEST`.

    Raises:
        AdminConflict: brokers refuse it.
    """

    def create(entry: tuple[SegmentInfo, set[str] | None]) -> None:
        segment, cursors = entry
        if cursors is not None and subscription not in cursors:
            _create_cursor(task, segment_topic(task.name, segment.descriptor), subscription, position)

    task.each(subscriptions_by_segment(task, segments).items(), create)


def delete_cursors(task: ControllerTask, segments: Iterable[SegmentInfo], subscription: str) -> None:
    """Delete the cursors of a subscription on segments, also while it has consumers; idempotent."""

    def delete(segment: SegmentInfo) -> None:
        name = segment_topic(task.name, segment.descriptor)

        def change(admin: PulsarAdmin) -> None:
            # The segment, or its cursor, may be deleted already.
            with suppress(AdminNotFound):
                admin.subscriptions.delete(name, subscription, force=True)

        # A late request would delete the cursor of a subscription that was created again under the same name.
        task.cluster.change_or_never(
            connect=lambda admin: admin.topics.internal_stats(name), fence=task.require, change=change
        )

    task.each(segments, delete)


def terminate_segment(task: ControllerTask, segment: SegmentInfo) -> None:
    """Terminate a segment: no message can be added. All messages are readable after a reload; see `reload_segments`.

    Raises:
        RetryableError: it still takes messages, or must be reloaded before it can be terminated.
    """
    name, terminated, fenced = segment_topic(task.name, segment.descriptor), False, False

    def connect(admin: PulsarAdmin) -> None:
        nonlocal terminated, fenced
        stats = admin.topics.internal_stats(name)
        terminated, fenced = stats.terminated, stats.state == _FENCED

    def change(admin: PulsarAdmin) -> None:
        if fenced:
            admin.topics.unload(name)
        elif not terminated:
            admin.topics.terminate(name)

    # A late request would terminate a segment of a topic that was created again under the same name.
    task.cluster.change_or_never(connect=connect, fence=task.require, change=change)
    if fenced:
        # A termination during a ledger rollover may leave a topic fenced (#26680): it takes no messages, and its broker
        # refuses to terminate it.
        raise RetryableError(f"{name} is fenced; its broker reloads it, so that it can be terminated")
    if not (terminated or task.admin.topics.internal_stats(name).terminated):
        raise RetryableError(f"{name} still takes messages, although its broker reported it as terminated")


def is_terminated(task: ControllerTask, segment: SegmentInfo) -> bool:
    """Return whether a segment is terminated or deleted.

    Raises:
        RetryableError: its broker is unloading it, and cannot tell.
    """
    try:
        stats = task.admin.topics.internal_stats(segment_topic(task.name, segment.descriptor))
    except AdminNotFound:
        return True
    if stats.state == _CLOSED:
        raise RetryableError(f"{segment.descriptor} of {task.name} is being unloaded")
    return stats.terminated


def reload_segments(task: ControllerTask, segments: Iterable[SegmentInfo]) -> None:
    """Unload terminated segments, so that brokers load them again.

    Before 5.0.0, 4.2.5 and 4.0.14, messages in flight at the termination are never answered, and after the next message
    the broker refuses all consumers (apache/pulsar#26678).

    Raises:
        RetryableError: a segment takes messages again, also after another termination.
    """

    def unload(segment: SegmentInfo) -> None:
        # In these releases, a segment that is terminated during a ledger rollover takes messages again (#26680).
        # Messages after its end would never be delivered, so terminate it again.
        if not is_terminated(task, segment):  # mutant: topic-controller/gives-up-a-segment-that-is-open-again
            terminate_segment(task, segment)
        # It may have been deleted by an operator.
        with suppress(AdminNotFound):
            task.admin.topics.unload(segment_topic(task.name, segment.descriptor))

    task.each(segments, unload)


def subscriptions_by_segment(
    task: ControllerTask, segments: Iterable[SegmentInfo]
) -> dict[SegmentInfo, set[str] | None]:
    """Return the durable subscriptions of each segment; None for a deleted segment.

    Cursors of readers, deduplication and compaction do not count.
    """

    def read(segment: SegmentInfo) -> tuple[SegmentInfo, set[str] | None]:
        try:
            stats = task.admin.topics.stats(segment_topic(task.name, segment.descriptor))
        except AdminNotFound:
            return segment, None
        return segment, {*stats.durable_subscriptions}

    return dict(task.each(segments, read))


def delete_topic(task: ControllerTask, name: TopicName, *, force: bool = True) -> None:
    """Delete a topic; idempotent.

    Args:
        task: an attempt of the controller.
        name: name of the topic.
        force: whether to delete it also while clients are connected.

    Raises:
        AdminConflict: clients are connected, and `force` is not set.
    """

    def delete(admin: PulsarAdmin) -> None:
        with suppress(AdminNotFound):
            admin.topics.delete(name, force=force)

    # A late request would delete a segment of a topic that was created again under the same name.
    task.cluster.change_or_never(
        connect=lambda admin: admin.topics.internal_stats(name), fence=task.require, change=delete
    )


def _union(subscriptions: Iterable[str], cursors: Iterable[set[str] | None]) -> set[str]:
    """Return subscriptions, together with those that have cursors on segments; see `subscriptions_by_segment`."""
    return {*subscriptions}.union(*(names or () for names in cursors))


def _create_topic(task: ControllerTask, name: TopicName) -> InternalStats | None:
    """Create a topic; return the internal stats of an existing one, None for a new one."""
    try:
        task.admin.topics.create(name)
    except AdminConflict as refusal:
        # A limit of the namespace that is reached has the same status.
        try:
            return task.admin.topics.internal_stats(name)
        except AdminNotFound:
            raise refusal from None
    return None


def _is_unused(stats: InternalStats) -> bool:
    """Return whether a topic can be used as a new segment: it is not terminated, and has no messages."""
    return not stats.terminated and stats.state != _FENCED and not stats.number_of_entries


def _create_cursor(task: ControllerTask, name: TopicName, subscription: str, position: Position = EARLIEST) -> None:
    try:
        task.admin.subscriptions.create(name, subscription, position)
    except AdminConflict:
        if subscription not in task.admin.topics.stats(name).subscriptions:
            raise


def _set_policy(task: ControllerTask, name: TopicName, policy: str, value: Any, *, new: bool) -> None:
    """Set a policy, if it differs; a new topic has none."""
    if new or task.admin.topic_policies.get(name, policy) != value:
        task.admin.topic_policies.set(name, policy, value)


@contextmanager
def retry_if_deleted(name: TopicName) -> Generator[None]:
    """Retry if a new topic is deleted as unused before its policies prevent that."""
    try:
        yield
    except AdminNotFound as error:
        raise RetryableError(
            f"{name} was deleted while it was created; it is created again. If this repeats, brokers delete unused "
            "topics too early: increase brokerDeleteInactiveTopicsMaxInactiveDurationSeconds"
        ) from error
