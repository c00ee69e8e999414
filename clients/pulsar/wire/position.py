"""The position of an entry in a topic."""

from __future__ import annotations

from typing import NamedTuple, Self


class EntryPosition(NamedTuple):
    """The position of an entry in a topic; positions compare in the order of the topic.

    Attributes:
        ledger_id: its ledger.
        entry_id: its number in it.
    """

    ledger_id: int
    entry_id: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `ledger:entry`.

        Raises:
            ValueError: the text is not a position.
        """
        ledger_id, separator, entry_id = text.partition(":")
        if not separator:
            raise ValueError(f"invalid position {text!r}; expected ledger:entry")
        return cls(int(ledger_id), int(entry_id))

    def moved(self, by: int) -> Self:
        """Return the position so many entries later in the same ledger."""
        return self._replace(entry_id=self.entry_id + by)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = EntryPosition(-1, -1)
"""Before the first entry that there is."""
