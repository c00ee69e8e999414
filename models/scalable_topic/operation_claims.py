"""What an operation on a scalable topic notes in the metadata store before it changes anything."""

from __future__ import annotations

from urllib.parse import quote

from models.lifecycle.claim import CLAIM, Changed, Claim
from models.scalable_topic.operation_results import TopicOutcome
from models.segments.segment import SegmentInfo

OPERATIONS = f"{CLAIM}-operations"
"""Where records of single topics are."""


class OperatedTopic(Claim):
    """The record of one topic, which stays until its operation has ended for all topics.

    Attributes:
        auto_scale: when brokers change segments on their own, before it was changed; None while it is as it was.
        segments: that were chosen, as they stood before they were changed.
        next_segment_id: the id that the first new segment gets.
        buckets: rebucket: how many entry buckets the new segment gets.
        outcome: what became of the topic; None before that.
    """

    auto_scale: Changed | None = None
    segments: tuple[SegmentInfo, ...] = ()
    next_segment_id: int = -1
    buckets: int | None = None
    outcome: TopicOutcome | None = None


def operation_record(name: str) -> str:
    """The path of a topic's record; of one level, since Oxia lists no children of what is not.

    Args:
        name: `tenant/namespace/topic`.
    """
    return f"{OPERATIONS}/{quote(name, safe='')}"
