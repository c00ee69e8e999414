"""Transactions on segments of scalable topics, as brokers keep them in their metadata store (PIP-473).

Before a transaction writes to a segment, a broker records that. Consumers then get no later message until the end of
the transaction is applied to the segment: the broker stores up to where they may read, and deletes the record (5.0.1).
"""

from __future__ import annotations

from pydantic import TypeAdapter

from clients.cas.store import CasReader
from clients.pulsar.admin.answers import Answer
from clients.pulsar.names import SegmentName
from clients.pulsar.wire.position import EntryPosition

_OPERATIONS = "/txn/op"
_COUNTER = "__seq_counter__"
"""End of the names of nodes by which brokers number the others in ZooKeeper."""


class _Operation(Answer):
    kind: str = ""
    segment: str = ""


class _Watermark(Answer):
    ledger_id: int
    entry_id: int


_OPERATION = TypeAdapter(_Operation)
_WATERMARK = TypeAdapter(_Watermark)


def has_open_transactions(store: CasReader, segment: SegmentName) -> bool:
    """Return whether transactions have written to a segment whose end is not applied to it yet."""
    paths = (f"{_OPERATIONS}/{name}" for name in store.children(_OPERATIONS) if not name.endswith(_COUNTER))
    nodes = (store.get(path) for path in paths)
    operations = (_OPERATION.validate_json(node.value) for node in nodes if node is not None)
    return any(operation.kind == "WRITE" and operation.segment == str(segment) for operation in operations)


def readable_position(store: CasReader, segment: SegmentName) -> EntryPosition | None:
    """Return the last entry that consumers may read, as brokers with transactions store it; None without one."""
    node = store.get(segment.watermark_path)
    if node is None:
        return None
    watermark = _WATERMARK.validate_json(node.value)
    # Before the first entry of a ledger that number is -1.
    return EntryPosition(watermark.ledger_id, watermark.entry_id) if watermark.entry_id >= 0 else None
