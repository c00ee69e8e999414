"""The registry of bookie clusters in the brokers' metadata store (PIP-477), changed by compare-and-set only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasReader, CasStore, Check, Create, Delete, Part, Set, retry
from clients.errors import StoreConflict, VersionConflict
from models.base import faults
from models.bookie_registry import (
    ORCHESTRATOR,
    READ_MODE,
    RESERVED,
    SWITCH_TARGET,
    ClusterStatus,
    ReadMode,
    ReadModeNode,
    RegisteredCluster,
    SwitchClaim,
    SwitchTarget,
    claim_node,
    progress_node,
)
from models.ledger_store import parse_ledger_store_uri
from models.lifecycle.claim import Claim

NodeT = TypeVar("NodeT")


def origin_of(workflow_id: str) -> str:
    """Return how `switch-target` names a migration as its origin; brokers take it for none of them."""
    return f"temporal:{workflow_id}/"


class Entry(NamedTuple):
    """A registered cluster, with the version of its node."""

    cluster: RegisteredCluster
    version: int


class BookieRegistryReader:
    """Reads the registry.

    Args:
        store: the brokers' metadata store, opened.
        path: the registry's node.
    """

    def __init__(self, store: CasReader, path: str) -> None:
        self._reader = store
        self.path = path

    def clusters(self) -> dict[str, Entry]:
        """Return all registered clusters by name.

        Raises:
            StoreConflict: a node is not a registration.
        """
        entries: dict[str, Entry] = {}
        for name in self._reader.children(self.path):
            if name in RESERVED:
                continue
            node = self._get(f"{self.path}/{name}", RegisteredCluster.model_validate_json)
            if node is not None:
                entries[name] = Entry(*node)
        return entries

    def active(self) -> Entry | None:
        """Return the one cluster that is ACTIVE; None in an empty registry.

        Raises:
            StoreConflict: there are several (I12), or clusters of which none is.
        """
        clusters = self.clusters()
        while True:
            active = [entry for entry in clusters.values() if entry.cluster.status is ClusterStatus.ACTIVE]
            if len(active) == 1 or not clusters:
                return active[0] if active else None
            # Nodes are read one by one: what was read before and after another attempt's flip does not fit together.
            again = self.clusters()
            if again == clusters:
                break
            clusters = again
        names = ", ".join(entry.cluster.name for entry in active) or "none"
        raise StoreConflict(
            f"{self.path} must hold exactly one ACTIVE cluster, and holds {names}; set the others to STANDBY"
        )

    def switch_target(self) -> tuple[SwitchTarget, int] | None:
        """Return the last directive, with the version of its node."""
        return self._get(f"{self.path}/{SWITCH_TARGET}", SwitchTarget.model_validate_json)

    def directs_to(self, cluster: str) -> bool:
        """Return whether the last directive sends brokers to a cluster."""
        directive = self.switch_target()
        return directive is not None and directive[0].target == cluster

    def read_mode(self) -> ReadMode | None:
        """Return the mode that was set; None where none was."""
        mode = self._get(f"{self.path}/{READ_MODE}", ReadModeNode.model_validate_json)
        return mode[0].mode if mode else None

    def claims(self) -> dict[str, Claim]:
        """Return who carries out which switch, by switch id, as versions up to 0.1 noted it."""
        claims: dict[str, Claim] = {}
        for switch_id in self._reader.children(f"{self.path}/{ORCHESTRATOR}"):
            claim = self._get(claim_node(self.path, switch_id), Claim.model_validate_json)
            if claim is not None:
                claims[switch_id] = claim[0]
        return claims

    def progress(self, switch_id: str) -> str:
        """Return the node that holds a switch's progress."""
        return progress_node(self.path, switch_id)

    def refuse_used_address(self, name: str, uri: str) -> None:
        """Refuse an address under which another cluster is registered, or whose root holds another's or lies in it.

        Raises:
            StoreConflict: it is so.
        """
        mine = parse_ledger_store_uri(uri).url
        for other in self.clusters().values():
            theirs = parse_ledger_store_uri(other.cluster.metadataServiceUri).url
            if other.cluster.name != name and mine.overlaps(theirs):
                raise StoreConflict(
                    f"{uri} is in use by the registered cluster {other.cluster.name} "
                    f"({other.cluster.metadataServiceUri}); two clusters need roots of their own"
                )

    def refuse_other_address(self, name: str, uri: str) -> None:
        """Refuse another address for a cluster that is registered.

        Raises:
            StoreConflict: it is registered with another one.
        """
        registered = self.clusters().get(name)
        if registered is not None:
            self._must_be(registered.cluster, uri)

    def _get(self, path: str, parse: Callable[[bytes], NodeT]) -> tuple[NodeT, int] | None:
        node = self._reader.get(path)
        if node is None or not node.value:
            return None
        try:
            return parse(node.value), node.version
        except ValidationError as error:
            message = f"{path} holds something else ({faults(error)}); remove it, or choose another path"
            raise StoreConflict(message) from error

    def _must_be(self, registered: RegisteredCluster, uri: str) -> None:
        mine, theirs = parse_ledger_store_uri(uri).url, parse_ledger_store_uri(registered.metadataServiceUri).url
        # Hosts in another order are the same ensemble.
        if (set(mine.hosts), mine.root) != (set(theirs.hosts), theirs.root):
            raise StoreConflict(
                f"{registered.name} is registered with {registered.metadataServiceUri}, not {uri}; choose another "
                f"name, or remove {self.path}/{registered.name}"
            )


class BookieRegistry(BookieRegistryReader):
    """Changes the registry.

    Args:
        store: the brokers' metadata store, opened.
        path: the registry's node.
        claim: the claim on that store; each change is one transaction with it, so an attempt that lost it changes
            nothing.
    """

    def __init__(self, store: CasStore, path: str, claim: ClaimKeeper[SwitchClaim]) -> None:
        super().__init__(store, path)
        self.store = store
        self.claim = claim

    def register(self, *wanted: RegisteredCluster) -> tuple[str, ...]:
        """Register clusters, all or none; returns the names of those that were new, which the claim remembers.

        Raises:
            StoreConflict: a name, or server and root of an address, belong to another registration, or a second
                cluster would be ACTIVE; or the claim is lost.
        """
        return retry(lambda: self._register(wanted), self.path)

    def _register(self, wanted: Sequence[RegisteredCluster]) -> tuple[str, ...]:
        lock, clusters = self._lock(), self.clusters()
        new = [cluster for cluster in wanted if cluster.name not in clusters]
        active = self.active()
        for cluster in wanted:
            self.refuse_used_address(cluster.name, cluster.metadataServiceUri)
            self.refuse_other_address(cluster.name, cluster.metadataServiceUri)
        for cluster in new:
            # mutant: bookie-cluster/a-second-active-is-registered
            if cluster.status is ClusterStatus.ACTIVE and active is not None:
                name = active.cluster.name
                raise StoreConflict(f"{name} is ACTIVE in {self.path}; {cluster.name} cannot be registered so too")
        names = tuple(sorted(cluster.name for cluster in new))
        if new:
            names_to_keep = {*names, *self.claim.require().registered}
            creations = [Create(f"{self.path}/{cluster.name}", cluster.encode()) for cluster in new]
            # mutant: bookie-cluster/a-registration-without-the-lock, bookie-cluster/a-registration-without-the-claim
            self.store.transaction([self.claim.renewal(registered=tuple(sorted(names_to_keep))), lock, *creations])
        return names

    def unregister(self, names: Iterable[str]) -> None:
        """Take back registrations, and the registry and its parents where nothing is left in them.

        Harmless where there are none.

        Raises:
            StoreConflict: the claim is lost.
        """
        for name in names:
            self.remove(f"{self.path}/{name}")
        path = f"{self.path}/{ORCHESTRATOR}"
        while path:
            retry(lambda path=path: self._remove_empty(path), path)
            path = path.rpartition("/")[0]

    def set_target(self, target: str, origin: str, *, unless: str = "") -> SwitchTarget:
        """Direct brokers to a cluster; a directive of this origin that names it already is left as it is.

        Args:
            target: name of the cluster.
            origin: who gives the directive.
            unless: whose directive is not to be replaced.

        Raises:
            StoreConflict: the last directive is of `unless`; others gave directives at the same moment; or the claim is
                lost.
        """
        return retry(lambda: self._set_target(target, origin, unless), f"{self.path}/{SWITCH_TARGET}")

    def _set_target(self, target: str, origin: str, unless: str) -> SwitchTarget:
        path = f"{self.path}/{SWITCH_TARGET}"
        lock, last = self._lock(), self.switch_target()
        # mutant: bookie-cluster/a-run-that-turned-back-goes-forward
        if last and unless and last[0].origin == unless:
            raise StoreConflict("this switch has turned back already; a late attempt does not direct brokers again")
        # An answer that was lost: a second directive would raise the epoch for nothing.
        # mutant: bookie-cluster/a-repeated-directive-is-a-new-one
        if last and (last[0].target, last[0].origin) == (target, origin):
            return last[0]
        epoch = last[0].epoch + 1 if last else 1
        directive = SwitchTarget(target=target, origin=origin, epoch=epoch, ts=time.time_ns() // 1_000_000)
        change = (
            Set(path, last[0].changed(**directive.model_dump()), last[1]) if last else Create(path, directive.encode())
        )
        # The claim remembers it, so that a run which is started again knows how far this one came.
        # mutant: bookie-cluster/a-directive-without-the-claim
        self.store.transaction([self.claim.renewal(directed=target), lock, change])
        return directive

    def flip(self, new: str, old: str) -> None:
        """Make `new` ACTIVE and `old` DEPRECATED: two compare-and-sets in one transaction, so one is always ACTIVE.

        Raises:
            StoreConflict: one of them is not registered, neither of them or a third cluster is ACTIVE, or the claim is
                lost.
        """
        retry(lambda: self._flip(new, old), self.path)

    def _flip(self, new: str, old: str) -> None:
        lock, clusters = self._lock(), self.clusters()
        if missing := {new, old} - set(clusters):
            raise StoreConflict(f"{', '.join(sorted(missing))} is not registered in {self.path}; register it again")
        wanted = {new: ClusterStatus.ACTIVE, old: ClusterStatus.DEPRECATED}
        others = {name: entry for name, entry in clusters.items() if name not in wanted}
        active = {name for name, entry in clusters.items() if entry.cluster.status is ClusterStatus.ACTIVE}
        # mutant: bookie-cluster/a-third-active-is-flipped-over, bookie-cluster/two-active-are-flipped
        if len(active) != 1 or not active <= wanted.keys():
            named = ", ".join(sorted(active)) or "no cluster"
            raise StoreConflict(
                f"{named} is ACTIVE in {self.path}, and not one of {old} and {new}; set its status right"
            )
        if all(clusters[name].cluster.status is status for name, status in wanted.items()):
            return
        self._commit(
            lock,
            *(
                # mutant: bookie-cluster/a-flip-of-any-version
                Set(f"{self.path}/{name}", clusters[name].cluster.changed(status=status), clusters[name].version)
                for name, status in wanted.items()
            ),
            # The versions of all others too: one that becomes ACTIVE at this moment makes this fail (I12).
            # mutant: bookie-cluster/a-flip-without-the-others
            *(Check(f"{self.path}/{name}", entry.version) for name, entry in others.items()),
        )

    def set_read_mode(self, mode: ReadMode) -> None:
        """Remember the mode for brokers that start later.

        Raises:
            StoreConflict: the claim is lost.
        """
        self.put(f"{self.path}/{READ_MODE}", ReadModeNode(mode=mode).encode())

    def forget_progress(self, switch_id: str, *, keep: Collection[str] = ()) -> None:
        """Remove what one direction of a switch remembers; harmless where that is nothing.

        Args:
            switch_id: names source and target.
            keep: names of nodes that stay.

        Raises:
            StoreConflict: the claim is lost.
        """
        top = self.progress(switch_id)
        for name in set(self.store.children(top)).difference(keep):
            for inner in self.store.children(f"{top}/{name}"):
                self.remove(f"{top}/{name}/{inner}")
            self.remove(f"{top}/{name}")
        retry(lambda: self._remove_empty(top), top)

    def put(self, path: str, value: bytes) -> None:
        """Write a node of the registry, with its parent, as long as the claim is ours; the same value is left as it is.

        Raises:
            StoreConflict: the claim is lost.
        """
        retry(lambda: self._put(path, value), path)

    def remove(self, path: str) -> None:
        """Remove a node of the registry as long as the claim is ours; harmless where there is none.

        Raises:
            StoreConflict: the claim is lost.
        """
        retry(lambda: self._remove(path), path)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _lock(self) -> Set:
        """Return the registry's own node, as part of a transaction: of two that read before they write, one fails.

        Taken before anything is read that decides: versions of nodes do not show one that is created later.
        """
        self._make_parent(f"{self.path}/")
        node = self.store.get(self.path)
        if node is None:
            raise VersionConflict(f"{self.path} was removed in the meantime by another client")
        return Set(self.path, node.value, node.version)  # mutant: bookie-cluster/a-lock-of-any-version

    def _commit(self, *parts: Part, guard: Check | None = None) -> None:
        """Change nodes as long as the claim is ours, or is as a guard saw it."""
        for change in parts:
            if isinstance(change, Create):
                self._make_parent(change.path)
        # mutant: bookie-cluster/a-write-without-the-claim
        self.store.transaction([guard or self.claim.guard(), *parts])

    def _put(self, path: str, value: bytes) -> None:
        # Taken before the node is read: a run that takes the claim over after this makes the transaction fail.
        guard = self.claim.guard()
        node = self.store.get(path)
        # A repeated write whose answer was lost.
        if node is not None and node.value == value:
            return
        # mutant: bookie-cluster/a-node-of-any-version
        self._commit(Create(path, value) if node is None else Set(path, value, node.version), guard=guard)

    def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and self.store.get(parent) is None:
            # Parents are created before the transaction, so they look at the claim by themselves.
            self.claim.require()  # mutant: bookie-cluster/parents-without-the-claim
            with contextlib.suppress(VersionConflict):  # another attempt was first
                self.store.create(parent, b"")

    def _remove(self, path: str) -> None:
        node = self.store.get(path)
        if node is not None:
            self._commit(Delete(path, node.version))

    def _remove_empty(self, path: str) -> None:
        node = self.store.get(path)
        if node and not node.value and not self.store.children(path):
            self._commit(Delete(path, node.version))
