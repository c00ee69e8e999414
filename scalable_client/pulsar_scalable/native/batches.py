"""Which messages of received batches are acknowledged: brokers know whole entries alone."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_scalable.native.message import MessageId

_WORD = 64


class Batches:
    """Batches of which not all messages are acknowledged; for one thread at a time."""

    def __init__(self) -> None:
        self._left: dict[tuple[int, int], set[int]] = {}

    def begin(self, entry: MessageId, size: int, ack_set: Sequence[int]) -> set[int]:
        """A batch arrived; the indices that the application has not acknowledged.

        Args:
            entry: where it is stored.
            size: messages of it.
            ack_set: what the broker knows: bits of messages that are not acknowledged, 64 in each; empty for all.
        """
        known = self._left.get((entry.ledger, entry.entry))
        left = set(range(size)) if known is None else known
        if ack_set:
            left &= {index for index in range(size) if _bit(ack_set, index)}
        self._left[entry.ledger, entry.entry] = left
        return left.copy()

    def acknowledge(self, found: MessageId) -> bool:
        """Note one message; whether its entry is complete."""
        if found.index < 0:
            return True
        left = self._left.setdefault((found.ledger, found.entry), set(range(found.size)))
        left.discard(found.index)
        if left:
            return False
        del self._left[found.ledger, found.entry]
        return True

    def acknowledge_up_to(self, found: MessageId) -> bool:
        """Note all up to a message; whether its own entry is complete."""
        place = found.ledger, found.entry
        self._left = {one: left for one, left in self._left.items() if one >= place}
        if found.index < 0:
            return True
        left = self._left.setdefault(place, set(range(found.size)))
        left -= set(range(found.index + 1))
        if left:
            return False
        del self._left[place]
        return True


def _bit(words: Sequence[int], index: int) -> bool:
    word = index // _WORD
    return word < len(words) and bool(words[word] >> index % _WORD & 1)
