"""Input of the blue-green cluster migration (PIP-188)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.addresses import AdminUrl, BrokerUrl, PlainAdminUrl, TlsAdminUrl, TlsBrokerUrl
from models.base import Frozen
from models.blue_green.phases import Phase
from models.lifecycle.fields import Bool, Duration
from models.lifecycle.input import CleanupInput, ThrottledInput
from models.lifecycle.patterns import matches
from models.lifecycle.waves import WavePolicy
from models.store_url import StoreAddress, StoreUrl, parse_store_url

KIND = "blue-green"

FUNCTIONS = "public/functions"
"""Namespace of the function workers' own topics. It moves only if `namespaces` names it."""

CLUSTER_NAME = r"^[A-Za-z0-9_.-]+$"


NamespacePattern = Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")]
# Names of Pulsar 1, `tenant/cluster/namespace`, can be excluded.
ExcludedPattern = Annotated[str, Field(pattern=r"^[^/]+/[^/]+(/[^/]+)?$")]


class ClusterAddresses(Frozen):
    """Addresses of a cluster: for the worker, and for clients that are redirected to it.

    Attributes:
        metadata_url: the metadata store of its brokers.
        admin_urls: addresses of the admin interface for the worker: one broker or several.
        service_url: admin interface for redirected clients, `http://…`.
        service_url_tls: the same with TLS, `https://…`.
        broker_service_url: address for redirected clients, `pulsar://…`.
        broker_service_url_tls: the same with TLS, `pulsar+ssl://…`.
        credentials: name of the credentials in the worker's settings; empty for the default ones.
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
        # Brokers accept an incomplete address, and then fail to load any topic (seen).
        if not (self.service_url or self.service_url_tls):
            raise ValueError("give service_url, service_url_tls or both")
        if not (self.broker_service_url or self.broker_service_url_tls):
            raise ValueError("give broker_service_url, broker_service_url_tls or both: clients are redirected there")
        return self

    @property
    def store(self) -> StoreUrl:
        """The parsed address of the metadata store."""
        return parse_store_url(self.metadata_url)

    @property
    def brokers_url(self) -> str:
        """Address of its brokers for the binary protocol; with TLS if there is one."""
        return self.broker_service_url_tls or self.broker_service_url or ""


class IdleSubscriptions(StrEnum):
    """Treatment of subscriptions that have a backlog on blue and no consumer.

    `wait`: wait until a consumer reads the backlog on blue. `skip`: give the backlog up; the subscription starts on
    green with messages that are sent after the flip. `copy`: copy the backlog to green before the flip.
    """

    WAIT = "wait"
    SKIP = "skip"
    COPY = "copy"


class BlueGreenInput(ThrottledInput, CleanupInput):
    """Input of `BlueGreenMigration`.

    Attributes:
        cluster: `clusterName` of the brokers of blue, the old cluster.
        blue: addresses of blue.
        green_cluster: `clusterName` of the brokers of green, the new cluster.
        green: addresses of green.
        namespaces: patterns of `tenant/namespace`, in the order of their move; `*` matches any characters in a name.
        exclude: patterns of namespaces that do not move. `pulsar/*` never moves, and `public/functions` only if
            `namespaces` names it.
        waves: canary, sizes, gates, error budget and change windows. One child workflow moves `batch_size` namespaces.
        align_differences: change what exists on green and differs from blue; otherwise it is a blocker.
        throttle_bytes: publish limit per topic, bytes/s, while a batch flips. 1 stops writes after one message of each
            producer.
        quiesce_timeout: limit for writes to stop under the publish limit, and for the final copy. After it the batch
            is rolled back.
        flip_timeout: limit for brokers to terminate all topics of a batch.
        drain_timeout: limit for a batch, from the flip until its topics on blue are drained.
        idle_subscriptions: treatment of backlogs without consumers.
        client_credentials: names of credentials in the worker's settings, one for each kind of client. PRECHECK and
            PROVISION look topics up on green with each of them.
        copy_throttle: limit of the copy during traffic, MB/s for each namespace; unlimited by default.
        max_missing_clients: largest share of a namespace's clients that may be missing on green one minute after the
            flip. Above it, or if all are missing, the namespace counts as failed.
        accept_external_positions: do not ask about readers that keep positions outside of Pulsar.
        unterminate: a rollback may remove the termination of topics from blue's metadata store, if green has no
            messages of them.
        complete_cluster: set the flag of the whole cluster when all its namespaces have moved.
        grace_window: how long blue is watched after COMPLETE.
        cleanup: what happens with blue's topics on `cleanup`, or at the end of the window.
        cleanup_at_window_end: start the cleanup when the window ends.
        cleanup_retained: the cleanup also deletes topics with messages that their retention keeps, and topics that
            were compacted.
        discard_retained: a failback may delete topics that an earlier migration terminated although they hold retained
            messages, or the table of a compacted topic.
        cleanup_limit: largest number of topics that one step of the cleanup deletes; more steps follow.
        until: `PROVISION` for a rehearsal: create on green what it lacks, check the clients' access, leave it there.
            The migration ends as `rehearsed`.
    """

    blue: ClusterAddresses
    green_cluster: str = Field(min_length=1, pattern=CLUSTER_NAME)
    green: ClusterAddresses
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
    cleanup_retained: Bool = False
    discard_retained: Bool = False
    cleanup_limit: int = Field(default=1_000, ge=1)
    until: Literal[Phase.PROVISION] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.blue.store.overlaps(self.green.store):
            raise ValueError(f"blue and green have one metadata store, {self.blue.metadata_url}; each needs its own")
        if set(self.blue.admin_urls) & set(self.green.admin_urls):
            raise ValueError("blue and green have an admin URL in common; give each cluster its own admin_urls")
        if self.cluster == self.green_cluster:
            raise ValueError(
                f"both clusters are named {self.cluster!r}, so brokers of blue would not redirect; "
                "give green a clusterName of its own"
            )
        if self.waves.deadline <= self.drain_timeout:
            raise ValueError(
                f"waves.deadline {self.waves.deadline} is not longer than drain_timeout {self.drain_timeout}; "
                "increase it, or a batch is stopped while it drains"
            )
        return self

    @property
    def longest_cutover(self) -> timedelta:
        """Longest time with writes of a batch held back."""
        return self.quiesce_timeout

    @property
    def workflow_id(self) -> str:
        """Id of the workflow: one for each blue cluster, so that the server refuses a second start."""
        return f"{KIND}/{self.cluster}"

    @property
    def target_name(self) -> str:
        """Name of green."""
        return self.green_cluster

    @property
    def summary(self) -> str:
        """Both clusters, and the patterns of namespaces."""
        return (
            f"{self.cluster} → {self.green_cluster}: {', '.join(self.namespaces)}{' (dry run)' if self.dry_run else ''}"
        )

    def excludes(self, namespace: str) -> bool:
        """Return whether a pattern excludes a namespace."""
        return any(matches(namespace, pattern) for pattern in self.exclude)

    def rank(self, namespace: str) -> int | None:
        """Return the index of the first pattern that selects a namespace; None if it does not move."""
        if namespace.startswith("pulsar/") or self.excludes(namespace):
            return None
        if namespace == FUNCTIONS and FUNCTIONS not in self.namespaces:
            return None
        return next((rank for rank, pattern in enumerate(self.namespaces) if matches(namespace, pattern)), None)
