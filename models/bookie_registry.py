"""The nodes of the registry of bookie clusters (PIP-477, "Data Structures"), as JSON in the brokers' metadata store."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from models.lifecycle.claim import PacedClaim

REGISTRY = "/admin/bookie-clusters"
SWITCH_TARGET = "switch-target"
READ_MODE = "read-mode"
ORCHESTRATOR = "orchestrator"
BOOTSTRAP = "bootstrap"
"""Names the cluster of all ledgers without a mark: that from before the first switch (PIP-477, third revision)."""
RESERVED = frozenset((SWITCH_TARGET, READ_MODE, ORCHESTRATOR, BOOTSTRAP))
"""Children of the registry that are not clusters."""


def progress_node(registry: str, switch_id: str) -> str:
    """Return path of the node that holds a switch's progress."""
    return f"{registry}/{ORCHESTRATOR}/{switch_id}"


def claim_node(registry: str, switch_id: str) -> str:
    """Return path of the node at which versions up to 0.1 kept a switch's claim."""
    return f"{progress_node(registry, switch_id)}/claim"


class ClusterStatus(StrEnum):
    """Exactly one registered cluster is ACTIVE at any moment (PIP-477, I12)."""

    ACTIVE = "ACTIVE"
    STANDBY = "STANDBY"
    DEPRECATED = "DEPRECATED"


class ReadMode(StrEnum):
    """From which clusters brokers read (PIP-477, "CLI Commands")."""

    DUAL_READ = "DUAL_READ"
    OLD_CLUSTER_ONLY = "OLD_CLUSTER_ONLY"
    NEW_CLUSTER_ONLY = "NEW_CLUSTER_ONLY"


class _Node(BaseModel):
    """A node that others may write too: fields that we do not know survive."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def encode(self) -> bytes:
        """Return the node's value."""
        return self.model_dump_json().encode()

    def changed(self, **fields: Any) -> bytes:
        """Return the node's value with other fields."""
        return self.model_copy(update=fields).encode()


class RegisteredCluster(_Node):
    """`<registry>/<name>`."""

    name: str
    metadataServiceUri: str  # noqa: N815 - the proposal's name
    status: ClusterStatus


class BootstrapMarker(_Node):
    """`<registry>/bootstrap`: written once, when brokers load the plugin for the first time (PIP-477, I17).

    Attributes:
        bootstrapClusterName: the cluster of all ledgers without an attribution.
    """

    bootstrapClusterName: str = Field(pattern="^[^/]+$")  # noqa: N815 - the proposal's name


class SwitchTarget(_Node):
    """`<registry>/switch-target`: where brokers write from now on.

    Attributes:
        target: name of a registered cluster.
        origin: who gave the directive.
        epoch: grows by one with each directive.
        ts: when it was given, in milliseconds since 1970.
    """

    target: str
    origin: str
    epoch: int
    ts: int


class ReadModeNode(_Node):
    """`<registry>/read-mode`."""

    mode: ReadMode


class SwitchClaim(PacedClaim):
    """The claim of a switch in the brokers' metadata store: who carries it out, and how fast.

    Attributes:
        concurrency: batches of ledgers at once.
        registered: clusters that this switch has added to the registry, and that nothing was built on yet.
        directed: the cluster to which it has directed brokers; empty before that.
    """

    concurrency: int = 16
    registered: tuple[str, ...] = ()
    directed: str = ""
