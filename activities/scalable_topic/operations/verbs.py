"""Table of all operations, and the short ones: `set_auto_scale` and `clear_empty`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from activities.scalable_topic.auto_scale import set_auto_scale, stored_policy
from activities.scalable_topic.operations import audit, copies, split_merge
from activities.scalable_topic.operations.context import TopicEditor, TopicView
from clients.errors import StoreConflict
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.records.scalable_topics import RecordState, clear_empty, read_scalable, unreadable
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.operation_input import Operation
from models.scalable_topic.operation_state import TopicOutcome, Verdict


def preview_policy(view: TopicView) -> TopicOutcome:
    """Return the current policy and the one that would be set."""
    view.layout()
    now = view.reader.scalable_topics.auto_scale_policy(view.name)
    stored = stored_policy(_wanted(view), now)
    if now == stored:
        return view.outcome(Verdict.UNCHANGED, f"its policy is {stored.body()} already")
    return view.outcome(Verdict.CHANGED, f"its policy would be {stored.body()} instead of {_describe(now)}")


def set_policy(editor: TopicEditor) -> TopicOutcome:
    """Set the policy if it differs."""
    editor.layout()
    now, wanted = editor.reader.scalable_topics.auto_scale_policy(editor.name), _wanted(editor)
    stored = stored_policy(wanted, now)
    if now == stored:
        return editor.outcome(Verdict.UNCHANGED, f"its policy is {_describe(now)} already")
    set_auto_scale(editor.admin, editor.task.cluster.change_or_never, editor.name, wanted, editor.guard.require)
    return editor.outcome(Verdict.CHANGED, f"its policy is {stored.body()} instead of {_describe(now)}")


def preview_record(view: TopicView) -> TopicOutcome:
    """Return whether the record would be removed."""
    match state := read_scalable(view.store, view.name).state:
        case RecordState.EMPTY:
            return view.outcome(Verdict.CHANGED, "its record, which has no value, would be removed")
        case RecordState.BROKEN:
            raise StoreConflict(f"{unreadable(view.name, state)}; it stays")
        case _:
            return view.outcome(Verdict.UNCHANGED, f"its record is {state}")


def clear_record(editor: TopicEditor) -> TopicOutcome:
    """Remove a record without a value, and the load reports that created it.

    This is safe while a broker creates the topic: it cannot write its record over an empty one.
    """
    before = preview_record(editor)
    if before.verdict is Verdict.UNCHANGED:
        return before
    clear_empty(editor.store, editor.name, editor.guard.check)
    if (state := read_scalable(editor.store, editor.name).state) is RecordState.EMPTY:
        raise StoreConflict("its record is there again, without a value: a broker still owns a segment of that name")
    return editor.outcome(Verdict.CHANGED, f"its record, which had no value, was removed, and is {state} now")


def _wanted(view: TopicView) -> AutoScale:
    policy = view.task.input.auto_scale
    assert policy is not None, "the input was checked"
    return policy


def _describe(policy: AutoScalePolicy | None) -> str:
    return str(policy.body()) if policy else "none"


class Verb(NamedTuple):
    """Functions that preview and run an operation for one topic.

    Attributes:
        preview: returns what would be done or what is found; changes nothing.
        act: runs it in repeatable steps; None for an operation that only reads.
    """

    preview: Callable[[TopicView], TopicOutcome]
    act: Callable[[TopicEditor], TopicOutcome] | None = None


def _changing(choose: split_merge.Choose) -> Verb:
    """Return the operation that changes the segments that a function chooses."""
    return Verb(partial(split_merge.planned, choose), partial(split_merge.carried_out, choose))


VERBS: dict[Operation, Verb] = {
    Operation.SPLIT: _changing(split_merge.to_split),
    Operation.MERGE: _changing(split_merge.to_merge),
    Operation.REBUCKET: _changing(split_merge.to_rebucket),
    Operation.SET_AUTO_SCALE: Verb(preview_policy, set_policy),
    Operation.AUDIT: Verb(audit.audit, audit.fix),
    Operation.CLEAR_EMPTY: Verb(preview_record, clear_record),
    Operation.COPY: Verb(copies.preview_copy, copies.copy),
    Operation.END_COPY: Verb(copies.preview_end_copy, copies.end_copy),
}
"""By operation."""
