"""What the activities of the migration to scalable topics return."""

from __future__ import annotations

from models.lifecycle.base import Result
from models.lifecycle.failures import Blocker


class ClientCensus(Result):
    """Who is connected to a regular topic.

    Attributes:
        legacy: producers, consumers and readers that cannot follow to a scalable topic; those of each partition count.
        named: the first of them, in words: name, address, version and where.
        managed: those that follow by themselves (V5).
    """

    legacy: int = 0
    named: tuple[str, ...] = ()
    managed: int = 0


class Precheck(Result):
    """Result of PRECHECK; in a dry run it is the plan.

    Attributes:
        blockers: what must be cured first; empty means that the migration can start.
        warnings: what the operator should know.
        parents: regular topics that become sealed segments.
        children: descriptors of the segments that will take new messages, each a child of all parents.
        subscriptions: durable ones, and `backlog`, the messages that they have not acknowledged.
        stored_bytes: what the regular topic has stored; so much at least is kept while policies are held.
    """

    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[str, ...] = ()
    parents: int = 0
    children: tuple[str, ...] = ()
    subscriptions: int = 0
    backlog: int = 0
    stored_bytes: int = 0


class Released(Result):
    """Policies of namespaces were put back.

    Attributes:
        kept: what somebody else has set meanwhile, and stays; in words.
    """

    kept: tuple[str, ...] = ()


class ClientsGone(Result):
    """Result of CLIENTS.

    Attributes:
        waiting: for what it would still have to be waited; empty where the topic can become scalable.
    """

    waiting: str = ""


class FlippedTopic(Result):
    """A topic that is scalable.

    Attributes:
        segments: that take new messages.
        registered: subscriptions that have a record and a cursor on each of these segments.
        terminated: regular topics that this attempt had to end itself.
        faults: how the layout differs from the plan, in words; empty for none.
    """

    segments: int
    registered: int
    terminated: int = 0
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
