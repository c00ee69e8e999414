"""Prechecks for other migrations of the same cluster.

The claim in the brokers' metadata store decides: a migration that finds it taken stops. A precheck names the other
migration before anything is written. It also detects what the claim does not show: a flag that Pulsar's own command
set, a store that is not in use any more, a switch that an older version started.
"""

from __future__ import annotations

from clients.cas.claims import held_by, read_claim
from clients.cas.store import CasReader
from clients.pulsar.records.bookie_registry import BookieRegistryReader
from clients.pulsar.records.migration_flag import foreign_flag, moved_to, read_flag
from models.bookie_registry import REGISTRY
from models.lifecycle.claim import Claim
from models.lifecycle.failures import Blocker
from models.migration_flag import OPEN_PHASES, FlagPhase

CLUSTERS = "/admin/clusters"
"""Parent of the names of clusters in Pulsar's metadata."""

_NAMED = 10


def other_holder(store: CasReader, workflow_id: str) -> Claim | None:
    """Return the claim of another migration on a store; None without one.

    Raises:
        StoreError: it cannot be read.
    """
    # Decode only the fields of all claims: the holder may be a migration of another kind.
    held = read_claim(store, Claim)
    return held.claim if held and held.claim.workflow_id != workflow_id else None


def claimed(store: CasReader, claim: Claim, code: str = "CLUSTER_CLAIMED") -> Blocker:
    """Return the blocker for a store that another migration holds."""
    return Blocker(code=code, cause=held_by(claim, store.url), cure="one migration of a cluster at a time")


def metadata_on_the_move(store: CasReader) -> Blocker | None:
    """Return a blocker if the metadata of a store is being moved, or was moved; else None.

    Raises:
        StoreError: the flag cannot be read.
    """
    flag = read_flag(store).flag
    if flag.phase in OPEN_PHASES:
        return None
    # No broker registers in such a store any more. A switch of bookies would assume that brokers have stopped, and
    # fence the ledgers of running ones.
    if flag.phase is FlagPhase.COMPLETED:
        return Blocker(code="METADATA_MOVED", cause=moved_to(flag), cure="name the store that the brokers use now")
    return Blocker(code="METADATA_MOVING", cause=foreign_flag(flag), cure="wait until that migration has ended")


def bookies_on_the_move(store: CasReader, workflow_id: str, registry: str = REGISTRY) -> Blocker | None:
    """Return a blocker if the registry of bookie clusters has an open switch of another migration; else None.

    Raises:
        StoreError: the registry cannot be read.
    """
    claims = BookieRegistryReader(store, registry).claims()
    others = {name: claim for name, claim in claims.items() if claim.workflow_id != workflow_id}
    if not others:
        return None
    named = ", ".join(f"{name} by {claim.workflow_id}" for name, claim in sorted(others.items()))
    cause = f"another switch of bookie clusters is open in {registry}: {named}"
    cure = "wait until it has ended, or, if its workflow does not exist any more, remove its nodes below the registry"
    return Blocker(code="SWITCH_OPEN", cause=cause, cure=cure)


def another_cluster(store: CasReader, cluster: str) -> Blocker | None:
    """Return a blocker if the store belongs to clusters of other names; else None.

    A store without names passes: its cluster may have a separate configuration store.

    Raises:
        StoreError: the names cannot be read.
    """
    names = store.children(CLUSTERS)
    if not names or cluster in names:
        return None
    cause = f"{store.url} has no Pulsar cluster {cluster!r}, only {', '.join(names[:_NAMED])}"
    return Blocker(code="CLUSTER_NAME", cause=cause, cure="give the clusterName of its brokers, or correct the address")


def no_brokers(address: str) -> Blocker:
    """Return the blocker for a metadata store without registered brokers."""
    return Blocker(
        # A wrong chroot looks like a stopped cluster. A switch there closed ledgers of running brokers, and
        # acknowledged messages were lost (seen).
        code="NO_BROKERS",
        cause=f"no broker is registered in {address}: brokers use another address or chroot, or none runs",
        cure='name the store as the brokers do, and start them; or set "allow_no_brokers": true if none must run',
    )
