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
    """What is done with each topic.

    SPLIT, MERGE, REBUCKET: change its segments.
    SET_AUTO_SCALE: set when brokers change them on their own.
    AUDIT: look for what will lose messages; cures it if asked to.
    CLEAR_EMPTY: remove a record without a value, which keeps brokers from the topic.
    COPY: copy its messages to a regular topic; again, to bring over what came since.
    END_COPY: end the copy, when its consumers have subscriptions of their own.
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
    """Which active segment is changed: the one with the most hashes, or the one with the most traffic."""

    WIDEST = "widest"
    BUSIEST = "busiest"


_READING = (Operation.AUDIT,)


def local_name(text: str) -> str:
    """Return `tenant/namespace/topic` of a topic or a pattern, as operators write it.

    Raises:
        ValueError: it is none.
    """
    name = _DOMAIN.sub("", text)
    if not _NAME.fullmatch(name) or partition_number(name) is not None:
        raise ValueError(
            f"{text!r} is no whole topic; write topic://tenant/namespace/topic, or a pattern: tenant/namespace/*"
        )
    return name


TopicOrPattern = Annotated[str, AfterValidator(local_name)]
"""A whole topic, with or without its domain, or a pattern of such; kept as `tenant/namespace/topic`."""


class ScalableOperationInput(ClusterInput):
    """Input of `ScalableTopicOperation`.

    Attributes:
        hold_before_cutover: wait for `proceed` before the first topic.
        cutover_at: begin no earlier. With its time zone.
        topics: scalable topics, or patterns of their names; `*` stands for any part of a name.
        operation: what is done with each of them.
        segment: split, rebucket: its id; none for the one that `choose` says.
        choose: split, rebucket: which segment, where none is named.
        buckets: rebucket: how many entry buckets it gets: so many stream consumers can share it, by key.
        segments: merge: ids of two neighbours; none for those with the least traffic.
        auto_scale: set_auto_scale: the policy that each topic gets.
        fix: audit: also cure what is found.
        copy_to: copy, end_copy: the regular topic, `tenant/namespace/topic`; `*` stands for all of the scalable one.
        copy_partitions: copy: that the regular topic has, or gets; 0 for none.
        copy_hashing: copy: how producers of the regular topic choose a partition for a key.
        copy_subscriptions: copy: that the regular topic gets before its first message.
        copy_throttle: copy: limit in megabytes per second; none for no limit.
    """

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
                raise ValueError(f"{name} belongs to {operations[0]}, and not to {self.operation}; leave it out")
        several = len(self.topics) > 1 or any(map(self.is_pattern, self.topics))
        if several and (self.segment is not None or self.segments is not None):
            raise ValueError("ids of segments are those of one topic: name one, or leave the ids out")
        if several and "*" not in self.copy_to:
            raise ValueError('several topics cannot be copied to one; write "copy_to": "*-regular", for example')
        whole_topic(self.copy_of("tenant/namespace/topic"))
        if self.segments and self.segments[0] == self.segments[1]:
            raise ValueError("segments names the same one twice")
        return self

    @property
    def changes(self) -> bool:
        """Whether anything is changed, and the cluster must be claimed."""
        return self.operation not in _READING or self.fix

    def copy_of(self, topic: str) -> str:
        """Return the full name of the regular topic to which a scalable one is copied.

        Args:
            topic: `tenant/namespace/topic`.
        """
        return f"persistent://{self.copy_to.removeprefix('persistent://').replace('*', topic)}"

    @staticmethod
    def is_pattern(name: str) -> bool:
        """Return whether a name stands for any number of topics."""
        return "*" in name

    @property
    def workflow_id(self) -> str:
        """One such operation for each cluster at a time: a second start is refused by the server."""
        return f"{KIND}/{self.cluster}/{self.operation}"

    @property
    def target_name(self) -> str:
        """The topics."""
        return ", ".join(self.topics)

    @property
    def summary(self) -> str:
        """What is done."""
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
