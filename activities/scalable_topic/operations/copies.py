"""The verbs `copy` and `end_copy`: the only way from a scalable topic back to a regular one."""

from __future__ import annotations

from activities.scalable_topic.operations.context import Hand, Look, local
from activities.scalable_topic.operations.copy_out.copy_out import copy_out, let_go
from clients.pulsar.names import TopicName
from models.scalable_topic.copies import CopiedOut
from models.scalable_topic.operation_results import TopicOutcome, Verdict


def look_at_copy(look: Look) -> TopicOutcome:
    """What would be copied."""
    look.layout()
    found = _copied(look, dry_run=True)
    told = f"{found.entries} stored entries of {found.segments} segments would be copied to {found.target}"
    return look.outcome(Verdict.CHANGED, told)


def copy(hand: Hand) -> TopicOutcome:
    """Copy what is stored, and what comes meanwhile, and prove it.

    Raises:
        StoreError: see `copy_out`.
    """
    hand.layout()
    done = _copied(hand, dry_run=False)
    told = (
        f"{done.messages} messages of {done.segments} segments are in {done.target}, equal and in the order of their "
        f"keys (digest {done.digest})"
    )
    if done.caught_up:
        return hand.outcome(Verdict.CHANGED, told, messages=done.messages)
    more = "; producers still send: stop them, and copy again"
    return hand.outcome(Verdict.FOUND, told + more, messages=done.messages)


def look_at_end(look: Look) -> TopicOutcome:
    """Which copy would be ended."""
    return look.outcome(Verdict.CHANGED, f"the copy to {_target(look)} would be ended: it is not carried on after that")


def end_copy(hand: Hand) -> TopicOutcome:
    """Forget the copy, and give up the subscription that has kept its messages.

    Raises:
        StoreConflict: nobody else has a subscription there.
    """
    let_go(hand.task, _target(hand))
    return hand.outcome(Verdict.CHANGED, f"the copy to {_target(hand)} is ended")


def _target(look: Look) -> TopicName:
    return TopicName.parse(look.task.input.copy_of(local(look.name)))


def _copied(look: Look, *, dry_run: bool) -> CopiedOut:
    input = look.task.input
    return copy_out(
        look.task,
        look.name,
        _target(look),
        partitions=input.copy_partitions,
        hashing=input.copy_hashing,
        subscriptions=input.copy_subscriptions,
        throttle=input.copy_throttle,
        dry_run=dry_run,
    )
