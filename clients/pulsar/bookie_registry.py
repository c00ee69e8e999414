"""The registry of bookie clusters in the brokers' metadata store (PIP-477), changed by compare-and-set only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from clients.errors import StoreConflict
from clients.zookeeper.coordination import Check, Coordination, CoordinationReader, Set
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

NodeT = TypeVar("NodeT")

CAS_TRIES = 5
"""How often a compare-and-set is tried (PIP-477, "Phase 5: PROMOTE")."""


def origin_of(workflow_id: str) -> str:
    """How `switch-target` names a migration as its origin; brokers take it for none of them."""
    return f"temporal:{workflow_id}/"


class Entry(NamedTuple):
    """A registered cluster, with the version of its node."""

    cluster: RegisteredCluster
    version: int


class BookieRegistryReader:
    """Reads the registry.

    Args:
        zookeeper: an open session with the brokers' metadata store.
        path: the registry's node.
    """

    def __init__(self, zookeeper: CoordinationReader, path: str) -> None:
        self._reader = zookeeper
        self.path = path

    def clusters(self) -> dict[str, Entry]:
        """All registered clusters by name.

        Raises:
            StoreConflict: a node is no registration.
        """
        found: dict[str, Entry] = {}
        for name in self._reader.children(self.path):
            if name in RESERVED:
                continue
            node = self._get(f"{self.path}/{name}", RegisteredCluster.model_validate_json)
            if node is not None:
                found[name] = Entry(*node)
        return found

    def active(self) -> Entry | None:
        """The one cluster that is ACTIVE; None in an empty registry.

        Raises:
            StoreConflict: there are several (I12), or clusters of which none is.
        """
        clusters = self.clusters()
        while True:
            active = [entry for entry in clusters.values() if entry.cluster.status is ClusterStatus.ACTIVE]
            if len(active) == 1 or not clusters:
                return active[0] if active else None
            # Nodes are read one by one: what was read before and after somebody else's flip does not fit together.
            again = self.clusters()
            if again == clusters:
                break
            clusters = again
        names = ", ".join(entry.cluster.name for entry in active) or "none"
        raise StoreConflict(
            f"{self.path} must hold exactly one ACTIVE cluster, and holds {names}; set the others to STANDBY"
        )

    def switch_target(self) -> tuple[SwitchTarget, int] | None:
        """The last directive, with the version of its node."""
        return self._get(f"{self.path}/{SWITCH_TARGET}", SwitchTarget.model_validate_json)

    def committed(self, switch_id: str, workflow_id: str, target: str) -> bool:
        """Whether a migration that still holds its claim has directed brokers to the target."""
        claim, directive = self.claim(switch_id), self.switch_target()
        if claim is None or directive is None or claim[0].workflow_id != workflow_id:
            return False
        return directive[0].target == target and directive[0].origin.startswith(origin_of(workflow_id))

    def read_mode(self) -> ReadMode | None:
        """The mode that was set; None where none was."""
        found = self._get(f"{self.path}/{READ_MODE}", ReadModeNode.model_validate_json)
        return found[0].mode if found else None

    def claims(self) -> dict[str, SwitchClaim]:
        """Who carries out which switch, by switch id."""
        found: dict[str, SwitchClaim] = {}
        for switch_id in self._reader.children(f"{self.path}/{ORCHESTRATOR}"):
            claim = self.claim(switch_id)
            if claim is not None:
                found[switch_id] = claim[0]
        return found

    def claim(self, switch_id: str) -> tuple[SwitchClaim, int] | None:
        """The claim of one switch, with the version of its node."""
        return self._get(claim_node(self.path, switch_id), SwitchClaim.model_validate_json)

    def progress(self, switch_id: str) -> str:
        """The node that holds a switch's progress."""
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
        standing = self.clusters().get(name)
        if standing is not None:
            self._must_be(standing.cluster, uri)

    def _get(self, path: str, parse: Callable[[bytes], NodeT]) -> tuple[NodeT, int] | None:
        node = self._reader.get(path)
        if node is None or not node[0]:
            return None
        try:
            return parse(node[0]), node[1].version
        except ValueError as error:
            raise StoreConflict(f"{path} holds something else: {error}; remove it, or choose another path") from error

    def _must_be(self, standing: RegisteredCluster, uri: str) -> None:
        mine, theirs = parse_ledger_store_uri(uri).url, parse_ledger_store_uri(standing.metadataServiceUri).url
        if (set(mine.hosts), mine.root) != (set(theirs.hosts), theirs.root):
            raise StoreConflict(
                f"{standing.name} is registered with {standing.metadataServiceUri}, not {uri}; choose another name, or "
                f"remove {self.path}/{standing.name}"
            )


class BookieRegistry(BookieRegistryReader):
    """Changes the registry."""

    def __init__(self, zookeeper: Coordination, path: str) -> None:
        super().__init__(zookeeper, path)
        self._zookeeper = zookeeper

    def register(self, name: str, uri: str, status: ClusterStatus) -> bool:
        """Register a cluster; returns whether it was new.

        Raises:
            StoreConflict: the name, or server and root of the address, belong to another registration, or a second
                cluster would be ACTIVE.
        """
        clusters = self.clusters()
        if name in clusters:
            self._must_be(clusters[name].cluster, uri)
            return False
        self.refuse_used_address(name, uri)
        active = self.active()
        if status is ClusterStatus.ACTIVE and active is not None:
            raise StoreConflict(f"{active.cluster.name} is ACTIVE in {self.path}; {name} cannot be registered so too")
        node = RegisteredCluster(name=name, metadataServiceUri=uri, status=status)
        try:
            self._zookeeper.create(f"{self.path}/{name}", node.encode(), parents=True)
        except StoreConflict:
            standing = self.clusters().get(name)
            if standing is None:
                raise
            self._must_be(standing.cluster, uri)
            return False
        return True

    def set_target(self, target: str, origin: str) -> SwitchTarget:
        """Direct brokers to a cluster; a directive of this origin that names it already is left as it is.

        Raises:
            StoreConflict: somebody else gave a directive at the same moment.
        """
        path = f"{self.path}/{SWITCH_TARGET}"
        found = self.switch_target()
        if found and (found[0].target, found[0].origin) == (target, origin):
            return found[0]
        epoch = found[0].epoch + 1 if found else 1
        directive = SwitchTarget(target=target, origin=origin, epoch=epoch, ts=time.time_ns() // 1_000_000)
        try:
            if found:
                self._zookeeper.set(path, found[0].changed(**directive.model_dump()), found[1])
            else:
                self._zookeeper.create(path, directive.encode(), parents=True)
        except StoreConflict:
            standing = self.switch_target()
            if standing is None or (standing[0].target, standing[0].origin) != (target, origin):
                raise
            return standing[0]
        return directive

    def flip(self, new: str, old: str) -> None:
        """Make `new` ACTIVE and `old` DEPRECATED: two compare-and-sets in one transaction, so one is always ACTIVE.

        Raises:
            StoreConflict: one of them is not registered, or others kept changing them.
        """
        for last in (False,) * (CAS_TRIES - 1) + (True,):
            clusters = self.clusters()
            if missing := {new, old} - set(clusters):
                raise StoreConflict(f"{', '.join(sorted(missing))} is not registered in {self.path}; register it anew")
            wanted = {new: ClusterStatus.ACTIVE, old: ClusterStatus.DEPRECATED}
            if all(clusters[name].cluster.status is status for name, status in wanted.items()):
                return
            parts = [
                Set(f"{self.path}/{name}", clusters[name].cluster.changed(status=status), clusters[name].version)
                for name, status in wanted.items()
            ]
            others = [
                Check(f"{self.path}/{name}", entry.version) for name, entry in clusters.items() if name not in wanted
            ]
            try:
                self._zookeeper.commit([*parts, *others])
            except StoreConflict:
                if last:
                    raise
            else:
                return

    def set_read_mode(self, mode: ReadMode) -> None:
        """Remember the mode for brokers that start later."""
        path = f"{self.path}/{READ_MODE}"
        node = self._zookeeper.get(path)
        value = ReadModeNode(mode=mode).encode()
        if node is None:
            self._zookeeper.create(path, value, parents=True)
        else:
            self._zookeeper.set(path, value, node[1].version)

    def take_claim(self, switch_id: str, fresh: SwitchClaim) -> SwitchClaim:
        """Claim a switch for a new attempt; every earlier attempt stops. What the claim says of the pace stays.

        Raises:
            StoreConflict: another migration holds it.
        """
        return self._settled(lambda: self._take_claim(switch_id, fresh))

    def _take_claim(self, switch_id: str, fresh: SwitchClaim) -> SwitchClaim:
        path = claim_node(self.path, switch_id)
        found = self.claim(switch_id)
        if found is None:
            claim = fresh.model_copy(update={"attempt": 1})
            self._zookeeper.create(path, claim.encode(), parents=True)
            return claim
        old, version = found
        self._must_hold(switch_id, old, fresh.workflow_id)
        claim = old.model_copy(update={"run_id": fresh.run_id, "attempt": old.attempt + 1})
        if old.run_id != fresh.run_id:
            claim = claim.model_copy(update={"throttle": fresh.throttle, "concurrency": fresh.concurrency})
        self._zookeeper.set(path, claim.encode(), version)
        return claim

    def set_pace(self, switch_id: str, workflow_id: str, *, throttle: float | None, concurrency: int) -> None:
        """Change throttle and concurrency of the attempt that runs; nothing happens where none does.

        Raises:
            StoreConflict: another migration holds the switch.
        """

        def change() -> None:
            found = self.claim(switch_id)
            if found is None:
                return
            self._must_hold(switch_id, found[0], workflow_id)
            value = found[0].changed(throttle=throttle, concurrency=concurrency)
            self._zookeeper.set(claim_node(self.path, switch_id), value, found[1])

        self._settled(change)

    def release(self, switch_id: str, workflow_id: str) -> None:
        """Remove a switch's progress, its claim last; harmless where there is none.

        Raises:
            StoreConflict: another migration holds the switch.
        """
        self._settled(lambda: self._release(switch_id, workflow_id))

    def _release(self, switch_id: str, workflow_id: str) -> None:
        found = self.claim(switch_id)
        if found is not None:
            self._must_hold(switch_id, found[0], workflow_id)
        top = self.progress(switch_id)
        for name in sorted(self._zookeeper.children(top), key=lambda name: name == "claim"):
            for inner in self._zookeeper.children(f"{top}/{name}"):
                self._forget(f"{top}/{name}/{inner}")
            self._forget(f"{top}/{name}")
        self._forget(top)

    def _forget(self, path: str) -> None:
        try:
            self._zookeeper.delete(path, -1)
        except StoreConflict:
            if self._zookeeper.exists(path):
                raise

    def _settled(self, change: Callable[[], NodeT]) -> NodeT:
        """Make a change that reads first, and again where another attempt changed the same in between."""
        for _ in range(CAS_TRIES - 1):
            with contextlib.suppress(StoreConflict):
                return change()
        return change()

    def _must_hold(self, switch_id: str, claim: SwitchClaim, workflow_id: str) -> None:
        if claim.workflow_id != workflow_id:
            raise StoreConflict(
                f"the switch {switch_id} is held by the migration {claim.workflow_id!r} (run {claim.run_id}); let that "
                f"one end, or remove {self.progress(switch_id)} if it never will"
            )
