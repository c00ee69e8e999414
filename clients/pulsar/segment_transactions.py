"""Transactions on segments of scalable topics, as brokers keep them in their metadata store (PIP-473).

Before a transaction writes to a segment, a broker records that. Consumers then get no later message until the end of
the transaction is applied to the segment: the broker stores up to where they may read, and deletes the record (5.0.1).
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from clients.cas.store import CasReader
from clients.errors import StoreConflict
from clients.pulsar.admin.answers import Answer
from clients.pulsar.names import SegmentName
from clients.pulsar.wire.position import EntryPosition
from models.base import faults

_OPERATIONS = "/txn/op"
_COUNTER = "__seq_counter__"
"""End of the names of nodes by which brokers number the others in ZooKeeper."""


class _Operation(Answer):
    kind: str = ""
    segment: str = ""


class _Watermark(Answer):
    ledger_id: int
    entry_id: int


_AnswerT = TypeVar("_AnswerT", bound=Answer)


def has_open_transactions(store: CasReader, segment: SegmentName) -> bool:
    """Return whether transactions have written to a segment whose end is not applied to it yet.

    Raises:
        StoreConflict: the record of an operation cannot be read.
    """
    paths = (f"{_OPERATIONS}/{name}" for name in store.children(_OPERATIONS) if not name.endswith(_COUNTER))
    operations = (_read(store, path, _Operation) for path in paths)
    return any(
        operation is not None and operation.kind == "WRITE" and operation.segment == str(segment)
        for operation in operations
    )


def readable_position(store: CasReader, segment: SegmentName) -> EntryPosition | None:
    """Return the last entry that consumers may read, as brokers with transactions store it; None without one.

    Raises:
        StoreConflict: its record cannot be read.
    """
    watermark = _read(store, segment.watermark_path, _Watermark)
    # Before the first entry of a ledger that number is -1.
    if watermark is None or watermark.entry_id < 0:
        return None
    return EntryPosition(watermark.ledger_id, watermark.entry_id)


def _read(store: CasReader, path: str, record: type[_AnswerT]) -> _AnswerT | None:
    node = store.get(path)
    try:
        return None if node is None else record.model_validate_json(node.value)
    except ValidationError as error:
        raise StoreConflict(
            f"{path} in {store.url} holds no record of transactions that this version can read ({faults(error)}); copy "
            "with a version that supports these brokers"
        ) from error
