"""Plan, phases and facts of the bookie cluster switch (PIP-477)."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from models.bookie_registry import REGISTRY, RESERVED, ReadMode
from models.ledger_store import LedgerStoreUri, parse_ledger_store_uri
from models.migration import Blocker, Frozen, MigrationPlan, SourceCleanup
from models.store_url import StoreUrl, parse_store_url

KIND = "bookie-cluster-switch"


def _zookeeper(text: str) -> str:
    url = parse_store_url(text)
    if url.scheme != "zk":
        raise ValueError(f"{text!r}: the registry of bookie clusters is kept in ZooKeeper only; write zk:host:port")
    return str(url)


def _node(text: str) -> str:
    if not text.startswith("/") or text.rstrip("/") != text or "//" in text:
        raise ValueError(f"{text!r} is no path of a node; write /a/b")
    return text


class Routing(StrEnum):
    """How brokers find a ledger's cluster.

    `restart`: brokers of today read one cluster, and change it by a restart; every ledger moves.
    `attribution`: brokers with the plugin of PIP-477 ask each ledger's attribution; schema and cursor ledgers move.
    """

    RESTART = "restart"
    ATTRIBUTION = "attribution"


class LedgerScope(StrEnum):
    """Which ledgers move with routing `restart`: all of the cluster, or those that Pulsar's metadata refers to."""

    ALL = "all"
    REFERENCED = "referenced"


class BrokerControl(StrEnum):
    """Who stops and starts brokers: people, or the command or webhook that the worker's settings name."""

    MANUAL = "manual"
    COMMAND = "command"
    WEBHOOK = "webhook"


class Direction(StrEnum):
    """`forward`: from the plan's source to its target. `back`: the rollback, from target to source."""

    FORWARD = "forward"
    BACK = "back"


class Phase(StrEnum):
    """The phases of PIP-477, with the way back."""

    REGISTER = "REGISTER"
    PRECHECK = "PRECHECK"
    BUILD = "BUILD"
    SWITCH = "SWITCH"
    PROMOTE = "PROMOTE"
    ROLLBACK_WINDOW = "ROLLBACK_WINDOW"
    CLEANUP = "CLEANUP"
    ROLLED_BACK = "ROLLED_BACK"


class BookieCluster(Frozen):
    """One BookKeeper cluster: its name in the registry, and its metadataServiceUri as brokers take it."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")
    metadataServiceUri: Annotated[  # noqa: N815 - the proposal's name
        str, AfterValidator(lambda text: str(parse_ledger_store_uri(text)))
    ]

    @property
    def uri(self) -> LedgerStoreUri:
        """The address, taken apart."""
        return parse_ledger_store_uri(self.metadataServiceUri)

    @property
    def root(self) -> StoreUrl:
        """The root of the ledgers' metadata."""
        return self.uri.url


class Ends(NamedTuple):
    """The two clusters of one direction: entries are read from `source` and written to `target`."""

    source: BookieCluster
    target: BookieCluster

    @property
    def switch_id(self) -> str:
        """Name of the node that holds this direction's progress."""
        return f"{self.source.name}-to-{self.target.name}"


class BookieClusterPlan(MigrationPlan):
    """Input of `BookieClusterSwitch`.

    Attributes:
        metadata_url: the brokers' metadata store, `zk:host:port[,...][/chroot]`.
        source: the cluster that brokers use now.
        target: the cluster that they shall use.
        routing: `restart` or `attribution`.
        ledgers: which ledgers move with routing `restart`.
        rollback_window: how long the way back stays open after PROMOTE.
        migration_concurrency: batches of ledgers that are copied at once.
        old_ledger_read_timeout: longest wait for one answer of a bookie, before the next replica is asked.
        throttle: limit of the copy in megabytes of entries per second; none by default.
        broker_control: who stops and starts brokers with routing `restart`.
        pause_deadline: longest time between the last broker's end and the commit; then brokers go back to the source.
        advance_ids: let the target's id generator jump above all ids in use (a node HOB-n), if it is behind.
        skip_idgen_precheck: go on although new ids may collide with old ones. For a laboratory only: messages are lost.
        cleanup: what `cleanup`, or the end of the window with `cleanup_at_window_end`, does with the source's ledgers.
        cleanup_at_window_end: clean up when the window ends, without being told.
        max_deletions: most ledgers that one cleanup deletes; None for no limit.
        registry_path: the registry's node in the brokers' metadata store.
        deletion_delay: with routing `attribution`, how long the target's copies are kept after a rollback.
        full_verify: compare all ledgers' entries once more while brokers are stopped.
    """

    metadata_url: Annotated[str, AfterValidator(_zookeeper)]
    source: BookieCluster
    target: BookieCluster
    routing: Routing
    ledgers: LedgerScope = LedgerScope.ALL
    rollback_window: timedelta = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    migration_concurrency: int = Field(default=16, ge=1, le=1024)
    old_ledger_read_timeout: timedelta = Field(default=timedelta(seconds=5), gt=timedelta(0), le=timedelta(minutes=5))
    throttle: float | None = Field(default=None, gt=0)
    broker_control: BrokerControl = BrokerControl.MANUAL
    pause_deadline: timedelta = Field(default=timedelta(hours=1), gt=timedelta(0), le=timedelta(days=1))
    advance_ids: bool = False
    skip_idgen_precheck: bool = False
    cleanup: SourceCleanup = SourceCleanup.LEAVE
    cleanup_at_window_end: bool = False
    max_deletions: int | None = Field(default=None, ge=1)
    registry_path: Annotated[str, AfterValidator(_node)] = REGISTRY
    deletion_delay: timedelta = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    full_verify: bool = False

    @model_validator(mode="after")
    def _clusters_fit(self) -> BookieClusterPlan:
        if self.source.name == self.target.name:
            raise ValueError(f"source and target have the same name, {self.source.name!r}")
        for cluster in (self.source, self.target):
            if cluster.name in RESERVED:
                raise ValueError(f"{cluster.name!r} is a node of the registry itself; choose another name")
        if self.source.root.overlaps(self.target.root):
            raise ValueError(
                f"source {self.source.metadataServiceUri} and target {self.target.metadataServiceUri} are, or hold, "
                "the same root; two clusters need roots of their own"
            )
        if self.routing is Routing.ATTRIBUTION and self.ledgers is not LedgerScope.ALL:
            raise ValueError("ledgers: with routing `attribution` schema and cursor ledgers move; leave this out")
        return self

    @property
    def store(self) -> StoreUrl:
        """The brokers' metadata store, taken apart."""
        return parse_store_url(self.metadata_url)

    @property
    def workflow_id(self) -> str:
        """One switch for each cluster at a time: a second start is refused by the server."""
        return f"{KIND}/{self.cluster}"

    def ends(self, direction: Direction) -> Ends:
        """From where to where entries go."""
        back = direction is Direction.BACK
        return Ends(self.target, self.source) if back else Ends(self.source, self.target)


class Registration(Frozen):
    """Result of REGISTER.

    Attributes:
        added: the clusters that were added to the registry.
        epoch: of its last directive.
        committed: an earlier run of this migration was ended from outside behind its commit; this one goes on there.
    """

    added: tuple[str, ...]
    epoch: int
    committed: bool = False


class LedgerSurvey(Frozen):
    """What moves.

    Attributes:
        ledgers: ledgers of the source that the switch moves; `unsealed` of them are open or in recovery.
        entry_bytes: sum of their lengths, of each entry once, as their metadata say (open ledgers count as 0).
        kinds: number of ledgers by component (`managed-ledger`, `schema`, ...; `other` for those without).
        references: positions in Pulsar's metadata that refer to a ledger.
        dangling: referred to, but absent from the source already; at most 100 are named.
        largest_ensemble: the largest ensemble among them.
    """

    ledgers: int
    unsealed: int
    entry_bytes: int
    kinds: dict[str, int]
    references: int
    dangling: tuple[str, ...]
    dangling_count: int
    largest_ensemble: int


class IdCheck(Frozen):
    """The gate of I11: whether every new ledger of the target gets an id above all that are in use.

    Attributes:
        highest: highest id that the source's generator gave out, that one of its ledgers has, or that Pulsar's metadata
            name.
        next_id: the id that the target's generator hands out next.
        cure: number of the node HOB-n that would put it above; 0 where it is above.
    """

    highest: int
    next_id: int
    cure: int

    @property
    def safe(self) -> bool:
        """Whether ids stay unique and grow."""
        return self.next_id > self.highest


class SwitchPrecheck(Frozen):
    """Result of PRECHECK; in a dry run it is the plan.

    Attributes:
        blockers: what must be cured first; empty means that the switch can start.
        warnings: what the operator should know.
        steps: what will be done, in sentences.
        brokers: registered brokers, with their versions.
        bookies: writable bookies of the target.
        free_bytes: space on them; `needed_bytes` is what the copy takes, replicas included.
    """

    blockers: tuple[Blocker, ...]
    warnings: tuple[str, ...]
    steps: tuple[str, ...]
    survey: LedgerSurvey | None
    ids: IdCheck | None
    brokers: tuple[str, ...]
    bookies: tuple[str, ...]
    free_bytes: int
    needed_bytes: int
    estimated_copy_seconds: float
    estimated_pause_seconds: float
    estimate_basis: str


class CopySummary(Frozen):
    """What a copy of ledgers did.

    Attributes:
        copied: ledgers written to the target, read back, and found equal.
        equal: ledgers that stood there already, compared in full, and were equal.
        known: ledgers that an earlier attempt had verified, and that have not changed since.
        recovered: open ledgers that were fenced and closed first.
        left_open: ledgers that are open; they follow when their writers are stopped.
        gone: ledgers that were deleted at the source meanwhile.
        entries: entries written, with `entry_bytes` of header, digest and data, each counted once.
        compared: entries compared on both sides.
        failed: ledgers that could not be copied or that differ, and why; at most 100 are named.
        failed_count: how many there are.
    """

    copied: int = 0
    equal: int = 0
    known: int = 0
    recovered: int = 0
    left_open: int = 0
    gone: int = 0
    entries: int = 0
    entry_bytes: int = 0
    compared: int = 0
    failed: tuple[str, ...] = ()
    failed_count: int = 0
    seconds: float = 0.0


class BrokersStopped(Frozen):
    """No broker is registered any more: when the last one vanished, as far as it was seen, and who was there."""

    since: datetime
    brokers: tuple[str, ...]


class TailCopy(Frozen):
    """Result of SWITCH with routing `restart`: the target holds everything.

    Attributes:
        copy_summary: what was copied and compared while brokers were stopped.
        checked: ledgers whose metadata were compared, all of the source.
        removed: copies of ledgers that the source has deleted since.
        references: positions in Pulsar's metadata whose ledger stands in the target.
        missing: positions whose ledger does not; at most 100 are named.
        missing_count: how many.
    """

    copy_summary: CopySummary
    checked: int
    removed: int
    references: int
    missing: tuple[str, ...] = ()
    missing_count: int = 0


class Directive(Frozen):
    """`switch-target` was set: its epoch, and when."""

    epoch: int
    at: datetime


class BrokersOn(Frozen):
    """Brokers run, and it was proven where they write.

    Attributes:
        brokers: name and evidence of each.
        new_ledgers: ledgers created there by brokers since the switch, at least one for each broker.
        since: when the first of them was registered, as far as it was seen.
    """

    brokers: tuple[str, ...]
    new_ledgers: int
    since: datetime


class Promotion(Frozen):
    """Result of promoting, or of demoting, attributions.

    Attributes:
        schemas: schema locators rewritten by compare-and-set.
        cursors: cursors rewritten by their topic's owner.
        already: positions that carried the attribution before.
        rollovers: cursors whose ledger changed before the owner was asked (`promotedViaRolloverFallback`).
        deferred: positions whose ledger is open, or not known to be equal on both sides; they stay where they are.
        contested: locators that others kept changing; the next round takes them.
        failed: what could not be promoted, and why; at most 100 are named.
    """

    schemas: int
    cursors: int
    already: int
    rollovers: int
    deferred: tuple[str, ...] = ()
    deferred_count: int = 0
    contested: int = 0
    failed: tuple[str, ...] = ()
    failed_count: int = 0


class CleanupTargets(Frozen):
    """Ledgers of the old cluster that may be deleted.

    Attributes:
        ledgers: how many, with `entry_bytes` in all; `examples` are the lowest ids.
        kept: how many are not, and `reasons` why.
    """

    cluster: str
    ledgers: int
    entry_bytes: int
    examples: tuple[int, ...]
    kept: int
    reasons: tuple[str, ...]


class SwitchCensus(Frozen):
    """How things stand in the window.

    Attributes:
        brokers: each registered broker, with the cluster that it uses.
        strays: ledgers that brokers created in the old cluster since the switch; none is as it should be.
        restamped: attributions that a broker had dropped, and that were set again.
        gained: ledgers that only the new cluster has: what a rollback would copy back, with `gained_bytes`.
    """

    brokers: tuple[str, ...]
    strays: tuple[str, ...]
    restamped: int
    gained: int
    gained_bytes: int
    targets: CleanupTargets


class CleanupOrder(Frozen):
    """Argument of the update `clean_up` (PIP-477, "CLI Commands").

    Attributes:
        src_cluster: the cluster to clean; must be the one that the switch left.
        dry_run: only list what would be deleted.
        max_deletions: most ledgers to delete.
        force: delete although a broker still seems to use the old cluster, and also ledgers that nothing refers to and
            that were never copied. What is referred to and not verified in the new cluster is never deleted.
    """

    src_cluster: str
    dry_run: bool = False
    max_deletions: int | None = Field(default=None, ge=1)
    force: bool = False


class LedgersDeleted(Frozen):
    """Result of one bounded step of deleting: what was deleted, and what is left to delete."""

    deleted: int
    left: int


class Concurrency(Frozen):
    """Argument of the update `set_concurrency`: batches of ledgers that are copied at once."""

    batches: int = Field(ge=1, le=1024)


class Pace(Frozen):
    """How fast the copy goes: megabytes of entries per second (None: no limit), and batches of ledgers at once."""

    throttle: float | None
    concurrency: int


class ReadModeChange(Frozen):
    """Argument of the update `set_read_mode`."""

    mode: ReadMode


class ClientClosing(Frozen):
    """Argument of the update `close_client`: the old cluster, whose client brokers shall close."""

    cluster: str
