"""Results of the activities of the blue-green cluster migration."""

from __future__ import annotations

from pydantic import Field

from models.base import Result
from models.blue_green.copies import FinalCopy
from models.lifecycle.failures import FailedItem
from models.lifecycle.report import PrecheckResult


class Survey(Result):
    """Counts of what would move.

    Attributes:
        tenants: tenants of the selected namespaces.
        namespaces: namespaces that the patterns select.
        topics: partitions and topics without partitions.
        retained: topics with messages that all subscriptions have acknowledged, and that retention keeps.
        subscriptions: durable subscriptions of all topics.
        idle: subscriptions with a backlog and without a consumer.
        producers: connected producers.
        consumers: connected consumers.
        not_moved: namespaces of blue that do not move.
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
        questions: risks that an operator must accept; the migration waits for the answer.
        survey: counts of what would move.
        missing: number of things that green lacks and PROVISION creates.
        differences: the first differences between both clusters, in words.
        replicated_to: other clusters to which namespaces that move replicate.
    """

    questions: tuple[str, ...] = ()
    survey: Survey = Survey()
    missing: int = 0
    differences: tuple[str, ...] = ()
    replicated_to: tuple[str, ...] = ()


class Provision(Result):
    """Result of PROVISION.

    Attributes:
        created: number of created things, by kind: tenants, namespaces, topics, subscriptions, schemas.
        blocking: the first differences that keep traffic from moving, in words.
        blocking_count: number of all such differences.
        harmless: number of other differences, such as things that only green has.
    """

    created: dict[str, int] = Field(default_factory=dict[str, int])
    blocking: tuple[str, ...] = ()
    blocking_count: int = 0
    harmless: int = 0


class Loaded(Result):
    """Result of LOAD: all topics of the batch are loaded on blue.

    Attributes:
        topics: partitions and topics without partitions.
        producers: connected producers.
        consumers: connected consumers.
        backlog: messages that are not acknowledged.
    """

    topics: int
    producers: int
    consumers: int
    backlog: int


class Quiet(Result):
    """Result of QUIESCE.

    Attributes:
        seconds: time from the publish limit until writes stopped.
        busy: topics that still took messages; then nothing may be flipped.
        checks: number of checks of all topics.
    """

    seconds: float
    busy: tuple[str, ...] = ()
    checks: int = 0


class Flipped(Result):
    """Result of FLIP.

    Attributes:
        topics: topics that were terminated, and redirect their clients to green.
        seconds: time from the flag until the last termination.
        final_copy: copy of messages that came after the previous copy, right before the flag; None if there were none.
        notes: publish limits that were changed during the flip, not by the migration.
        reopened: topics that blue's brokers reopened or fenced, and what was done about them, in words.
    """

    topics: int
    seconds: float
    final_copy: FinalCopy | None = None
    notes: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()


class Drained(Result):
    """Result of DRAIN.

    Attributes:
        seconds: duration of the watch.
        remaining: the first topics that are not drained, with the reason.
        remaining_count: number of all such topics.
        missing: the first producers and consumers of blue that did not connect to green.
        missing_count: number of all such clients.
        clients: producers and consumers that blue had before the flip.
        abandoned: namespaces with too many missing clients.
        repaired: topics that were unloaded, and loaded again so that consumers could drain them.
        skipped: messages of idle subscriptions that were given up, with `skip`.
        reopened: topics that blue's brokers reopened or fenced, as in `Flipped`.
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
        topics: topics that were compared.
        subscriptions: subscriptions of these topics on green.
        faults: the first faults.
        fault_count: number of all faults.
        unused: the first subscriptions of green without consumers that blue did not have right before the flag.
        unused_count: number of all such subscriptions.
    """

    topics: int
    subscriptions: int
    faults: tuple[FailedItem, ...] = ()
    fault_count: int = 0
    unused: tuple[str, ...] = ()
    unused_count: int = 0


class Undone(Result):
    """Result of a batch's rollback.

    Attributes:
        undone: all clients stay on blue, and nothing of the flip remains.
        terminated: terminated topics of namespaces that cannot be rolled back.
        restored: topics whose termination was removed.
        why: why some namespaces cannot be rolled back, so that their flip continues; empty if all were.
        notes: what an operator must know, such as topics that both clusters serve now.
    """

    undone: bool
    terminated: int = 0
    restored: int = 0
    why: str = ""
    notes: tuple[str, ...] = ()


class Completion(Result):
    """Result of COMPLETE.

    Attributes:
        flagged: the flag of the whole cluster is set.
        not_moved: number of blue's namespaces that have not moved.
        stayed: the first of these namespaces.
        defect: defect of blue's release that keeps the flag from being set; empty for none.
        busy: the first topics on blue that still have clients, backlogs or subscriptions.
        busy_count: number of all such topics.
        undrained: namespaces that were flipped and not drained; load shedding stays off because of them.
    """

    flagged: bool
    not_moved: int = 0
    stayed: tuple[str, ...] = ()
    defect: str = ""
    busy: tuple[FailedItem, ...] = ()
    busy_count: int = 0
    undrained: tuple[str, ...] = ()


class Census(Result):
    """Use of blue in the grace window.

    Attributes:
        topics: topics of moved namespaces that still exist on blue.
        connections: connections that blue's brokers have now.
        opened: connections opened to each broker since its start, by its address.
        drift: settings that were changed since COMPLETE, in words.
        undrainable: the first topics that were unloaded before they were drained, and cannot be loaded, in words.
        more_partitions: the first topics that have more partitions on green than on blue, in words.
        fewer_partitions: the first topics that have fewer partitions on green than on blue, in words.
    """

    topics: int = 0
    connections: int = 0
    opened: dict[str, int] = Field(default_factory=dict[str, int])
    drift: tuple[str, ...] = ()
    undrainable: tuple[str, ...] = ()
    more_partitions: tuple[str, ...] = ()
    fewer_partitions: tuple[str, ...] = ()

    def opened_since(self, before: Census) -> int:
        """Return the number of connections that were opened since an earlier census.

        A broker that has restarted in between counts from 0.
        """
        previous = {name: before.opened.get(name, 0) for name in self.opened}
        return sum(now - previous[name] if now >= previous[name] else now for name, now in self.opened.items())


class CleanupStep(Result):
    """Result of one bounded step of the cleanup.

    Attributes:
        deleted: number of deleted topics.
        remaining: number of topics that are still to be deleted; 0 at the end.
        refused: the first topics that must not be deleted, with the reason.
        refused_count: number of all such topics.
    """

    deleted: int
    remaining: int
    refused: tuple[FailedItem, ...] = ()
    refused_count: int = 0


class Released(Result):
    """Result of releasing claims and restoring settings: after an earlier run, after a rollback, or at the end.

    Attributes:
        moved: namespaces whose clients are on green, and stay there.
        restored: number of settings that were restored.
        notes: what an operator must know: settings with other changes, namespaces that both clusters serve.
        not_released: claim that could not be released, with the reason; empty for none.
    """

    moved: int = 0
    restored: int = 0
    notes: tuple[str, ...] = ()
    not_released: str = ""
