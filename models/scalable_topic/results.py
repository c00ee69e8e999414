"""What the activities of the migration to scalable topics return."""

from __future__ import annotations

from models.lifecycle.base import Result


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
