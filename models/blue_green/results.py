"""What the activities of the blue-green cluster migration return."""

from __future__ import annotations

from pydantic import Field

from models.base import Result
from models.blue_green.copies import FinalCopy
from models.lifecycle.failures import FailedItem
from models.lifecycle.report import PrecheckResult


class Survey(Result):
    """What would move.

    Attributes:
        namespaces: that the patterns select, in `tenants`.
        topics: partitions and topics without partitions; of them `retained` keep messages that nobody waits for.
        subscriptions: of all topics; `idle` ones have a backlog and no consumer.
        producers: that are connected, and `consumers`.
        not_moved: namespaces of blue that stay.
    """

    tenants: int = 0
    namespaces: int = 0
    topics: int = 0
    retained: int = 0
    subscriptions: int = 0
    idle: int = 0
    producers: int = 0
    consumers: int = 0
    not_moved: int = 0


class Precheck(PrecheckResult):
    """Result of PRECHECK; in a dry run it is the plan.

    Attributes:
        questions: what only an operator can weigh; without an answer the migration waits.
        survey: what would move.
        missing: how many things green lacks, which PROVISION creates.
        differences: the first of the things in which both sides differ, in words.
    """

    questions: tuple[str, ...] = ()
    survey: Survey = Survey()
    missing: int = 0
    differences: tuple[str, ...] = ()


class Provision(Result):
    """Result of PROVISION.

    Attributes:
        created: by what was created: tenants, namespaces, topics, subscriptions, schemas.
        blocking: in what green still differs, and because of which traffic must not move: the first of these, in words.
        blocking_count: how many these are.
        harmless: other differences: what only green has, for example.
    """

    created: dict[str, int] = Field(default_factory=dict[str, int])
    blocking: tuple[str, ...] = ()
    blocking_count: int = 0
    harmless: int = 0


class Loaded(Result):
    """Result of LOAD: all topics of the batch are loaded on blue.

    Attributes:
        topics: partitions and topics without partitions.
        producers: connected to them, and `consumers`.
        backlog: messages that are not acknowledged.
    """

    topics: int
    producers: int
    consumers: int
    backlog: int


class Quiet(Result):
    """Result of QUIESCE.

    Attributes:
        seconds: from the throttle until writes were quiet.
        busy: topics that took messages all the same; nothing may be flipped then.
        checks: how often all topics were looked at.
    """

    seconds: float
    busy: tuple[str, ...] = ()
    checks: int = 0


class Flipped(Result):
    """Result of FLIP.

    Attributes:
        topics: terminated, with the mark that sends clients to green.
        seconds: from the flag until the last of them.
        final_copy: what came behind the copies since they were finished, and was copied right before the flag; None for
            nothing.
        notes: limits that somebody else has set meanwhile.
        reopened: topics that blue's brokers opened again or fenced, and what was done about them, in words.
    """

    topics: int
    seconds: float
    final_copy: FinalCopy | None = None
    notes: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()


class Drained(Result):
    """Result of DRAIN.

    Attributes:
        seconds: from the start of the watch until nothing was left on blue.
        remaining: what is left on blue, with the reason.
        missing: producers and consumers that were on blue and did not come to green; some of `missing_count`.
        clients: producers and consumers that were on blue.
        abandoned: namespaces of whose clients too many did not come.
        repaired: topics that had lost their place in memory, and were loaded again to be drained.
        skipped: messages of idle subscriptions that were given up as the input says.
        reopened: as in `Flipped`.
    """

    seconds: float
    remaining: tuple[FailedItem, ...] = ()
    remaining_count: int = 0
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    clients: int = 0
    abandoned: tuple[FailedItem, ...] = ()
    repaired: int = 0
    skipped: int = 0
    reopened: tuple[str, ...] = ()


class BatchCheck(Result):
    """Result of VERIFY of one batch.

    Attributes:
        topics: that were compared.
        subscriptions: that stand on green.
        faults: what is wrong, by namespace; some of `fault_count`.
        unused: subscriptions of green that blue did not have at LOAD, and nobody uses; `unused_count` of them in all.
    """

    topics: int
    subscriptions: int
    faults: tuple[FailedItem, ...] = ()
    fault_count: int = 0
    unused: tuple[str, ...] = ()
    unused_count: int = 0


class Undone(Result):
    """Result of a batch's way back.

    Attributes:
        undone: all clients stay with blue; nothing of the flip is left.
        terminated: topics that were terminated already, and stay so, with all of their namespaces.
        restored: topics whose termination was taken back.
        why: why it cannot be undone for some namespaces, which continue to their end; empty where it was.
        notes: namespaces and topics that green serves besides blue from now on, with the reason.
    """

    undone: bool
    terminated: int = 0
    restored: int = 0
    why: str = ""
    notes: tuple[str, ...] = ()


class Completion(Result):
    """Result of COMPLETE.

    Attributes:
        flagged: whether the whole cluster sends its clients to green now.
        not_moved: how many namespaces of blue have not moved.
        stayed: the first of these.
        defect: of blue's release that keeps the flag from being set; empty for none.
        busy: what still uses blue: topics with clients, backlogs or subscriptions.
        undrained: namespaces that were flipped and not drained: load shedding stays off for them until the end.
    """

    flagged: bool
    not_moved: int = 0
    stayed: tuple[str, ...] = ()
    defect: str = ""
    busy: tuple[FailedItem, ...] = ()
    busy_count: int = 0
    undrained: tuple[str, ...] = ()


class Census(Result):
    """Who still asks blue in the grace window.

    Attributes:
        topics: topics of moved namespaces that are still on blue.
        connections: that blue's brokers hold now.
        opened: connections that were opened to each of them since it started, by its address.
        drift: what is not any more as the migration left it.
        undrainable: topics that were not drained and cannot be loaded any more, in words; the first of these.
    """

    topics: int = 0
    connections: int = 0
    opened: dict[str, int] = Field(default_factory=dict[str, int])
    drift: tuple[str, ...] = ()
    undrainable: tuple[str, ...] = ()

    def opened_since(self, before: Census) -> int:
        """Connections that were opened since another look; a broker that started since then counts from 0."""
        known = {name: before.opened.get(name, 0) for name in self.opened}
        return sum(now - known[name] if now >= known[name] else now for name, now in self.opened.items())


class CleanupStep(Result):
    """Result of one bounded step of the cleanup.

    Attributes:
        deleted: topics that were deleted.
        remaining: 0 once nothing is left to delete.
        refused: why some stay, `refused_count` in all.
    """

    deleted: int
    remaining: int
    refused: tuple[FailedItem, ...] = ()
    refused_count: int = 0


class Released(Result):
    """What was given back: of an earlier run at the begin, of the whole migration at its end or on its way back.

    Attributes:
        moved: namespaces whose clients are on green, and stay there.
        restored: settings that were put back.
        notes: what somebody else has changed meanwhile, and what green serves besides blue from now on, in words.
        not_released: what could not be given up, and why.
    """

    moved: int = 0
    restored: int = 0
    notes: tuple[str, ...] = ()
    not_released: str = ""
