"""Progress of one direction of a bookie cluster migration, kept next to its claim in the brokers' metadata store.

`verified/<n>` lists ledgers that were copied or found in the target and compared in full, each with the zxid of the
target's znode at that time: until that znode is deleted, the ledger need not be compared again. A ledger that
differed when it was compared again is listed again, with 0. `failed/<n>` lists ledgers that could not be copied, with
the reason. Lists of failures that are too long for a report are next to them. Each node is filled before the next one
is created, so that there are few.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from activities.bookie_cluster.context import BookieClusterTask
from clients.bookkeeper.copy_result import Begun
from clients.json_text import read_json
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.store import Record, StoreReader
from models.bookie_cluster.input import LedgerScope
from models.bookie_registry import SwitchClaim
from models.lifecycle.failures import NAMED, FailedItem, FailedItems

NODE_BYTES = 200_000
"""Largest size of a node of a list; ZooKeeper accepts 1 MB."""
MOST_FAILURES = 20_000
"""Most ledgers that `failed` names; more would not help an operator."""

REPORTED = NOT_COPIED_LEDGERS, MISSING_LEDGERS, ATTRIBUTIONS = "not-copied", "missing", "attributions"
"""Lists of failures that a report refers to. They stay until an operator deletes them or the switch runs again."""

COPIES = VERIFIED, BEGUN, SCOPE = "verified", "begun", "scope"
"""Lists of verified ledgers and open copies, and the choice of ledgers: they stay after a rollback, as copies do."""

_FAILED, _CUTOVER, _DELETED = "failed", "cutover-ledger-id", "deleted"
_LONGEST_REASON = 400
# No znode was last changed by the transaction 0.
_TAKEN_BACK = 0
# Number of changes at which they are merged into the arrays, which copies the arrays.
_RECENT = 20_000


class SwitchProgress:
    """Reads and extends the progress of one attempt; after another attempt has taken over it cannot write.

    Args:
        task: the attempt, and the direction.
        registry: of bookie clusters, opened on behalf of the attempt.
    """

    def __init__(self, task: BookieClusterTask, registry: BookieRegistry) -> None:
        self._registry = registry
        self._store = registry.store
        # Of all attempts at one activity: a retry continues with the count, the next activity begins again.
        self._step = f"{task.run_id}/{task.attempt.epoch}"
        self._top = registry.progress(task.ends.switch_id)
        self._failures = 0

    def require(self) -> SwitchClaim:
        """Return the current claim, which holds the pace.

        Raises:
            StoreConflict: a newer attempt, or another migration, has taken it.
        """
        return self._registry.claim.require()

    def add_verified(self, ledgers: Mapping[int, int]) -> None:
        """Remember ledgers that were compared in full, with the zxid of the target's znode.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        self._append(VERIFIED, [[ledger, mzxid] for ledger, mzxid in ledgers.items()])

    def take_back(self, ledgers: Iterable[int]) -> None:
        """Remove ledgers from the verified ones: a later comparison failed, and a cleanup would delete the original.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        self._append(VERIFIED, [[ledger, _TAKEN_BACK] for ledger in ledgers])

    def set_begun(self, ledgers: Mapping[int, Begun]) -> None:
        """Record how far open copies have come, in place of the earlier record.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        top = f"{self._top}/{BEGUN}"
        earlier = self._store.children(top)
        first = max((int(child) for child in earlier), default=-1) + 1
        # Written before the earlier record is removed, and read after it: nothing is lost if this attempt ends halfway.
        for number, chunk in enumerate(pack([ledger, *begun] for ledger, begun in ledgers.items()), first):
            self._registry.put(_node(top, number), chunk)
        for child in earlier:
            self._registry.remove(f"{top}/{child}")

    def add_failed(self, ledgers: Mapping[int, str]) -> None:
        """Remember ledgers that could not be copied, or that differ.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        named = [[ledger, why[:_LONGEST_REASON]] for ledger, why in ledgers.items()]
        chosen = named[: max(0, MOST_FAILURES - self._failures)]
        self._failures += len(chosen)
        self._append(_FAILED, chosen)

    def report(self, name: str, what: str, failures: Sequence[FailedItem]) -> FailedItems:
        """Return the failures for a report; a list that is too long for it is stored completely in nodes.

        Args:
            name: of the list.
            what: see `FailedItems`.
            failures: all of them.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        self._clear(name)
        if len(failures) <= NAMED:
            return FailedItems.of(what, failures)
        self._append(name, [[item.path, item.ledger_id, item.reason[:_LONGEST_REASON]] for item in failures])
        return FailedItems.of(what, failures, listed_in=f"{self._top}/{name}")

    def forget_failed(self) -> None:
        """Clear the list of failures: this attempt tries all of them again."""
        self.require()  # mutant: bookie-cluster/a-late-attempt-forgets-failures
        self._failures = 0
        self._clear(_FAILED)

    def keep_scope(self, scope: LedgerScope) -> None:
        """Forget the ledgers that a start with another choice verified: a cleanup deletes only those of this one."""
        path = f"{self._top}/{SCOPE}"
        node = self._store.get(path)
        if node is not None and node.value != scope.encode():
            self._clear(VERIFIED)  # mutant: bookie-cluster/another-scope-keeps-what-was-compared
        self._registry.put(path, scope.encode())

    def set_cutover_ledger_id(self, highest: int) -> None:
        """Remember the highest id of the source at the moment when its brokers were directed away."""
        self._registry.put(f"{self._top}/{_CUTOVER}", json.dumps({"highest": highest}).encode())

    def deleted(self) -> int:
        """Return how many ledgers earlier attempts at this step may have deleted."""
        node = self._store.get(f"{self._top}/{_DELETED}")
        if node is None:
            return 0
        counts: dict[str, Any] = read_json(node.value)
        # mutant: bookie-cluster/deletions-are-counted-from-zero
        return int(counts["ledgers"]) if counts["step"] == self._step else 0

    def note_deleted(self, ledgers: int) -> None:
        """Remember how many this step will have deleted, before it does so: a repetition must not exceed its limit.

        Raises:
            StoreConflict: a newer attempt has taken over.
        """
        self._registry.put(f"{self._top}/{_DELETED}", json.dumps({"step": self._step, "ledgers": ledgers}).encode())

    def _clear(self, name: str) -> None:
        top = f"{self._top}/{name}"
        for child in self._store.children(top):
            self._registry.remove(f"{top}/{child}")

    def _append(self, name: str, items: Sequence[list[int] | list[Any]]) -> None:
        if not items:
            return
        top = f"{self._top}/{name}"
        last = max((int(child) for child in self._store.children(top)), default=0)
        # Rewritten with its new items until it is full: few nodes are created, since brokers share this store.
        stored = self._store.get(_node(top, last))
        recorded = _decode(stored.value) if stored else []
        for number, chunk in enumerate(pack([*recorded, *items]), last):
            self._registry.put(_node(top, number), chunk)  # mutant: bookie-cluster/progress-of-a-late-attempt


def read_verified(store: StoreReader, progress: str) -> IdNumbers:
    """Return ledgers that were compared in full, with the zxid that the target's znode had.

    Args:
        store: the brokers' metadata store.
        progress: the node that holds the switch's progress.

    Raises:
        StoreError: it cannot be read.
    """
    verified = IdNumbers()
    for ledger, mzxid in read_lists(store, f"{progress}/{VERIFIED}"):
        if mzxid != _TAKEN_BACK:
            verified[int(ledger)] = int(mzxid)
        else:
            verified.pop(int(ledger), None)
    return verified


def read_begun(store: StoreReader, progress: str) -> dict[int, Begun]:
    """Return how far open copies have come, by ledger."""
    return {int(ledger): Begun(*numbers) for ledger, *numbers in read_lists(store, f"{progress}/{BEGUN}")}


def read_failed(store: StoreReader, progress: str) -> dict[int, str]:
    """Return ledgers that could not be copied, or that differ, and why."""
    return {int(ledger): str(why) for ledger, why in read_lists(store, f"{progress}/{_FAILED}")}


def read_cutover_ledger_id(store: StoreReader, progress: str) -> int | None:
    """Return the highest id of the source when brokers were directed away; None before that."""
    (stored,) = store.read([f"{progress}/{_CUTOVER}".encode()])
    return int(read_json(stored.value)["highest"]) if isinstance(stored, Record) else None


def pack(items: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield lists of JSON that hold all items in their order, each as long as a node may be."""
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


def read_lists(store: StoreReader, path: str) -> Iterator[list[Any]]:
    """Yield the items of a list that is spread over the children of a node; none where there is no such node.

    Raises:
        StoreError: it cannot be read.
    """
    # One node at a time: the text of a list takes the least memory.
    for node in store.read(sorted(store.children(path.encode()))):
        if isinstance(node, Record):
            yield from _decode(node.value)


def _decode(value: bytes) -> list[list[Any]]:
    return read_json(value) if value else []


def _node(top: str, number: int) -> str:
    return f"{top}/{number:010d}"


class IdNumbers(MutableMapping[int, int]):
    """Numbers by ledger id, ascending.

    Args:
        items: ids and their numbers, in any order; for an id that occurs twice the later number counts.
    """

    def __init__(self, items: Iterable[tuple[int, int]] = ()) -> None:
        self._ids, self._numbers = array("q"), array("q")
        # None for an id that was removed.
        self._recent: dict[int, int | None] = {}
        for ledger, number in items:
            self[ledger] = number

    def __getitem__(self, ledger: int) -> int:
        mzxid = self._recent[ledger] if ledger in self._recent else self._recorded_outcome(ledger)
        if mzxid is None:
            raise KeyError(ledger)
        return mzxid

    def __setitem__(self, ledger: int, number: int) -> None:
        self._recent[ledger] = number
        if len(self._recent) >= _RECENT:
            self._merge()

    def __delitem__(self, ledger: int) -> None:
        if ledger not in self:
            raise KeyError(ledger)
        if self._recorded_outcome(ledger) is None:
            del self._recent[ledger]
        else:
            self._recent[ledger] = None

    def __iter__(self) -> Iterator[int]:
        self._merge()
        return iter(self._ids)

    def __len__(self) -> int:
        self._merge()
        return len(self._ids)

    def _recorded_outcome(self, ledger: int) -> int | None:
        at = bisect_left(self._ids, ledger)
        return self._numbers[at] if at < len(self._ids) and self._ids[at] == ledger else None

    def _merge(self) -> None:
        if not self._recent:
            return
        ids, numbers, at = array("q"), array("q"), 0
        for ledger in sorted(self._recent):
            end = bisect_left(self._ids, ledger, lo=at)
            ids += self._ids[at:end]
            numbers += self._numbers[at:end]
            at = end + (end < len(self._ids) and self._ids[end] == ledger)
            number = self._recent[ledger]
            if number is not None:
                ids.append(ledger)
                numbers.append(number)
        self._ids, self._numbers = ids + self._ids[at:], numbers + self._numbers[at:]
        self._recent = {}
