"""Progress of the copy of a topic, in blue's metadata store."""

from __future__ import annotations

from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict

from clients.cas.store import CasReader
from clients.pulsar.names import TopicName
from clients.pulsar.wire.position import EntryPosition
from models.lifecycle.claim import CLAIM
from spark.blue_green.positions import PositionMap, Run


class CopyRecord(BaseModel):
    """Progress of the copy of a topic: a record in blue's metadata store that changes by compare-and-set.

    Attributes:
        start: position on blue after which the copy starts.
        runs: copied and confirmed entries: ledger and entry on blue, ledger and entry on green, and their number.
        messages: messages of these entries; `size`, their bytes.
        compared: how many of the first entries were read on both sides and are equal.
        copied_subscriptions: subscriptions that continue on green where they were on blue.
        copied_in: run of the migration that placed their cursors on green.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    start: tuple[int, int]
    runs: tuple[tuple[int, int, int, int, int], ...] = ()
    messages: int = 0
    size: int = 0
    compared: int = 0
    copied_subscriptions: tuple[str, ...] = ()
    copied_in: str = ""

    @property
    def positions(self) -> PositionMap:
        """Positions of the copied entries on both sides."""
        return PositionMap(Run(EntryPosition(*run[:2]), EntryPosition(*run[2:4]), run[4]) for run in self.runs)

    def with_positions(self, positions: PositionMap, *, messages: int, size: int) -> CopyRecord:
        """Return the record of a longer copy."""
        runs = tuple((*run.blue, *run.green, run.length) for run in positions.runs)
        return self.model_copy(update={"runs": runs, "messages": messages, "size": size})

    def encode(self) -> bytes:
        """Return the record's value."""
        return self.model_dump_json().encode()


def copy_record(topic: str) -> str:
    """Return the path of a topic's record, next to the claim; the topic by its full name."""
    return f"{CLAIM}-copies/{quote(topic.replace('://', '/'), safe='/')}"


def recorded_copies(store: CasReader, namespace: str) -> list[TopicName]:
    """Return the topics of a namespace (`tenant/namespace`) that have a record."""
    names = store.children(copy_record(f"persistent://{namespace}"))
    return [TopicName.parse(f"persistent://{namespace}/{unquote(name)}") for name in names]
