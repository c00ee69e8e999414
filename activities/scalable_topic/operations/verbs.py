"""The one list of verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from activities.scalable_topic.operations import audit, auto_scale_policy, copies, empty_record, split_merge
from activities.scalable_topic.operations.context import Hand, Look
from models.scalable_topic.operation_input import Operation
from models.scalable_topic.operation_results import TopicOutcome


class Verb(NamedTuple):
    """How an operation is carried out for one topic.

    Attributes:
        look: tells what would be done, or what is found; changes nothing.
        act: does it, each step so that it can be done again; None for what only looks.
    """

    look: Callable[[Look], TopicOutcome]
    act: Callable[[Hand], TopicOutcome] | None = None


VERBS: dict[Operation, Verb] = {
    Operation.SPLIT: Verb(split_merge.look_at_split, split_merge.split),
    Operation.MERGE: Verb(split_merge.look_at_merge, split_merge.merge),
    Operation.REBUCKET: Verb(split_merge.look_at_rebucket, split_merge.rebucket),
    Operation.SET_AUTO_SCALE: Verb(auto_scale_policy.look_at_policy, auto_scale_policy.set_policy),
    Operation.AUDIT: Verb(audit.audit, audit.fix),
    Operation.CLEAR_EMPTY: Verb(empty_record.look_at_record, empty_record.remove_empty),
    Operation.COPY: Verb(copies.look_at_copy, copies.copy),
    Operation.END_COPY: Verb(copies.look_at_end, copies.end_copy),
}
"""By operation."""
