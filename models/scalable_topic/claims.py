"""Records of migrations to scalable topics, and of operations on them, written before anything is changed."""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import quote

from pydantic import Field

from models.lifecycle.claim import CLAIM, Changed, Claim
from models.scalable_topic import input, namespace_input, operation_input
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.operation_state import TopicOutcome
from models.segments.segment import SegmentInfo

_OURS = tuple(f"{kind}/" for kind in (input.KIND, namespace_input.KIND, operation_input.KIND))

TOPICS = f"{CLAIM}-topics"
"""Where records of single topics are."""


class GuardedNamespace(Claim):
    """The record of a namespace whose policies are held while topics of it become scalable.

    Attributes:
        retention: how long acknowledged messages are kept, before it was changed.
        auto_scale: when brokers split and merge segments on their own, before it was changed.
    """

    retention: Changed | None = None
    auto_scale: Changed | None = None


class Stage(StrEnum):
    """How far a topic is: nothing was asked of brokers; it is, or may be, scalable half-finished; all of it was done.

    WITHDRAWING: it stays regular, and what was made for it before is being deleted.
    """

    CLAIMED = "claimed"
    FLIPPING = "flipping"
    WITHDRAWING = "withdrawing"
    FLIPPED = "flipped"


class TopicClaim(Claim):
    """The record of one topic, the lock of the proposal (PIP-475, "Broker-side migration steps" 1).

    Attributes:
        stage: how far the topic is.
        partitions: of the regular topic; 0 for none.
        registered: subscriptions that were recorded when it was done; what is not any more, its owner has deleted.
        auto_scale: the policy that it gets before the namespace's own counts again.
        types: of ordered subscriptions, by name, which brokers forget when they load the topic again.
        held: the regular topic is kept until the grace window ends, even if all of it is consumed.
        cleaned: the cleanup is done with it; `deleted` says whether it has deleted the regular topic.
        kept: why it has not; empty where the topic was gone before.
        asked: names of brokers that may still have a request to make the topic scalable.
    """

    stage: Stage = Stage.CLAIMED
    partitions: int = 0
    registered: tuple[str, ...] = ()
    auto_scale: AutoScale | None = None
    types: dict[str, str] = Field(default_factory=dict[str, str])
    held: bool = False
    cleaned: bool = False
    deleted: bool = False
    kept: str = ""
    asked: tuple[str, ...] = ()

    @property
    def of_another(self) -> dict[str, object]:
        """What must be noted of another topic of the same name: nothing yet, but for what its run has seen."""
        of_run = {*Claim.model_fields, "auto_scale", "types"}
        fields = type(self).model_fields.items()
        return {name: field.get_default(call_default_factory=True) for name, field in fields if name not in of_run}

    @property
    def begun(self) -> bool:
        """Whether brokers may have been asked for something that makes the topic scalable, or takes that back."""
        return self.stage is not Stage.CLAIMED or bool(self.asked)


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
    """Return the path of a topic's record; of one level, since Oxia lists no children of what is not.

    Args:
        name: `tenant/namespace/topic`.
    """
    return f"{OPERATIONS}/{quote(name, safe='')}"


def topic_record(local_name: str) -> str:
    """Return the path of a topic's record; of one level, since Oxia lists no children of what is not.

    Args:
        local_name: `tenant/namespace/topic`.
    """
    return f"{TOPICS}/{quote(local_name, safe='')}"


def is_ours(claim: Claim) -> bool:
    """Whether a claim or a record is of a workflow about scalable topics; other migrations keep theirs next to them."""
    return claim.workflow_id.startswith(_OURS)
