"""The place of an entry in a topic."""

from __future__ import annotations

from typing import NamedTuple, Self


class Place(NamedTuple):
    """The place of an entry in a topic; places compare in the order of the topic.

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
            ValueError: it is none.
        """
        ledger_id, separator, entry_id = text.partition(":")
        if not separator:
            raise ValueError(f"{text!r} is no place in a topic")
        return cls(int(ledger_id), int(entry_id))

    def moved(self, by: int) -> Self:
        """The place so many entries later in the same ledger."""
        return self._replace(entry_id=self.entry_id + by)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Place(-1, -1)
"""Before the first entry that there is."""
