"""Input of operations on scalable topics, which brokers' own controllers carry out (PIP-468)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from models.lifecycle.fields import Bool
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.copies import KeyHash
from models.scalable_topic.input import ClusterInput, whole_topic
from models.segments.segment import MAX_BUCKETS
from models.topic_names import partition_number

KIND = "scalable-operation"

_DOMAIN = re.compile(r"(persistent|topic)://")
_NAME = re.compile(r"[^/:]+/[^/]+/.+")


class Operation(StrEnum):
    """An operation on each topic.

    SPLIT, MERGE, REBUCKET: change its segments.
    SET_AUTO_SCALE: set the policy by which brokers change segments automatically.
    AUDIT: find faults that would lose messages; repairs them if `fix` is set.
    CLEAR_EMPTY: remove an empty record that prevents brokers from using the topic.
    COPY: copy its messages to a regular topic; a repetition copies newer messages.
    END_COPY: end the copy, once its consumers have their own subscriptions.
    """

    SPLIT = "split"
    MERGE = "merge"
    REBUCKET = "rebucket"
    SET_AUTO_SCALE = "set_auto_scale"
    AUDIT = "audit"
    CLEAR_EMPTY = "clear_empty"
    COPY = "copy"
    END_COPY = "end_copy"


class SegmentChoice(StrEnum):
    """Choice of the segment to change: the one with the most hashes, or the one with the most traffic."""

    WIDEST = "widest"
    BUSIEST = "busiest"


_READING = (Operation.AUDIT,)


def local_name(text: str) -> str:
    """Return a topic or pattern as `tenant/namespace/topic`, without its domain.

    Raises:
        ValueError: the text is neither.
    """
    name = _DOMAIN.sub("", text)
    if not _NAME.fullmatch(name) or partition_number(name) is not None:
        raise ValueError(
            f"{text!r} is not a topic or pattern; expected topic://tenant/namespace/topic or tenant/namespace/*"
        )
    return name


TopicOrPattern = Annotated[str, AfterValidator(local_name)]
"""Topic or pattern of topics, with or without a domain; stored as `tenant/namespace/topic`."""


class ScalableOperationInput(ClusterInput):
    """Input of `ScalableOperation`.

    Attributes:
        hold_before_cutover: wait for `proceed` before the first topic; not by default, since an operation is one order.
        cutover_at: earliest start, with a time zone.
        topics: scalable topics, or patterns of their names; `*` matches any part of a name.
        operation: the operation on each of them.
        segment: split, rebucket: id of the segment; if unset, `choose` selects one.
        choose: split, rebucket: how a segment is selected if `segment` is unset.
        buckets: rebucket: new number of entry buckets, the maximum of stream consumers that share the segment by key.
        segments: merge: ids of two neighbours; if unset, the pair with the least traffic.
        auto_scale: set_auto_scale: the new policy of each topic.
        fix: audit: also repair what is found.
        copy_to: copy, end_copy: the regular topic, `tenant/namespace/topic`; `*` is replaced by the name of
            the scalable topic.
        copy_partitions: copy: partitions of the regular topic; 0 for an unpartitioned one.
        copy_hashing: copy: how producers of the regular topic choose a partition for a key.
        copy_subscriptions: copy: subscriptions to create on the regular topic before its first message.
        copy_throttle: copy: limit in megabytes per second; unlimited if unset.
    """

    hold_before_cutover: Bool = False
    topics: tuple[TopicOrPattern, ...] = Field(min_length=1)
    operation: Operation
    segment: int | None = Field(default=None, ge=0)
    choose: SegmentChoice = SegmentChoice.WIDEST
    buckets: int | None = Field(default=None, ge=1, le=MAX_BUCKETS)
    segments: tuple[int, int] | None = None
    auto_scale: AutoScale | None = None
    fix: Bool = False
    copy_to: str = "*-regular"
    copy_partitions: int = Field(default=0, ge=0)
    copy_hashing: KeyHash = KeyHash.JAVA
    copy_subscriptions: tuple[str, ...] = ()
    copy_throttle: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.operation is Operation.SET_AUTO_SCALE and self.auto_scale is None:
            raise ValueError('set_auto_scale needs the policy, for example "auto_scale": {"min_segments": 4}')
        if self.operation is Operation.REBUCKET and self.buckets is None:
            raise ValueError('rebucket needs the number of entry buckets, for example "buckets": 4')
        for name, operations in _ONLY_FOR.items():
            if self.operation not in operations and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is an option of {operations[0]}, not of {self.operation}; remove it")
        several = len(self.topics) > 1 or any(map(self.is_pattern, self.topics))
        if several and (self.segment is not None or self.segments is not None):
            raise ValueError("segment ids need a single topic; name one topic, or remove the ids")
        if several and "*" not in self.copy_to:
            raise ValueError('several topics cannot be copied to one topic; use for example "copy_to": "*-regular"')
        whole_topic(self.copy_of("tenant/namespace/topic"))
        if self.segments and self.segments[0] == self.segments[1]:
            raise ValueError("segments contains the same id twice")
        return self

    @property
    def changes(self) -> bool:
        """True if the operation changes something, so that the cluster must be claimed."""
        return self.operation not in _READING or self.fix

    def copy_of(self, topic: str) -> str:
        """Return the full name of the regular topic to which a scalable one is copied.

        Args:
            topic: `tenant/namespace/topic`.
        """
        return f"persistent://{self.copy_to.removeprefix('persistent://').replace('*', topic)}"

    @staticmethod
    def is_pattern(name: str) -> bool:
        """Return whether a name is a pattern."""
        return "*" in name

    @property
    def workflow_id(self) -> str:
        """ID of the only such operation of the cluster: the server refuses a second start."""
        return f"{KIND}/{self.cluster}/{self.operation}"

    @property
    def target_name(self) -> str:
        """Names and patterns of the topics."""
        return ", ".join(self.topics)

    @property
    def summary(self) -> str:
        """One-line description of the operation."""
        return f"{self.operation}: {self.target_name} of {self.cluster}{' (dry run)' if self.dry_run else ''}"


_ONLY_FOR: dict[str, tuple[Operation, ...]] = {
    "segment": (Operation.SPLIT, Operation.REBUCKET),
    "choose": (Operation.SPLIT, Operation.REBUCKET),
    "buckets": (Operation.REBUCKET,),
    "segments": (Operation.MERGE,),
    "auto_scale": (Operation.SET_AUTO_SCALE,),
    "fix": (Operation.AUDIT,),
    "copy_to": (Operation.COPY, Operation.END_COPY),
    "copy_partitions": (Operation.COPY,),
    "copy_hashing": (Operation.COPY,),
    "copy_subscriptions": (Operation.COPY,),
    "copy_throttle": (Operation.COPY,),
}
