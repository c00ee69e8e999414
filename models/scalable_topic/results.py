"""What the activities of the migration to scalable topics return."""

from __future__ import annotations

from pydantic import Field

from models.base import Result
from models.lifecycle.failures import FailedItem
from models.lifecycle.report import PrecheckResult


class ClientCensus(Result):
    """Who is connected to a regular topic.

    Attributes:
        legacy: producers, consumers and readers that cannot follow to a scalable topic; those of each partition count.
        named: the first of them, each once and in words: name, address, version and where.
        managed: those that follow by themselves (V5).
    """

    legacy: int = 0
    named: tuple[str, ...] = ()
    managed: int = 0


class Precheck(PrecheckResult):
    """Result of PRECHECK; in a dry run it is the plan.

    Attributes:
        parents: regular topics that become sealed segments; `partitioned` tells whether these are partitions.
        children: descriptors of the segments that will take new messages, each a child of all parents.
        subscriptions: durable ones, and `backlog`, the messages that they have not acknowledged.
        stored_bytes: what the regular topic has stored; so much at least is kept while policies are held.
        ordered: types of ordered subscriptions, by name, as they were seen so far.
    """

    parents: int = 0
    partitioned: bool = False
    children: tuple[str, ...] = ()
    subscriptions: int = 0
    backlog: int = 0
    stored_bytes: int = 0
    ordered: dict[str, str] = Field(default_factory=dict[str, str])


class Survey(PrecheckResult):
    """Result of PRECHECK of many topics; in a dry run it is the plan.

    Attributes:
        topics: regular ones that would become scalable, in so many `namespaces`.
        subscriptions: durable ones, and `backlog`, the messages that they have not acknowledged.
        stored_bytes: what these topics have stored; so much at least is kept while policies are held.
        blocked: topics that cannot become scalable as they are, with the first reason; `blocked_count` says how many.
    """

    topics: int = 0
    namespaces: int = 0
    subscriptions: int = 0
    backlog: int = 0
    stored_bytes: int = 0
    blocked: tuple[FailedItem, ...] = ()
    blocked_count: int = 0


class Released(Result):
    """Policies of namespaces were put back.

    Attributes:
        kept: what somebody else has set meanwhile, and stays; in words.
        faults: what was asked for and is not done; in words.
    """

    kept: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Undone(Result):
    """Result of ROLLBACK.

    Attributes:
        why: why the topic is scalable all the same, and has been completed; empty where everything was given back.
        kept: policies that somebody else has set meanwhile, and that stay; in words.
    """

    why: str = ""
    kept: tuple[str, ...] = ()


class ClientsGone(Result):
    """Result of CLIENTS.

    Attributes:
        waiting: for what it would still must be waited; empty where the topic can become scalable.
        ordered: types of ordered subscriptions, by name, as they were seen so far.
    """

    waiting: str = ""
    ordered: dict[str, str] = Field(default_factory=dict[str, str])


class FlippedTopic(Result):
    """A topic that is scalable.

    Attributes:
        segments: that take new messages.
        registered: subscriptions that have a record and a cursor on each of these segments.
        terminated: regular topics that this attempt had to end itself.
        migrate_seconds: of the brokers' own call; 0 where an earlier attempt had made it.
        seconds: of all of it.
        faults: how the layout differs from the plan, in words; empty for none.
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
        flipped: what was done; None where nothing has changed.
        refused: why nothing has changed: clients that cannot follow have come meanwhile.
    """

    flipped: FlippedTopic | None = None
    refused: str = ""


class DrainedTopic(Result):
    """Result of DRAIN.

    Attributes:
        seconds: for how long it was watched.
        left: subscriptions with old messages that are not consumed, with how many.
    """

    seconds: float
    left: dict[str, int]


class TopicCheck(Result):
    """Result of VERIFY.

    Attributes:
        faults: what is wrong with layout, records or cursors, in words; empty for none.
        segments: that take new messages.
        subscriptions: with a record and a cursor on each of these segments.
        pruned: regular topics that the layout does not name any more; nothing is waited for in them.
    """

    faults: tuple[str, ...]
    segments: int
    subscriptions: int
    pruned: int


class CleanedUp(Result):
    """Result of CLEANUP.

    Attributes:
        deleted: regular topics that are gone; a partitioned one counts once.
        kept: the first of those that stay, with the reason, and `kept_count`, how many.
    """

    deleted: int = 0
    kept: tuple[FailedItem, ...] = ()
    kept_count: int = 0
