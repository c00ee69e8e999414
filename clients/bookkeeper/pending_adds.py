"""Entries that were sent to a bookie and wait for its answer."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from clients.bookkeeper.digests import IDS


class RefusedAdd(NamedTuple):
    """An entry that a bookie did not take.

    Attributes:
        ledger_id: its ledger.
        entry_id: its id.
        code: a code of `wire_v2`.
        body: the entry; empty if it is not known any more.
    """

    ledger_id: int
    entry_id: int
    code: int
    body: bytes


@dataclasses.dataclass(slots=True)
class _Batch:
    count: int
    size: int
    bodies: Sequence[bytes]


class PendingAdds:
    """Queue in the order of sending; answers follow that order so closely that counting them is enough to drop entries.

    Attributes:
        size: approximate bytes without an answer.
    """

    def __init__(self) -> None:
        self.size = 0
        self._batches: deque[_Batch] = deque()

    def append(self, bodies: Sequence[bytes], size: int) -> None:
        """Append entries that are sent together."""
        self._batches.append(_Batch(len(bodies), size, bodies))
        self.size += size

    def accept(self, count: int) -> None:
        """Remove the first `count` entries: the bookie has taken them."""
        while self._batches and (count or not self._batches[0].count):
            head = self._batches[0]
            taken = min(count, head.count)
            head.count -= taken
            count -= taken
            if not head.count:
                self._batches.popleft()
                self.size -= head.size

    def take(self, ledger_id: int, entry_id: int) -> bytes:
        """Return an entry that was refused; empty if it is not known any more."""
        ids = IDS.pack(ledger_id, entry_id)
        for batch in self._batches:
            for body in batch.bodies:
                if body.startswith(ids):
                    batch.count -= 1
                    return body
        return b""
