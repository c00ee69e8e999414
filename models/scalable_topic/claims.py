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
"""Path below which the records of topics are stored."""


class GuardedNamespace(Claim):
    """Record of a namespace whose policies are overridden while its topics become scalable.

    Attributes:
        retention: the original retention policy.
        auto_scale: the original auto-scale policy.
    """

    retention: Changed | None = None
    auto_scale: Changed | None = None


class Stage(StrEnum):
    """Progress of a topic's migration.

    CLAIMED: the topic is locked; brokers received no request.
    FLIPPING: brokers may have made the topic scalable, perhaps incompletely.
    WITHDRAWING: the topic stays regular; segments that were created for it are being deleted.
    FLIPPED: the topic is scalable and complete.
    """

    CLAIMED = "claimed"
    FLIPPING = "flipping"
    WITHDRAWING = "withdrawing"
    FLIPPED = "flipped"


class TopicClaim(Claim):
    """Record of one topic: the lock of PIP-475, "Broker-side migration steps" 1.

    Attributes:
        stage: how far the topic is.
        partitions: of the regular topic; 0 for an unpartitioned one.
        registered: subscriptions that were recorded by the flip; if one is missing later, its owner deleted it.
        auto_scale: the policy that it gets before the namespace's own applies again.
        types: of ordered subscriptions, by name; brokers forget them when they reload the topic.
        held: the regular topic is kept until the grace window ends, even if it is fully consumed.
        cleaned: the cleanup has processed the topic; `deleted` is true if it deleted the regular topic.
        kept_reason: why the regular topic stays; empty if it did not exist any more.
        asked: brokers that may still process a request to make the topic scalable.
    """

    stage: Stage = Stage.CLAIMED
    partitions: int = 0
    registered: tuple[str, ...] = ()
    auto_scale: AutoScale | None = None
    types: dict[str, str] = Field(default_factory=dict[str, str])
    held: bool = False
    cleaned: bool = False
    deleted: bool = False
    kept_reason: str = ""
    asked: tuple[str, ...] = ()

    @property
    def of_another(self) -> dict[str, object]:
        """Initial values of the fields that describe one topic, for another topic that now has the same name."""
        of_run = {*Claim.model_fields, "auto_scale", "types"}
        fields = type(self).model_fields.items()
        return {name: field.get_default(call_default_factory=True) for name, field in fields if name not in of_run}

    @property
    def begun(self) -> bool:
        """True once brokers may have received a request that makes the topic scalable or undoes that."""
        return self.stage is not Stage.CLAIMED or bool(self.asked)


OPERATIONS = f"{CLAIM}-operations"
"""Path below which the records of topics are stored."""


class OperatedTopic(Claim):
    """Record of one topic; it exists until the operation has ended for all topics.

    Attributes:
        auto_scale: the original auto-scale policy; None while it is unchanged.
        segments: the chosen segments, as they were before the change.
        next_segment_id: id of the first new segment.
        buckets: rebucket: number of entry buckets of the new segment.
        outcome: the result for the topic; None until there is one.
    """

    auto_scale: Changed | None = None
    segments: tuple[SegmentInfo, ...] = ()
    next_segment_id: int = -1
    buckets: int | None = None
    outcome: TopicOutcome | None = None


def operation_record(name: str) -> str:
    """Return the path of a topic's record; it has one level because Oxia lists no children of missing nodes.

    Args:
        name: `tenant/namespace/topic`.
    """
    return f"{OPERATIONS}/{quote(name, safe='')}"


def topic_record(local_name: str) -> str:
    """Return the path of a topic's record; it has one level because Oxia lists no children of missing nodes.

    Args:
        local_name: `tenant/namespace/topic`.
    """
    return f"{TOPICS}/{quote(local_name, safe='')}"


def is_ours(claim: Claim) -> bool:
    """Return whether a claim or record belongs to a workflow about scalable topics."""
    return claim.workflow_id.startswith(_OURS)
