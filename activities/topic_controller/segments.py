"""Segments of a controlled topic, each an ordinary stored topic: made, ended, looked at and deleted."""

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

# Brokers delete topics that nobody uses, and with them what a later consumer would have got.
_STAYS = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}
_KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
# Of a managed ledger that its broker unloads, whether it was terminated or not.
_CLOSED, _FENCED = "Closed", "Fenced"
_INACTIVE, _RETENTION = "inactiveTopicPolicies", "retention"
_UNLIMITED = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
# Brokers take -1 for what says nothing, and the namespace's rate holds then.
_ANY_RATE = 2**31 - 1
_ANY_DISPATCH = {
    "dispatchThrottlingRateInMsg": _ANY_RATE,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
_LAYOUT: dict[str, Any] = {
    _INACTIVE: _STAYS,
    # What was not compacted yet is a backlog, for which brokers would take no more messages, or drop some.
    BACKLOG_QUOTAS: {"destination_storage": _UNLIMITED, "message_age": _UNLIMITED},
    # Every client reads it; limits of the namespace are meant for segments.
    "maxConsumers": 0,
    "maxSubscriptionsPerTopic": 0,
    "subscriptionTypesEnabled": ["Exclusive"],
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": _ANY_RATE, "ratePeriodInSecond": 1},
    "dispatchRate": _ANY_DISPATCH,
    "subscriptionDispatchRate": _ANY_DISPATCH,
    # And all of them wait until it is published.
    "publishRate": {"publishThrottlingRateInMsg": _ANY_RATE, "publishThrottlingRateInByte": -1},
    # The last one, by which `has_own_layout_topic` knows a topic that was made to the end.
    _RETENTION: _KEPT,
}


class SegmentsTaken(Exception):
    """Topics of names of new segments are there, and cannot become these segments.

    Attributes:
        segments: which ones.
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
    """Make segments that stay when no client uses them, with cursors of subscriptions; harmless when done twice.

    Args:
        task: an attempt of the controller.
        segments: that are made.
        subscriptions: that get a place on each.
        like: segments that are there, all of whose subscriptions get one too.
        position: of new cursors, `EARLIEST` or `LATEST`.
        are_new: no client knows them, and they hold nothing.

    Raises:
        SegmentsTaken: topics of new ones are there, and hold messages, or take none.
    """
    wanted_segments = [*segments]
    names = [segment_topic(task.name, wanted_segment.descriptor) for wanted_segment in wanted_segments]
    there, places = run_both(
        lambda: task.each(names, lambda name: _create_topic(task, name)), lambda: subscriptions_by_segment(task, like)
    )
    new = {name: stats is None for name, stats in zip(names, there, strict=True)}
    taken = [one for one, stats in zip(wanted_segments, there, strict=True) if stats and not _is_unused(stats)]
    if are_new and taken:
        raise SegmentsTaken(taken)
    wanted = _with(subscriptions, places.values())

    def create_subscription_or_policy(part: tuple[TopicName, str | None]) -> None:
        name, subscription = part
        with retry_if_deleted(name):
            if subscription is None:
                _set_policy(task, name, _INACTIVE, _STAYS, new=new[name])
            else:
                _create_cursor(task, name, subscription, position)

    # All at once, since nothing continues while an operator, or a writer without a segment, waits for a change.
    task.each([(name, part) for name in names for part in (None, *wanted)], create_subscription_or_policy)


def copy_grants(task: ControllerTask, sealed: Iterable[SegmentInfo], made: Iterable[SegmentInfo]) -> None:
    """Let roles that have rights on one of the old segments have them on the new ones; harmless when done twice.

    Args:
        task: an attempt of the controller.
        sealed: old segments.
        made: new ones.

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
            # Brokers write all policies of the namespace each time.
            if not actions <= {*grants.get(topic, {}).get(role, [])}:
                path = ("auth_policies", "destination_auth", topic, role)
                try:
                    task.admin.namespaces.set_policy(namespace, path, sorted(actions))
                except AdminServerError as error:
                    if error.status != HTTPStatus.NOT_IMPLEMENTED:
                        raise
                    # Brokers without authorization refuse nobody.
                    return


def taken_by_others(task: ControllerTask, segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
    """Return segments that no client knows, and whose topics hold messages, or take none: others have made these."""

    def find(segment: SegmentInfo) -> list[SegmentInfo]:
        with suppress(AdminNotFound):
            found = task.admin.topics.internal_stats(segment_topic(task.name, segment.descriptor))
            return [] if _is_unused(found) else [segment]
        return []

    return [segment for found in task.each(segments, find) for segment in found]


def ensure_segments(task: ControllerTask, segments: Iterable[SegmentInfo], subscriptions: Iterable[str]) -> None:
    """The same for segments that were made before: few requests where nothing is missing."""
    found = [*segments]
    ensure_cursors(task, found, subscriptions)

    def keep(segment: SegmentInfo) -> None:
        name = segment_topic(task.name, segment.descriptor)
        with retry_if_deleted(name):
            _set_policy(task, name, _INACTIVE, _STAYS, new=False)

    task.each(found, keep)


def create_layout_topic(task: ControllerTask) -> None:
    """Make the topic in which the layout is published, which keeps all of it until it is compacted, for any reader."""
    name = layout_topic(task.name)
    new = _create_topic(task, name) is None
    with retry_if_deleted(name):
        # Brokers that make no subscriptions by themselves make not even their own.
        _create_cursor(task, name, COMPACTION)
        for policy, value in _LAYOUT.items():
            _set_policy(task, name, policy, value, new=new)


def has_own_layout_topic(task: ControllerTask) -> bool:
    """Whether the topic of the layout is the one that was made for it; what clients make is not."""
    try:
        return task.admin.topic_policies.get(layout_topic(task.name), _RETENTION) == _KEPT
    except AdminNotFound:
        return False


def ensure_cursors(
    task: ControllerTask,
    segments: Iterable[SegmentInfo],
    subscriptions: Iterable[str],
    *,
    like: Iterable[SegmentInfo] = (),
) -> None:
    """See that subscriptions have their places on segments, and make those that are missing, also with their segment.

    Args:
        task: an attempt of the controller.
        segments: on which they are to be.
        subscriptions: that must be there.
        like: other segments, all of whose subscriptions must be there too.

    Raises:
        RetryableError: a broker said that it made one, and has none.
    """
    asked, others = [*segments], [*like]
    found = subscriptions_by_segment(task, [*asked, *others])
    wanted = _with(subscriptions, (found[one] for one in others))
    lacking = [one for one in asked if (there := found[one]) is None or wanted - there]
    if not lacking:
        return
    create_segments(task, lacking, sorted(wanted))
    for one, there in subscriptions_by_segment(task, lacking).items():
        if there is None or wanted - there:
            missing = ", ".join(sorted(wanted - (there or set()))) or "its topic"
            raise RetryableError(f"{missing}: not there on {one.descriptor} after a broker said that it made it")


def create_cursors(
    task: ControllerTask, segments: Iterable[SegmentInfo], subscription: str, position: Position
) -> None:
    """Give a subscription cursors on sealed segments where it has none; a segment that is gone stays gone.

    Also where it is to get nothing of them: the first consumer that attached to one would make a cursor at its start.

    Args:
        task: an attempt of the controller.
        segments: that are sealed.
        subscription: that gets cursors.
        position: `EARLIEST` or `LATEST`.

    Raises:
        AdminConflict: brokers refuse it.
    """

    def make(found: tuple[SegmentInfo, set[str] | None]) -> None:
        segment, there = found
        if there is not None and subscription not in there:
            _create_cursor(task, segment_topic(task.name, segment.descriptor), subscription, position)

    task.each(subscriptions_by_segment(task, segments).items(), make)


def delete_cursors(task: ControllerTask, segments: Iterable[SegmentInfo], subscription: str) -> None:
    """Delete the places of a subscription on segments, also under its consumers; harmless where they are gone."""

    def delete(segment: SegmentInfo) -> None:
        name = segment_topic(task.name, segment.descriptor)

        def change(admin: PulsarAdmin) -> None:
            # The segment, or the place on it, may be gone.
            with suppress(AdminNotFound):
                admin.subscriptions.delete(name, subscription, force=True)

        # A late one would delete the place of a subscription that was created again under the same name.
        task.cluster.change_or_never(
            connect=lambda admin: admin.topics.internal_stats(name), fence=task.require, change=change
        )

    task.each(segments, delete)


def terminate_segment(task: ControllerTask, segment: SegmentInfo) -> None:
    """End a segment: nothing more is stored in it, and all can be read once it is loaded again; see `reload_segments`.

    Raises:
        RetryableError: it continues taking messages, or could not be ended before it was loaded again.
    """
    name, ended, fenced = segment_topic(task.name, segment.descriptor), False, False

    def connect(admin: PulsarAdmin) -> None:
        nonlocal ended, fenced
        found = admin.topics.internal_stats(name)
        ended, fenced = found.terminated, found.state == _FENCED

    def change(admin: PulsarAdmin) -> None:
        if fenced:
            admin.topics.unload(name)
        elif not ended:
            admin.topics.terminate(name)

    # A late one would end a segment of a topic that was created again under the same name.
    task.cluster.change_or_never(connect=connect, fence=task.require, change=change)
    if fenced:
        # One that ends while its broker changes ledgers may be left so (#26680): it takes no messages, and its broker
        # refuses to end it.
        raise RetryableError(f"{name} is fenced; its broker loads it again, so that it can be ended")
    if not (ended or task.admin.topics.internal_stats(name).terminated):
        raise RetryableError(f"{name} still takes messages, although its broker said that it was terminated")


def is_terminated(task: ControllerTask, segment: SegmentInfo) -> bool:
    """Whether a segment takes no messages any more, or somebody has deleted it.

    Raises:
        RetryableError: its broker is about to give it up, and cannot tell.
    """
    try:
        found = task.admin.topics.internal_stats(segment_topic(task.name, segment.descriptor))
    except AdminNotFound:
        return True
    if found.state == _CLOSED:
        raise RetryableError(f"{segment.descriptor} of {task.name} is being unloaded")
    return found.terminated


def reload_segments(task: ControllerTask, segments: Iterable[SegmentInfo]) -> None:
    """Have brokers load segments that have ended again.

    What was on its way in is never answered before, and the next message that comes makes the broker refuse all
    consumers, before 5.0.0, 4.2.5 and 4.0.14 (apache/pulsar#26678).

    Raises:
        RetryableError: one takes messages again, and continues with that.
    """

    def unload(segment: SegmentInfo) -> None:
        # In these releases a segment that ends while its broker changes ledgers takes messages again (#26680). What it
        # stored since would be behind its end, and never be delivered; the end is moved behind it.
        if not is_terminated(task, segment):  # mutant: topic-controller/gives-up-a-segment-that-is-open-again
            terminate_segment(task, segment)
        # Somebody may have deleted it.
        with suppress(AdminNotFound):
            task.admin.topics.unload(segment_topic(task.name, segment.descriptor))

    task.each(segments, unload)


def subscriptions_by_segment(
    task: ControllerTask, segments: Iterable[SegmentInfo]
) -> dict[SegmentInfo, set[str] | None]:
    """Durable subscriptions of segments, by segment; None for one that somebody has deleted.

    Readers, deduplication and compaction have cursors too, which do not count.
    """

    def read(segment: SegmentInfo) -> tuple[SegmentInfo, set[str] | None]:
        try:
            stats = task.admin.topics.stats(segment_topic(task.name, segment.descriptor))
        except AdminNotFound:
            return segment, None
        return segment, {*stats.durable_subscriptions}

    return dict(task.each(segments, read))


def delete_topic(task: ControllerTask, name: TopicName, *, force: bool = True) -> None:
    """Delete one of the topics; harmless where it is gone.

    Args:
        task: an attempt of the controller.
        name: of the topic.
        force: also under clients.

    Raises:
        AdminConflict: it has clients, and it is not forced.
    """

    def delete(admin: PulsarAdmin) -> None:
        with suppress(AdminNotFound):
            admin.topics.delete(name, force=force)

    # A late one would delete a segment of a topic that was created again under the same name.
    task.cluster.change_or_never(
        connect=lambda admin: admin.topics.internal_stats(name), fence=task.require, change=delete
    )


def _with(subscriptions: Iterable[str], places: Iterable[set[str] | None]) -> set[str]:
    """Subscriptions, and those that have places on other segments; see `subscriptions_by_segment`."""
    return {*subscriptions}.union(*(there or () for there in places))


def _create_topic(task: ControllerTask, name: TopicName) -> InternalStats | None:
    """Create a topic, unless it is there; return how the one is that is there, None for a new one."""
    try:
        task.admin.topics.create(name)
    except AdminConflict as refusal:
        # A limit that is reached has the same status.
        try:
            return task.admin.topics.internal_stats(name)
        except AdminNotFound:
            raise refusal from None
    return None


def _is_unused(found: InternalStats) -> bool:
    """Return whether a topic can become a segment: it takes messages, and has none."""
    return not found.terminated and found.state != _FENCED and not found.number_of_entries


def _create_cursor(task: ControllerTask, name: TopicName, subscription: str, position: Position = EARLIEST) -> None:
    try:
        task.admin.subscriptions.create(name, subscription, position)
    except AdminConflict:
        if subscription not in task.admin.topics.stats(name).subscriptions:
            raise


def _set_policy(task: ControllerTask, name: TopicName, policy: str, value: Any, *, new: bool) -> None:
    """Set a policy where it is another; a new topic has none."""
    if new or task.admin.topic_policies.get(name, policy) != value:
        task.admin.topic_policies.set(name, policy, value)


@contextmanager
def retry_if_deleted(name: TopicName) -> Generator[None]:
    """A new topic is one that nobody uses, until its policies say that it stays."""
    try:
        yield
    except AdminNotFound as error:
        raise RetryableError(
            f"{name} went while it was made; it is made again. If that goes on, brokers delete what nobody uses within "
            "too few seconds: raise brokerDeleteInactiveTopicsMaxInactiveDurationSeconds"
        ) from error
