"""Input of the blue-green cluster migration (PIP-188)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from models.addresses import AdminUrl, BrokerUrl, PlainAdminUrl, TlsAdminUrl, TlsBrokerUrl
from models.base import Frozen
from models.lifecycle.fields import Bool, Duration
from models.lifecycle.input import NO_CLEANUP, MigrationInput, SourceCleanup
from models.lifecycle.patterns import matches
from models.lifecycle.waves import WavePolicy
from models.store_url import StoreAddress, StoreUrl, parse_store_url

KIND = "blue-green"

FUNCTIONS = "public/functions"
"""Where function workers keep what runs, in topics that they read from the begin: it moves only where it is named."""

CLUSTER_NAME = r"^[A-Za-z0-9_.-]+$"


NamespacePattern = Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")]
# Those of Pulsar 1, `tenant/cluster/namespace`, can be excluded.
ExcludedPattern = Annotated[str, Field(pattern=r"^[^/]+/[^/]+(/[^/]+)?$")]


class PulsarCluster(Frozen):
    """How the worker reaches one of both clusters, and how clients reach it that are sent there.

    Attributes:
        metadata_url: the metadata store of its brokers.
        admin_urls: addresses of the admin interface that the worker asks, of one broker or several.
        service_url: admin interface for those that are sent here, `http://…`; `service_url_tls` by HTTPS.
        broker_service_url: `pulsar://…`, where clients are sent; `broker_service_url_tls` with TLS, `pulsar+ssl://…`.
        credentials: name of the credentials in the worker's settings; empty for the common ones.
    """

    metadata_url: StoreAddress
    admin_urls: tuple[AdminUrl, ...] = Field(min_length=1)
    service_url: PlainAdminUrl | None = None
    service_url_tls: TlsAdminUrl | None = None
    broker_service_url: BrokerUrl | None = None
    broker_service_url_tls: TlsBrokerUrl | None = None
    credentials: str = ""

    @model_validator(mode="after")
    def _reachable_by_clients(self) -> Self:
        # Brokers take half an address, and block every load of a topic with it (seen).
        if not (self.service_url or self.service_url_tls):
            raise ValueError("give service_url, service_url_tls or both")
        if not (self.broker_service_url or self.broker_service_url_tls):
            raise ValueError("give broker_service_url, broker_service_url_tls or both: clients are sent there")
        return self

    @property
    def store(self) -> StoreUrl:
        """The metadata store, taken apart."""
        return parse_store_url(self.metadata_url)

    @property
    def brokers_url(self) -> str:
        """Where its brokers are asked in their binary protocol: with TLS, if they have it."""
        return self.broker_service_url_tls or self.broker_service_url or ""


class IdleSubscriptions(StrEnum):
    """What becomes of a subscription that has a backlog on blue and no consumer.

    `wait`: until somebody consumes it there. `skip`: it begins on green with what is sent after the flip, and its
    backlog is lost. `copy`: its backlog is copied to green before the flip.
    """

    WAIT = "wait"
    SKIP = "skip"
    COPY = "copy"


class BlueGreenInput(MigrationInput):
    """Input of `BlueGreenMigration`.

    Attributes:
        cluster: `clusterName` of the brokers of blue, the cluster that is left.
        blue: how blue is reached.
        green_cluster: `clusterName` of the brokers of green, the cluster that takes over.
        green: how green is reached.
        namespaces: patterns of `tenant/namespace`, in the order in which they move; `*` stands for any part of a name.
        exclude: patterns of those that stay. Namespaces of Pulsar itself (`pulsar/*`) always stay, and so does
            `public/functions` unless `namespaces` has this name.
        waves: canary, sizes, gates, error budget and change windows. One child workflow moves `batch_size` namespaces.
        align_differences: change what exists on green and differs from blue; otherwise it is a blocker.
        throttle_bytes: while a batch is flipped, each topic takes so many bytes per second: 1 stops writes after one
            message of each producer.
        quiesce_timeout: how long writes may take to become quiet under that limit, and then the rest of a copy; if it
            takes longer, the batch is undone.
        flip_timeout: how long brokers may take to terminate all topics of a batch.
        drain_timeout: how long a batch may take from the flip until nothing is left on blue.
        idle_subscriptions: what becomes of backlogs without consumers.
        client_credentials: names of credentials in the worker's settings, of the kinds that clients have: with each
            PRECHECK and PROVISION look topics up on green.
        copy_throttle: limit of their copy in megabytes of entries per second, for each namespace, while writes go on;
            none by default.
        max_missing_clients: largest share of a namespace's clients that may be missing on green a minute after the
            flip; above it, or if all are missing, the namespace counts as failed.
        accept_external_positions: readers that keep positions outside of Pulsar are known; do not ask about them.
        unterminate: a rollback may take back the termination of topics, in blue's metadata store, while nothing was
            sent to them on green.
        complete_cluster: set the flag of the whole cluster when every namespace of it has moved.
        grace_window: how long blue is kept under watch after COMPLETE.
        cleanup: what `cleanup`, or the end of the window with `cleanup_at_window_end`, does with blue's topics.
        cleanup_at_window_end: clean up when the window ends, without being told.
        cleanup_retained: the cleanup also deletes topics with messages that their retention keeps.
        discard_retained: a failback may delete what retention keeps of topics that an earlier migration has ended.
        cleanup_limit: most topics that one step of the cleanup deletes; it continues in further steps.
    """

    blue: PulsarCluster
    green_cluster: str = Field(min_length=1, pattern=CLUSTER_NAME)
    green: PulsarCluster
    namespaces: tuple[NamespacePattern, ...] = Field(default=("*/*",), min_length=1)
    exclude: tuple[ExcludedPattern, ...] = ()
    waves: WavePolicy = WavePolicy(parallelism=1)
    align_differences: Bool = False
    throttle_bytes: int = Field(default=1, ge=1, le=10_000)
    quiesce_timeout: Duration = Field(default=timedelta(seconds=15), gt=timedelta(0), le=timedelta(minutes=10))
    flip_timeout: Duration = Field(default=timedelta(minutes=2), gt=timedelta(0), le=timedelta(hours=1))
    drain_timeout: Duration = Field(default=timedelta(hours=1), gt=timedelta(0), le=timedelta(days=30))
    idle_subscriptions: IdleSubscriptions = IdleSubscriptions.WAIT
    client_credentials: tuple[str, ...] = ()
    copy_throttle: float | None = Field(default=None, gt=0)
    max_missing_clients: float = Field(default=1.0, ge=0, le=1)
    accept_external_positions: Bool = False
    unterminate: Bool = False
    complete_cluster: Bool = True
    grace_window: Duration = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    cleanup: SourceCleanup = SourceCleanup.LEAVE
    cleanup_at_window_end: Bool = False
    cleanup_retained: Bool = False
    discard_retained: Bool = False
    cleanup_limit: int = Field(default=1_000, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.blue.store.overlaps(self.green.store):
            raise ValueError(f"blue and green have one metadata store, {self.blue.metadata_url}; each needs its own")
        if set(self.blue.admin_urls) & set(self.green.admin_urls):
            raise ValueError("blue and green share an address of the admin interface; they are one cluster")
        if self.cluster == self.green_cluster:
            raise ValueError(
                f"both clusters are called {self.cluster!r}; brokers of blue would take green's address for their own"
            )
        if self.cleanup_at_window_end and self.cleanup is SourceCleanup.LEAVE:
            raise ValueError(NO_CLEANUP)
        if self.waves.deadline <= self.drain_timeout:
            raise ValueError(
                f"waves.deadline, {self.waves.deadline}, is not longer than drain_timeout, {self.drain_timeout}; "
                "a batch would be given up while it drains"
            )
        return self

    @property
    def workflow_id(self) -> str:
        """One migration for each cluster that is left: a second start is refused by the server."""
        return f"{KIND}/{self.cluster}"

    @property
    def target_name(self) -> str:
        """The cluster that takes over."""
        return self.green_cluster

    @property
    def summary(self) -> str:
        """What moves from where to where."""
        return (
            f"{self.cluster} → {self.green_cluster}: {', '.join(self.namespaces)}{' (dry run)' if self.dry_run else ''}"
        )

    def excludes(self, namespace: str) -> bool:
        """Whether a namespace is excluded by a pattern."""
        return any(matches(namespace, pattern) for pattern in self.exclude)

    def rank(self, namespace: str) -> int | None:
        """The place of a namespace's pattern in the order of the patterns; None for one that stays."""
        if namespace.startswith("pulsar/") or self.excludes(namespace):
            return None
        if namespace == FUNCTIONS and FUNCTIONS not in self.namespaces:
            return None
        return next((rank for rank, pattern in enumerate(self.namespaces) if matches(namespace, pattern)), None)
