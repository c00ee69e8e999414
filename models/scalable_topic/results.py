"""Results of the activities of the migration to scalable topics."""

from __future__ import annotations

from pydantic import Field

from models.base import Result
from models.lifecycle.failures import FailedItem
from models.lifecycle.report import PrecheckResult


class ClientCensus(Result):
    """Clients that are connected to a regular topic.

    Attributes:
        legacy: number of producers, consumers and readers that cannot use a scalable topic, added over partitions.
        named: descriptions of the first of them: role, address, version and topic.
        managed: number of V5 clients, which follow by themselves.
    """

    legacy: int = 0
    named: tuple[str, ...] = ()
    managed: int = 0


class Precheck(PrecheckResult):
    """Result of PRECHECK; in a dry run, the plan.

    Attributes:
        parents: number of regular topics that become sealed segments; `partitioned` is true if they are partitions.
        children: descriptors of the segments for new messages, each a child of all parents.
        subscriptions: number of durable subscriptions; `backlog` is the number of their unacknowledged messages.
        stored_bytes: size of the regular topic, the minimum that stays stored while policies are overridden.
        ordered: types of ordered subscriptions seen so far, by name.
    """

    parents: int = 0
    partitioned: bool = False
    children: tuple[str, ...] = ()
    subscriptions: int = 0
    backlog: int = 0
    stored_bytes: int = 0
    ordered: dict[str, str] = Field(default_factory=dict[str, str])


class Survey(PrecheckResult):
    """Result of PRECHECK of many topics; in a dry run, the plan.

    Attributes:
        topics: number of regular topics to migrate; `namespaces` is the number of their namespaces.
        subscriptions: number of durable subscriptions; `backlog` is the number of their unacknowledged messages.
        stored_bytes: size of these topics, the minimum that stays stored while policies are overridden.
        blocked: the first topics that cannot become scalable as they are, with a reason; `blocked_count` counts all.
    """

    topics: int = 0
    namespaces: int = 0
    subscriptions: int = 0
    backlog: int = 0
    stored_bytes: int = 0
    blocked: tuple[FailedItem, ...] = ()
    blocked_count: int = 0


class Released(Result):
    """Result of the restore of namespace policies.

    Attributes:
        notes: descriptions of policies that another client changed, which are not restored, and of completed topics.
        faults: descriptions of policies that could not be applied.
    """

    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Undone(Result):
    """Result of ROLLBACK.

    Attributes:
        why: why the topic is scalable despite the rollback, and was completed; empty after a complete rollback.
        notes: descriptions of policies that another client changed, which are not restored, and of completed topics.
    """

    why: str = ""
    notes: tuple[str, ...] = ()


class ClientsGone(Result):
    """Result of CLIENTS.

    Attributes:
        waiting: what the topic still waits for; empty if it can become scalable.
        ordered: types of ordered subscriptions seen so far, by name.
    """

    waiting: str = ""
    ordered: dict[str, str] = Field(default_factory=dict[str, str])


class FlippedTopic(Result):
    """Figures of a topic that was made scalable.

    Attributes:
        segments: number of segments that take new messages.
        registered: number of subscriptions with a record and a cursor on each of these segments.
        terminated: number of regular topics that this attempt terminated itself.
        migrate_seconds: duration of the brokers' own call; 0 if an earlier attempt made it.
        seconds: duration of the flip.
        faults: descriptions of how the layout differs from the plan.
    """

    segments: int
    registered: int
    terminated: int = 0
    migrate_seconds: float = 0.0
    seconds: float = 0.0
    faults: tuple[str, ...] = ()


class FlipAnswer(Result):
    """Result of FLIP.

    Attributes:
        flipped: figures of the flip; None if nothing was changed.
        refused: why nothing was changed: for example, legacy clients connected in the meantime.
    """

    flipped: FlippedTopic | None = None
    refused: str = ""


class DrainedTopic(Result):
    """Result of DRAIN.

    Attributes:
        seconds: how long the topic was watched.
        backlogs: number of unconsumed old messages, by subscription.
    """

    seconds: float
    backlogs: dict[str, int]


class TopicCheck(Result):
    """Result of VERIFY.

    Attributes:
        faults: descriptions of faults of layout, records or cursors.
        segments: number of segments that take new messages.
        subscriptions: number of subscriptions with a record and a cursor on each of these segments.
        pruned: number of regular topics that the layout no longer names because they are consumed.
    """

    faults: tuple[str, ...]
    segments: int
    subscriptions: int
    pruned: int


class CleanedUp(Result):
    """Result of CLEANUP.

    Attributes:
        deleted: number of deleted regular topics; a partitioned one counts once.
        remaining: the first regular topics that stay, with the reason; `remaining_count` counts all.
    """

    deleted: int = 0
    remaining: tuple[FailedItem, ...] = ()
    remaining_count: int = 0
