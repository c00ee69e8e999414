"""The verb `set_auto_scale`."""

from __future__ import annotations

from activities.scalable_topic.auto_scale import set_auto_scale, stored_policy
from activities.scalable_topic.operations.context import Hand, Look
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.operation_results import TopicOutcome, Verdict


def look_at_policy(look: Look) -> TopicOutcome:
    """Return which policy would be set instead of which."""
    look.layout()
    now = look.reader.scalable_topics.auto_scale_policy(look.name)
    stored = stored_policy(_wanted(look), now)
    if now == stored:
        return look.outcome(Verdict.UNCHANGED, f"its policy is {stored.body()} already")
    return look.outcome(Verdict.CHANGED, f"its policy would be {stored.body()} instead of {_told(now)}")


def set_policy(hand: Hand) -> TopicOutcome:
    """Set the policy where it is another."""
    hand.layout()
    now, wanted = hand.reader.scalable_topics.auto_scale_policy(hand.name), _wanted(hand)
    stored = stored_policy(wanted, now)
    if now == stored:
        return hand.outcome(Verdict.UNCHANGED, f"its policy is {_told(now)} already")
    set_auto_scale(hand.admin, hand.task.cluster.change_or_never, hand.name, wanted, hand.guard.require)
    return hand.outcome(Verdict.CHANGED, f"its policy is {stored.body()} instead of {_told(now)}")


def _wanted(look: Look) -> AutoScale:
    policy = look.task.input.auto_scale
    assert policy is not None, "the input was checked"
    return policy


def _told(policy: AutoScalePolicy | None) -> str:
    return str(policy.body()) if policy else "none"
