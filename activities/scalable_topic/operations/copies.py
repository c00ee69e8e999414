"""Operations `copy` and `end_copy`: the only way from a scalable topic to a regular one."""

from __future__ import annotations

from activities.scalable_topic.operations.context import TopicEditor, TopicView, local
from activities.scalable_topic.operations.copy_out.copy_out import copy_out, finish_copy
from clients.pulsar.names import TopicName
from models.scalable_topic.copies import CopiedOut
from models.scalable_topic.operation_state import TopicOutcome, Verdict


def preview_copy(view: TopicView) -> TopicOutcome:
    """Return what would be copied."""
    view.layout()
    result = _copied(view, dry_run=True)
    description = f"{result.entries} stored entries of {result.segments} segments would be copied to {result.target}"
    return view.outcome(Verdict.CHANGED, description)


def copy(editor: TopicEditor) -> TopicOutcome:
    """Copy stored messages and those that arrive during the copy, and verify the result.

    Raises:
        StoreError: see `copy_out`.
    """
    editor.layout()
    result = _copied(editor, dry_run=False)
    description = (
        f"{result.messages} messages of {result.segments} segments are in {result.target}, equal and in the order of "
        f"their keys (digest {result.digest})"
    )
    if result.caught_up:
        return editor.outcome(Verdict.CHANGED, description, messages=result.messages)
    more = "; producers still send: stop them, and copy again while the namespace's retention keeps all messages"
    return editor.outcome(Verdict.FOUND, description + more, messages=result.messages)


def preview_end_copy(view: TopicView) -> TopicOutcome:
    """Return the copy that would be ended."""
    return view.outcome(Verdict.CHANGED, f"the copy to {_target(view)} would be ended: it is not carried on after that")


def end_copy(editor: TopicEditor) -> TopicOutcome:
    """Delete the records of the copy and the subscription that retained its messages.

    Raises:
        StoreConflict: the target has no other subscription.
    """
    finish_copy(editor.task, _target(editor))
    return editor.outcome(Verdict.CHANGED, f"the copy to {_target(editor)} is ended")


def _target(view: TopicView) -> TopicName:
    return TopicName.parse(view.task.input.copy_of(local(view.name)))


def _copied(view: TopicView, *, dry_run: bool) -> CopiedOut:
    input = view.task.input
    return copy_out(
        view.task,
        view.name,
        _target(view),
        partitions=input.copy_partitions,
        hashing=input.copy_hashing,
        subscriptions=input.copy_subscriptions,
        throttle=input.copy_throttle,
        dry_run=dry_run,
    )
