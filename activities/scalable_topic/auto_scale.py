"""The auto-scale policy of one scalable topic: set and read back, or overridden temporarily (PIP-483)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from pydantic.alias_generators import to_camel

from activities.pulsar.namespace_guard import RecordGuard
from clients.cas.store import CasStore
from clients.errors import StoreContention, StoreNotFound
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound, AdminPreconditionFailed
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.json_records import Record, change_record, read_record
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_policy import with_value
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.claim import Changed
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.claims import OperatedTopic

_DISABLED = AutoScale(enabled=False)
_FIELD = "autoScalePolicy"
_KNOWN = {to_camel(name) for name in AutoScale.model_fields}


def stored_policy(wanted: AutoScale, now: AutoScalePolicy | None) -> AutoScalePolicy:
    """Return the policy that is stored for a wanted one.

    Args:
        wanted: the input of the operator; missing fields follow the namespace and the brokers.
        now: the current policy; fields that the input cannot express stay.
    """
    unknown = {name: value for name, value in now.body().items() if name not in _KNOWN} if now else {}
    fields = {to_camel(name): value for name, value in wanted.model_dump(exclude_none=True).items()}
    return AutoScalePolicy.model_validate({**unknown, **fields})


def set_or_fall_back(
    admin: PulsarAdminReader,
    change: ChangeOrNever,
    topic: TopicName,
    wanted: AutoScale,
    fence: Callable[[], object],
) -> str:
    """Set the policy of a topic, or keep brokers from merging its segments where they refuse it.

    Args:
        admin: of the cluster.
        change: makes the change.
        topic: the scalable one.
        wanted: its policy.
        fence: raises if another attempt is in charge.

    Returns:
        Why the topic has another policy; empty if it is set.
    """
    try:
        set_auto_scale(admin, change, topic, wanted, fence)
    except AdminNotFound:
        return f"topic://{topic.local_path} was deleted, and gets no auto-scale policy"
    except AdminPreconditionFailed as error:
        why = f"brokers refuse the auto-scale policy of topic://{topic.local_path}: {error.reason}"
        try:
            # mutant: scalable-topic/a-refused-policy-leaves-none
            set_auto_scale(admin, change, topic, _DISABLED, fence)
        except AdminPreconditionFailed:
            return f"{why}; it has none"
        return f'{why}; it has {{"enabled": false}} instead, so brokers neither split nor merge its segments'
    return ""


def set_auto_scale(
    admin: PulsarAdminReader,
    change: ChangeOrNever,
    topic: TopicName,
    wanted: AutoScale,
    fence: Callable[[], object],
) -> None:
    """Set the policy of a topic if it differs; fields that the input omits follow the namespace.

    Args:
        admin: of the cluster.
        change: makes the change.
        topic: the scalable one.
        wanted: its policy.
        fence: raises if another attempt is in charge.

    Raises:
        AdminPreconditionFailed: its values contradict those of the namespace.
        StoreContention: another client sets another policy at the same time.
    """
    now = admin.scalable_topics.auto_scale_policy(topic)
    policy = stored_policy(wanted, now)
    if now == policy:
        return
    change(
        connect=lambda admin: admin.scalable_topics.auto_scale_policy(topic),
        fence=fence,
        change=lambda admin: admin.scalable_topics.set_auto_scale_policy(topic, policy),
    )
    if (after := admin.scalable_topics.auto_scale_policy(topic)) != policy:
        current = after.body() if after else "none"
        raise StoreContention(
            f"the auto-scale policy of {topic} is {current} right after it was set to {policy.body()}"
        )


def hold_auto_scale(store: CasStore, guard: RecordGuard[OperatedTopic], topic: TopicName) -> None:
    """Disable auto-scaling of a topic while its segments are changed; record the previous policy first.

    Idempotent. Brokers split and merge on their own, and two concurrent changes leave segments without a topic (5.0.1).
    The policy is changed in the metadata store, by compare-and-set: a late request of a worker would disable
    auto-scaling permanently. A split or merge that a broker has already started is completed.
    """
    if _is_disabled(_stored(read_record(store, topic.scalable_path) or {})):
        return

    def disable(record: Record) -> Record:
        if _is_disabled(now := _stored(record)):
            return record
        ours = {**(now or {}), "enabled": False}
        guard.note(auto_scale=Changed(before=now, ours=ours))
        return with_value(record, (_FIELD,), ours)

    change_record(store, topic.scalable_path, guard.require, disable)


def restore_auto_scale(store: CasStore, guard: RecordGuard[OperatedTopic], topic: TopicName) -> Iterator[str]:
    """Restore the policy, and delete its record; yield a note if another client has set a policy, which stays."""
    noted = guard.require().auto_scale
    if noted is None:
        return
    note = ""

    def restore(record: Record) -> Record:
        nonlocal note
        now, note = _stored(record), ""
        if now == noted.ours:
            return with_value(record, (_FIELD,), noted.before)
        if now != noted.before:
            note = f"the auto-scale policy of {topic}, {now or 'none'}, was set by another client, and stays"
        return record

    # If the topic is gone, so is its policy.
    if read_scalable(store, topic).state is RecordState.GOOD:
        with suppress(StoreNotFound):
            change_record(store, topic.scalable_path, guard.require, restore)
    guard.note(auto_scale=None)
    if note:
        yield note


def _is_disabled(policy: Record | None) -> bool:
    return policy is not None and policy.get("enabled") is False


def _stored(record: Record) -> Record | None:
    """Return the policy without unset fields, which brokers may write as null."""
    policy = record.get(_FIELD)
    return None if policy is None else {name: value for name, value in policy.items() if value is not None}
