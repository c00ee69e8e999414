"""What one direction of a bookie cluster switch has done so far, kept beside its claim in the brokers' metadata store.

`verified/<n>` lists ledgers that were copied or found in the target and compared in full, each with the zxid of the
target's znode at that time: as long as it is the same, the ledger need not be compared again. `failed/<n>` lists those
that could not be, with the reason. Nodes are filled up before another one is begun, so that they stay few.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from activities.bookie_cluster.context import BookieClusterTask
from clients.errors import StoreConflict
from clients.pulsar.bookie_registry import CAS_TRIES, BookieRegistry
from clients.store import Record, StoreReader
from clients.zookeeper.coordination import Check, Coordination, Create, Set
from models.bookie_registry import SwitchClaim
from models.lifecycle.failures import FailedItem

NODE_BYTES = 200_000
"""How large a node of a list may become; ZooKeeper takes 1 MB."""
MOST_FAILURES = 20_000
"""Ledgers that `failed` names; more of them say nothing new."""

_VERIFIED, _FAILED, _MISSING, _LINE, _DELETED = "verified", "failed", "missing", "line", "deleted"
_LONGEST_REASON = 400


class SwitchProgress:
    """Reads and extends the progress of one attempt; what another attempt has taken over cannot be written.

    Args:
        task: the migration, and the direction.
        zookeeper: an open session with the brokers' metadata store.
        attempt: the attempt that writes.
    """

    def __init__(self, task: BookieClusterTask, zookeeper: Coordination, attempt: int) -> None:
        self._zookeeper = zookeeper
        self._registry = BookieRegistry(zookeeper, task.input.registry_path)
        self._switch_id = task.ends.switch_id
        self._workflow_id = task.workflow_id
        self._attempt = attempt
        self._step = f"{task.run_id}/{task.step_id}" if task.step_id else ""
        self._top = self._registry.progress(self._switch_id)
        self._failures = 0

    def require(self) -> SwitchClaim:
        """The claim, as it says now how fast to go.

        Raises:
            StoreConflict: a newer attempt, or another migration, has taken it.
        """
        return self._claim()[0]

    def add_verified(self, ledgers: Mapping[int, int]) -> None:
        """Remember ledgers that were compared in full, with the zxid of the target's znode.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        self._append(_VERIFIED, [[ledger, mzxid] for ledger, mzxid in ledgers.items()])

    def add_failed(self, ledgers: Mapping[int, str]) -> None:
        """Remember ledgers that could not be copied, or that differ.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        named = [[ledger, why[:_LONGEST_REASON]] for ledger, why in ledgers.items()]
        chosen = named[: max(0, MOST_FAILURES - self._failures)]
        self._failures += len(chosen)
        self._append(_FAILED, chosen)

    @property
    def failed_node(self) -> str:
        """The node whose children list the ledgers that failed."""
        return f"{self._top}/{_FAILED}"

    def list_missing(self, items: Sequence[FailedItem]) -> str:
        """Keep the whole list of references whose ledger is missing; returns the node whose children hold it.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        self._clear(_MISSING)
        self._append(_MISSING, [[item.ledger_id, item.path] for item in items])
        return f"{self._top}/{_MISSING}"

    def forget_failed(self) -> None:
        """Begin the list of failures anew: this attempt tries all of them again."""
        self.require()
        self._failures = 0
        self._clear(_FAILED)

    def draw_line(self, highest: int) -> None:
        """Remember the highest id of the source at the moment when its brokers were directed away."""
        self._write(f"{self._top}/{_LINE}", json.dumps({"highest": highest}).encode())

    def deleted(self) -> int:
        """How many ledgers earlier attempts at this step may have deleted."""
        node = self._zookeeper.get(f"{self._top}/{_DELETED}") if self._step else None
        if node is None:
            return 0
        found: dict[str, Any] = json.loads(node[0])
        return int(found["ledgers"]) if found["step"] == self._step else 0

    def note_deleted(self, ledgers: int) -> None:
        """Remember how many this step will have deleted, before it does so: a repetition must not exceed its limit.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        self._write(f"{self._top}/{_DELETED}", json.dumps({"step": self._step, "ledgers": ledgers}).encode())

    def _clear(self, name: str) -> None:
        top = f"{self._top}/{name}"
        for child in self._zookeeper.children(top):
            self._zookeeper.delete(f"{top}/{child}", -1)

    def _append(self, name: str, items: Sequence[list[int] | list[Any]]) -> None:
        if not items:
            return
        top = f"{self._top}/{name}"
        last = max((int(child) for child in self._zookeeper.children(top)), default=0)
        standing = self._zookeeper.get(_node(top, last))
        found = _decode(standing[0]) if standing else []
        for number, chunk in enumerate(pack([*found, *items]), last):
            self._write(_node(top, number), chunk)

    def _write(self, path: str, value: bytes) -> None:
        """Write a node as long as the claim is ours."""
        for last in (False,) * (CAS_TRIES - 1) + (True,):
            _, version = self._claim()
            fence = Check(f"{self._top}/claim", version)
            standing = self._zookeeper.get(path)
            if standing is not None and standing[0] == value:
                return
            self._make_parent(path)
            change = Create(path, value) if standing is None else Set(path, value, standing[1].version)
            try:
                self._zookeeper.commit([fence, change])
            except StoreConflict:
                # The pace was changed meanwhile, which changes the claim too; a lost claim shows above.
                if last:
                    raise
            else:
                return

    def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if self._zookeeper.exists(parent) is None:
            try:
                self._zookeeper.create(parent, parents=True)
            except StoreConflict:
                return  # somebody else was first

    def _claim(self) -> tuple[SwitchClaim, int]:
        found = self._registry.claim(self._switch_id)
        if found is None or (found[0].workflow_id, found[0].attempt) != (self._workflow_id, self._attempt):
            raise StoreConflict("a newer attempt has taken over; this one stops")
        return found


def read_verified(store: StoreReader, progress: str) -> dict[int, int]:
    """Ledgers that were compared in full, with the zxid that the target's znode had.

    Args:
        store: the brokers' metadata store.
        progress: the node that holds the switch's progress.

    Raises:
        StoreError: it cannot be read.
    """
    return {int(ledger): int(mzxid) for ledger, mzxid in _read(store, progress, _VERIFIED)}


def read_failed(store: StoreReader, progress: str) -> dict[int, str]:
    """Ledgers that could not be copied, or that differ, and why."""
    return {int(ledger): str(why) for ledger, why in _read(store, progress, _FAILED)}


def read_line(store: StoreReader, progress: str) -> int | None:
    """The highest id of the source when brokers were directed away; None before that."""
    (found,) = store.read([f"{progress}/{_LINE}".encode()])
    return int(json.loads(found.value)["highest"]) if isinstance(found, Record) else None


def pack(items: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Lists of JSON that hold all items in their order, each as long as a node may be."""
    chunk: list[bytes] = []
    size = 0
    for item in items:
        text = json.dumps(item, separators=(",", ":")).encode()
        if chunk and size + len(text) + 1 > NODE_BYTES - 2:
            yield b"[" + b",".join(chunk) + b"]"
            chunk, size = [], 0
        chunk.append(text)
        size += len(text) + 1
    yield b"[" + b",".join(chunk) + b"]"


def _read(store: StoreReader, progress: str, name: str) -> list[list[Any]]:
    nodes = store.read(sorted(store.children(f"{progress}/{name}".encode())))
    return [item for node in nodes if isinstance(node, Record) for item in _decode(node.value)]


def _decode(value: bytes) -> list[list[Any]]:
    return json.loads(value) if value else []


def _node(top: str, number: int) -> str:
    return f"{top}/{number:010d}"
