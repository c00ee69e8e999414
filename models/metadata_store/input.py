"""Input of the metadata store migration (PIP-454)."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from models.lifecycle.cluster import StoresInput
from models.lifecycle.fields import Bool, Duration
from models.lifecycle.input import CleanupInput, ThrottledInput
from models.lifecycle.units import format_value
from models.metadata_store.phases import Phase
from models.store_url import StoreAddress, StoreUrl, parse_store_url, require_one_set

KIND = "metadata-store"


class Mode(StrEnum):
    """`live`: brokers and bookies take part (PIP-454). `offline`: all of them are stopped."""

    LIVE = "live"
    OFFLINE = "offline"


class MetadataStoreInput(ThrottledInput, CleanupInput, StoresInput):
    """Input of `MetadataStoreMigration`.

    Attributes:
        source: address of the metadata: `zk:host:port[,...][/chroot]` or `oxia://host:port[/namespace]`.
        target: new address, in the same forms. Brokers get this text as their new store, so they must be able to reach
            it. Live migrations start from ZooKeeper.
        target_credentials: those of the target; by default `credentials`.
        mode: `live` or `offline`.
        preparation_timeout: how long brokers and bookies may take to recreate their ephemerals in the target.
        blocked_deadline: longest time with metadata writes blocked; then the migration fails by itself.
        concurrency: parts into which a store is split for Spark.
        throttle: limit of the bulk copy in megabytes of values per second; none by default.
        validation_window: how long the source is kept under watch after COMPLETED.
        cleanup: what `cleanup`, or the end of the window with `cleanup_at_window_end`, does with the source.
        cleanup_at_window_end: clean up when the window ends, without a verb.
        cleanup_limit: most records that one step of the cleanup removes; it continues in further steps.
        replace_target: delete other records in the target. They are lost.
        allow_no_brokers: live: start although no broker is registered in the source; else that is a blocker.
        leave_ledgers: brokers keep the metadata of ledgers in another store, which stays as it is; else that is a
            blocker.
        ignore_other_clusters: other clusters that the source knows do not use it as their configuration store, or are
            stopped; else they are a blocker.
        full_verify: compare both stores whole again while writes are blocked.
        until: `PRE_COPY` for a rehearsal: copy and compare next to the traffic, then remove the copy. The migration
            ends as `rehearsed`.
    """

    source: StoreAddress
    target: StoreAddress
    target_credentials: str | None = None
    mode: Mode = Mode.LIVE
    preparation_timeout: Duration = Field(default=timedelta(seconds=60), gt=timedelta(0), le=timedelta(hours=1))
    blocked_deadline: Duration = Field(default=timedelta(minutes=5), gt=timedelta(0), le=timedelta(hours=6))
    concurrency: int = Field(default=16, ge=1, le=1024)
    throttle: float | None = Field(default=None, gt=0)
    validation_window: Duration = Field(default=timedelta(hours=24), ge=timedelta(0), le=timedelta(days=90))
    cleanup_limit: int = Field(default=100_000, ge=1)
    replace_target: Bool = False
    allow_no_brokers: Bool = False
    leave_ledgers: Bool = False
    ignore_other_clusters: Bool = False
    full_verify: Bool = False
    until: Literal[Phase.PRE_COPY] | None = None

    @model_validator(mode="after")
    def _stores_fit(self) -> MetadataStoreInput:
        if self.source_url.overlaps(self.target_url):
            raise ValueError(f"source {self.source} and target {self.target} are, or hold, the same tree")
        require_one_set(self.store_credentials)
        if self.mode is Mode.LIVE and self.source_url.scheme != "zk":
            raise ValueError(
                "a live migration starts from ZooKeeper: only there brokers and bookies watch the migration flag; "
                'stop them and use "mode": "offline"'
            )
        if self.mode is Mode.OFFLINE and self.auto_throttle is not None:
            raise ValueError("auto_throttle: all services wait for an offline copy, so it must not stop; leave it out")
        if self.mode is Mode.OFFLINE and self.until:
            raise ValueError("until: an offline migration has no copy next to the traffic to rehearse; leave it out")
        if self.mode is Mode.LIVE and self.blocked_deadline < self.preparation_timeout:
            raise ValueError(
                f"blocked_deadline ({format_value(self.blocked_deadline)}) is shorter than preparation_timeout "
                f"({format_value(self.preparation_timeout)}), which is a part of it; raise the one, or lower the other"
            )
        return self

    @property
    def longest_cutover(self) -> timedelta:
        """Longest time with metadata writes blocked; zero where all services are stopped anyway."""
        return self.blocked_deadline if self.mode is Mode.LIVE else timedelta(0)

    @property
    def store_credentials(self) -> dict[StoreUrl, str]:
        """Name of the credentials of each store."""
        target = self.credentials if self.target_credentials is None else self.target_credentials
        return {self.source_url: self.credentials, self.target_url: target}

    @property
    def source_url(self) -> StoreUrl:
        """The source, parsed."""
        return parse_store_url(self.source)

    @property
    def target_url(self) -> StoreUrl:
        """The target, parsed."""
        return parse_store_url(self.target)

    @property
    def kind(self) -> str:
        """The kind with its mode."""
        return f"{KIND}/{self.mode}"

    @property
    def workflow_id(self) -> str:
        """The workflow id, one for each cluster: the server refuses a second start."""
        return f"{KIND}/{self.cluster}"

    @property
    def target_name(self) -> str:
        """The target's address."""
        return self.target

    @property
    def summary(self) -> str:
        """Cluster, source and target in one line."""
        return f"{self.cluster}: {self.source} → {self.target}{' (dry run)' if self.dry_run else ''}"
