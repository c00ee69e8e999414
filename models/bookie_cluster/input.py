"""Input of the bookie cluster migration (PIP-477)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from models.base import Frozen
from models.bookie_cluster.phases import Phase
from models.bookie_registry import REGISTRY, RESERVED
from models.ledger_store import LedgerStoreUri, parse_ledger_store_uri
from models.lifecycle.cluster import StoresInput
from models.lifecycle.fields import Bool, Duration
from models.lifecycle.input import CleanupInput, ThrottledInput
from models.store_url import StoreUrl, parse_store_url, require_one_set, require_scheme

KIND = "bookie-cluster"


def _zookeeper(text: str) -> str:
    url = parse_store_url(require_scheme(text))
    if url.scheme != "zk":
        raise ValueError(f"{text!r}: the registry of bookie clusters is kept in ZooKeeper only; write zk:host:port")
    return str(url)


def _node(text: str) -> str:
    if not text.startswith("/") or text.rstrip("/") != text or "//" in text:
        raise ValueError(f"invalid path {text!r}; expected a node's path such as /a/b")
    return text


class Routing(StrEnum):
    """How brokers find a ledger's cluster.

    `restart`: brokers of today read one cluster, and change it by a restart; every ledger moves.
    `attribution`: brokers with the plugin of PIP-477 ask each ledger's attribution; schema and cursor ledgers move.
    """

    RESTART = "restart"
    ATTRIBUTION = "attribution"


class LedgerScope(StrEnum):
    """Ledgers that move with routing `restart`: those that Pulsar's metadata refers to, or all of the cluster."""

    ALL = "all"
    REFERENCED = "referenced"


class BrokerControl(StrEnum):
    """Control of brokers: people, or the command or webhook that the worker's settings name."""

    MANUAL = "manual"
    COMMAND = "command"
    WEBHOOK = "webhook"


class Direction(StrEnum):
    """`forward`: from the plan's source to its target. `back`: the rollback, from target to source."""

    FORWARD = "forward"
    BACK = "back"


class Proof(StrEnum):
    """Proof that brokers have stopped or started: `full`, or the rest where the operator confirms it."""

    FULL = "full"
    WAIVED = "waived"


class BookieCluster(Frozen):
    """One BookKeeper cluster.

    Attributes:
        name: its name in the registry.
        metadataServiceUri: root of its ledgers' metadata, as brokers take it, for example `zk+null://zk-1:2181/ledgers`.
    """

    name: str = Field(min_length=1, pattern=r"^\.*[A-Za-z0-9_-][A-Za-z0-9_.-]*$")
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


class BookieClusterInput(ThrottledInput, CleanupInput, StoresInput):
    """Input of `BookieClusterMigration`.

    Attributes:
        metadata_url: the brokers' metadata store, `zk:host:port[,...][/chroot]`.
        source: the cluster that brokers use now.
        target: the cluster that they must use.
        source_credentials: those of the source's store and bookies; by default `credentials`.
        target_credentials: those of the target's; by default `credentials`.
        routing: `restart` or `attribution`.
        ledgers: which ledgers move with routing `restart`; `all` needs `exclusive`.
        exclusive: only this Pulsar cluster uses the source; else ledgers that its metadata do not refer to are
            neither fenced nor copied nor deleted.
        rollback_window: how long a rollback is possible after PROMOTE.
        migration_concurrency: batches of ledgers that are copied at once.
        old_ledger_read_timeout: longest wait for one answer of a bookie, before the next replica is asked.
        throttle: limit of the copy in megabytes of entries per second; none by default.
        broker_control: who stops and starts brokers with routing `restart`.
        pause_deadline: longest time between the first order to stop, or by hand the first broker's end, and the commit;
            then brokers go back to the source.
        advance_ids: let the target's id generator jump above all ids in use (a node HOB-n), if it is lower.
        skip_idgen_precheck: continue although new ids may collide with old ones. For a laboratory only: messages are
            lost.
        cleanup: what `cleanup`, or the end of the window with `cleanup_at_window_end`, does with the source's ledgers.
        cleanup_at_window_end: clean up when the window ends, without a verb.
        max_deletions: most ledgers that one cleanup deletes; None for no limit.
        registry_path: the registry's node in the brokers' metadata store.
        deletion_delay: with routing `attribution`, how long the target's copies are kept after a rollback.
        allow_no_brokers: start although no broker is registered in `metadata_url`; else that is a blocker.
        full_verify: compare all ledgers' entries again while brokers are stopped.
        until: `BUILD` for a rehearsal: copy and compare next to the traffic, and leave the copies to the next
            start. The migration ends as `rehearsed`.
    """

    metadata_url: Annotated[str, AfterValidator(_zookeeper)]
    source: BookieCluster
    target: BookieCluster
    source_credentials: str | None = None
    target_credentials: str | None = None
    routing: Routing
    ledgers: LedgerScope = LedgerScope.REFERENCED
    exclusive: Bool = False
    rollback_window: Duration = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    migration_concurrency: int = Field(default=16, ge=1, le=1024)
    old_ledger_read_timeout: Duration = Field(default=timedelta(seconds=5), gt=timedelta(0), le=timedelta(minutes=5))
    throttle: float | None = Field(default=None, gt=0)
    broker_control: BrokerControl = BrokerControl.MANUAL
    pause_deadline: Duration = Field(default=timedelta(hours=1), gt=timedelta(0), le=timedelta(days=1))
    advance_ids: Bool = False
    skip_idgen_precheck: Bool = False
    max_deletions: int | None = Field(default=None, ge=1)
    registry_path: Annotated[str, AfterValidator(_node)] = REGISTRY
    deletion_delay: Duration = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    allow_no_brokers: Bool = False
    full_verify: Bool = False
    until: Literal[Phase.BUILD] | None = None

    @model_validator(mode="after")
    def _clusters_fit(self) -> BookieClusterInput:
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
        require_one_set(self.store_credentials)
        if self.routing is Routing.ATTRIBUTION and self.ledgers is LedgerScope.ALL:
            raise ValueError("ledgers: with routing `attribution` schema and cursor ledgers move; leave this out")
        if self.ledgers is LedgerScope.ALL and not self.exclusive:
            raise ValueError(
                'ledgers: "all" fences and moves ledgers of all clients of the source; set "exclusive": true if only '
                "this Pulsar cluster uses it, or leave this out"
            )
        return self

    @property
    def longest_cutover(self) -> timedelta:
        """Longest time without brokers; zero where brokers are not stopped."""
        return self.pause_deadline if self.routing is Routing.RESTART else timedelta(0)

    @property
    def store_credentials(self) -> dict[StoreUrl, str]:
        """Name of the credentials of each store, of which the brokers' is the first."""
        ends = ((self.source, self.source_credentials), (self.target, self.target_credentials))
        own = {cluster.root: self.credentials if name is None else name for cluster, name in ends}
        return {self.store: self.credentials, **own}

    @property
    def store(self) -> StoreUrl:
        """The brokers' metadata store, taken apart."""
        return parse_store_url(self.metadata_url)

    @property
    def kind(self) -> str:
        """Return the kind with its routing."""
        return f"{KIND}/{self.routing}"

    @property
    def workflow_id(self) -> str:
        """One switch for each cluster at a time: a second start is refused by the server."""
        return f"{KIND}/{self.cluster}"

    @property
    def target_name(self) -> str:
        """The target's name in the registry."""
        return self.target.name

    @property
    def summary(self) -> str:
        """Cluster, source, target and routing in one line."""
        dry_run = " (dry run)" if self.dry_run else ""
        return f"{self.cluster}: {self.source.name} → {self.target.name}, {self.routing}{dry_run}"

    def ends(self, direction: Direction) -> Ends:
        """Return the direction of the copy of entries."""
        back = direction is Direction.BACK
        return Ends(self.target, self.source) if back else Ends(self.source, self.target)
