"""Input of operations on scalable topics, which Pulsar 5's own controllers carry out (PIP-468)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from models.lifecycle.fields import Bool
from models.scalable_topic.access import ClusterInput
from models.scalable_topic.auto_scale import AutoScale

KIND = "scalable-operation"

_DOMAIN = re.compile(r"(persistent|topic)://")
_NAME = re.compile(r"[^/:]+/[^/]+/.+")
_PARTITION = re.compile(r"-partition-\d+$")


class Operation(StrEnum):
    """What is done with each topic.

    SPLIT, MERGE: change its segments.
    SET_AUTO_SCALE: set when brokers change them on their own.
    AUDIT: look for what will lose messages; cures it if asked to.
    FIND_ZOMBIES: look for brokers that are said to lead a topic, and do not.
    FIND_STRANDED: look for messages that the topic does not name any more.
    REPAIR_STRANDED: name them again.
    CLEAR_EMPTY: remove a record without a value, which keeps brokers from the topic.
    """

    SPLIT = "split"
    MERGE = "merge"
    SET_AUTO_SCALE = "set_auto_scale"
    AUDIT = "audit"
    FIND_ZOMBIES = "find_zombies"
    FIND_STRANDED = "find_stranded"
    REPAIR_STRANDED = "repair_stranded"
    CLEAR_EMPTY = "clear_empty"


class SegmentChoice(StrEnum):
    """Which active segment is split: the one with the most hashes, or the one with the most traffic."""

    WIDEST = "widest"
    BUSIEST = "busiest"


_READING = (Operation.AUDIT, Operation.FIND_ZOMBIES, Operation.FIND_STRANDED)


def local_name(text: str) -> str:
    """`tenant/namespace/topic` of a topic or a pattern, as operators write it.

    Raises:
        ValueError: it is none.
    """
    name = _DOMAIN.sub("", text)
    if not _NAME.fullmatch(name) or _PARTITION.search(name):
        raise ValueError(
            f"{text!r} is no whole topic; write topic://tenant/namespace/topic, or a pattern: tenant/namespace/*"
        )
    return name


TopicOrPattern = Annotated[str, AfterValidator(local_name)]
"""A whole topic, with or without its domain, or a pattern of such; kept as `tenant/namespace/topic`."""


class ScalableOperationInput(ClusterInput):
    """Input of `ScalableTopicOperation`.

    Attributes:
        topics: scalable topics, or patterns of their names; `*` stands for any part of a name.
        operation: what is done with each of them.
        segment: split: its id; none for the one that `choose` says.
        choose: split: which segment, where none is named.
        segments: merge: ids of two neighbours; none for those with the least traffic.
        auto_scale: set_auto_scale: the policy that each topic gets.
        fix: audit: also cure what is found.
    """

    topics: tuple[TopicOrPattern, ...] = Field(min_length=1)
    operation: Operation
    segment: int | None = Field(default=None, ge=0)
    choose: SegmentChoice = SegmentChoice.WIDEST
    segments: tuple[int, int] | None = None
    auto_scale: AutoScale | None = None
    fix: Bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.operation is Operation.SET_AUTO_SCALE and self.auto_scale is None:
            raise ValueError('set_auto_scale needs the policy, for example "auto_scale": {"min_segments": 4}')
        for name, operation in _ONLY_FOR.items():
            if self.operation is not operation and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} belongs to {operation}, and not to {self.operation}; leave it out")
        named = self.segment is not None or self.segments is not None
        if named and (len(self.topics) > 1 or any(map(self.is_pattern, self.topics))):
            raise ValueError("ids of segments are those of one topic: name one, or leave the ids out")
        if self.segments and self.segments[0] == self.segments[1]:
            raise ValueError("segments names the same one twice")
        return self

    @property
    def changes(self) -> bool:
        """Whether anything is changed, and the cluster has to be claimed."""
        return self.operation not in _READING or self.fix

    @staticmethod
    def is_pattern(name: str) -> bool:
        """Whether a name stands for any number of topics."""
        return any(letter in name for letter in "*?[")

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


_ONLY_FOR = {
    "segment": Operation.SPLIT,
    "choose": Operation.SPLIT,
    "segments": Operation.MERGE,
    "auto_scale": Operation.SET_AUTO_SCALE,
    "fix": Operation.AUDIT,
}
