"""What keeps two migrations of one cluster apart, as their prechecks see it.

The claim in the brokers' metadata store decides: whoever finds it taken stops. A precheck names the other migration
before anything is written, and sees what the claim does not show: a flag that Pulsar's own command moved, a store that
is not in use any more, a switch that an older version began.
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
"""Where Pulsar's metadata name the clusters that they know."""

_NAMED = 10


def other_holder(store: CasReader, workflow_id: str) -> Claim | None:
    """The claim of another migration on a store; None if there is none.

    Raises:
        StoreError: it cannot be read.
    """
    # Read as what all claims share: the holder may be a migration of another kind.
    held = read_claim(store, Claim)
    return held.claim if held and held.claim.workflow_id != workflow_id else None


def claimed(store: CasReader, claim: Claim, code: str = "CLUSTER_CLAIMED") -> Blocker:
    """Another migration, of whatever kind, holds the store."""
    return Blocker(code=code, cause=held_by(claim, store.url), cure="one migration of a cluster at a time")


def metadata_on_the_move(store: CasReader) -> Blocker | None:
    """The metadata of a store are being moved elsewhere, or have been.

    Raises:
        StoreError: the flag cannot be read.
    """
    flag = read_flag(store).flag
    if flag.phase in OPEN_PHASES:
        return None
    # No broker registers in such a store any more. A switch of bookies would take them for stopped, and fence the
    # ledgers of live ones.
    if flag.phase is FlagPhase.COMPLETED:
        return Blocker(code="METADATA_MOVED", cause=moved_to(flag), cure="name the store that the brokers use now")
    return Blocker(code="METADATA_MOVING", cause=foreign_flag(flag), cure="wait until that migration has ended")


def bookies_on_the_move(store: CasReader, workflow_id: str, registry: str = REGISTRY) -> Blocker | None:
    """The registry of bookie clusters shows a switch of another migration that has not ended.

    Raises:
        StoreError: the registry cannot be read.
    """
    claims = BookieRegistryReader(store, registry).claims()
    others = {name: claim for name, claim in claims.items() if claim.workflow_id != workflow_id}
    if not others:
        return None
    named = ", ".join(f"{name} by {claim.workflow_id}" for name, claim in sorted(others.items()))
    cause = f"another switch of bookie clusters is open in {registry}: {named}"
    cure = "let it end first, or, if its workflow is gone for good, remove its nodes beneath the registry"
    return Blocker(code="SWITCH_OPEN", cause=cause, cure=cure)


def another_cluster(store: CasReader, cluster: str) -> Blocker | None:
    """The store belongs to clusters of other names; one that names none may keep them in a configuration store.

    Raises:
        StoreError: the names cannot be read.
    """
    known = store.children(CLUSTERS)
    if not known or cluster in known:
        return None
    cause = f"{store.url} knows no Pulsar cluster {cluster!r}, only {', '.join(known[:_NAMED])}"
    return Blocker(code="CLUSTER_NAME", cause=cause, cure="give the clusterName of its brokers, or correct the address")


def no_brokers(address: str) -> Blocker:
    """No broker is registered in the store that brokers are said to use."""
    return Blocker(
        # A wrong chroot looks like a cluster at rest: a switch there closed ledgers of live brokers, and acknowledged
        # messages were lost (seen).
        code="NO_BROKERS",
        cause=f"no broker is registered in {address}: brokers use another address or chroot, or none runs",
        cure='name the store as the brokers do, and start them; or set "allow_no_brokers": true if none must run',
    )
