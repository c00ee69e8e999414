"""Everything in the brokers' metadata that refers to a ledger, and the bookie cluster that it is said to be on."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from clients.errors import StoreDenied, StoreError, StoreUnsupported
from clients.pulsar.attribution import attribution
from clients.pulsar.formats_pb2 import SchemaLocator
from clients.pulsar.managed_ledgers import (
    compacted_ledger,
    decode_cursor_entry,
    decode_cursor_info,
    decode_ledger_info,
    delayed_ledgers,
    parse,
    unpack,
)
from clients.store import Partition, Record, StoreReader, Unreadable

MANAGED_LEDGERS, SCHEMAS = "/managed-ledgers", "/schemas"
COMPACTION_CURSOR = "/__compaction"
"""How the path of a cursor ends whose ledger may name a compacted ledger."""

# Transaction logs and pending acknowledgements are ordinary managed ledgers, and so among these.
_SUBTREES = (MANAGED_LEDGERS.encode(), SCHEMAS.encode())
_SCHEMAS = SCHEMAS.encode() + b"/"
#: How deep topics lie at least: `/managed-ledgers/TENANT/NAMESPACE/DOMAIN/TOPIC` and `/schemas/TENANT/NAMESPACE/TOPIC`.
_DEPTHS = (5, 4)
#: First byte of a cursor's node: its first field is a number that it must have. A managed ledger has no such field.
_CURSOR = 0x08


class ReferenceKind(StrEnum):
    """Purpose of a reference to a ledger."""

    DATA = "data"
    CURSOR = "cursor"
    SCHEMA = "schema"
    COMPACTED = "compacted"
    DELAYED_INDEX = "delayed-index"


class LedgerReference(NamedTuple):
    """One mention of a ledger.

    Attributes:
        ledger_id: which.
        kind: what for.
        path: the znode that names it, relative to the root of the brokers' store.
        cluster: the bookie cluster that it is attributed to, None if it is to none.
        last: whether it is the last of its topic, which the broker appends to.
        offloaded: whether its entries are in tiered storage, and deleted from the bookies.
    """

    ledger_id: int
    kind: ReferenceKind
    path: str
    cluster: str | None = None
    last: bool = False
    offloaded: bool = False


def references(reader: StoreReader) -> Iterator[list[LedgerReference]]:
    """Yield every mention of a ledger beneath `/managed-ledgers` and `/schemas`, in batches and in no order.

    Not in it are ledgers of compacted topics whose cursor `__compaction` has a ledger of its own: that ledger's last
    entry names them (`named_in_entry`).

    Args:
        reader: of the brokers' ZooKeeper.

    Raises:
        StoreUnsupported: the brokers' store is not ZooKeeper.
        StoreDenied: a node's ACL refuses it.
        StoreProtocolError: a node is not what Pulsar writes; the message names it.
        StoreError: the store cannot be read.
    """
    if reader.url.scheme != "zk":
        raise StoreUnsupported(f"references to ledgers are read from ZooKeeper, and {reader.url} is none")
    for batch in reader.scan(Partition(singles=(), subtrees=_SUBTREES, shard=-1, start=b"", end=b"")):
        references = [reference for record in batch for reference in references_in(record)]
        if references:
            yield references


def named_in_entry(cursor: LedgerReference, payload: bytes) -> list[LedgerReference]:
    """Return the compacted ledger that an entry of a cursor's ledger names; of its entries the last one counts.

    Args:
        cursor: the reference to the cursor's ledger.
        payload: the entry without header and digest.

    Raises:
        StoreProtocolError: it is not an entry of a cursor's ledger; the message names the cursor.
    """
    try:
        compacted = compacted_ledger(decode_cursor_entry(payload))
    except StoreError as cause:
        raise cause.saying(f"the ledger of {cursor.path}: {cause}", ledger_id=cursor.ledger_id) from cause
    return [] if compacted is None else [LedgerReference(compacted, ReferenceKind.COMPACTED, cursor.path)]


def references_in(record: Record | Unreadable) -> list[LedgerReference]:
    """Return the mentions in one node, each once; none in one that is a mere parent.

    A node above all topics whose value says nothing to Pulsar is a parent too: other tools leave one there (an address
    from Curator, `null` from scripts that restore a store).

    Raises:
        StoreDenied: its ACL refused it.
        StoreProtocolError: it is not what Pulsar writes.
    """
    if isinstance(record, Unreadable):
        raise StoreDenied(record.reason, path=record.path)
    path = record.path.decode(errors="replace")
    if not record.value:
        return []
    try:
        if record.path.startswith(_SCHEMAS):
            return _in_schema(path, record.value)
        if unpack(record.value)[1][:1] == bytes([_CURSOR]):
            return _in_cursor(path, record.value)
        return _in_managed_ledger(path, record.value)
    except StoreError as cause:
        # mutant: bookie-cluster/a-damaged-topic-counts-as-a-parent
        if path.count("/") < _DEPTHS[record.path.startswith(_SCHEMAS)]:
            return []
        raise cause.saying(f"{path}: {cause}", path=record.path) from cause


def _in_managed_ledger(path: str, value: bytes) -> list[LedgerReference]:
    ledgers = decode_ledger_info(value).ledgerInfo
    return [
        LedgerReference(
            ledger.ledgerId,
            ReferenceKind.DATA,
            path,
            attribution(ledger.properties),
            last=number == len(ledgers),
            offloaded=ledger.offloadContext.bookkeeperDeleted,
        )
        for number, ledger in enumerate(ledgers, 1)
    ]


def _in_cursor(path: str, value: bytes) -> list[LedgerReference]:
    cursor = decode_cursor_info(value)
    references = [LedgerReference(ledger, ReferenceKind.DELAYED_INDEX, path) for ledger in delayed_ledgers(cursor)]
    if cursor.cursorsLedgerId >= 0:
        cluster = attribution(cursor.cursorProperties)
        return [LedgerReference(cursor.cursorsLedgerId, ReferenceKind.CURSOR, path, cluster), *references]
    # Only here: with a ledger of its own, the properties in the cursor's node are outdated (see `compacted_ledger`).
    compacted = compacted_ledger(cursor)
    if compacted is not None:
        references.append(LedgerReference(compacted, ReferenceKind.COMPACTED, path))
    return references


def _in_schema(path: str, value: bytes) -> list[LedgerReference]:
    locator = parse(SchemaLocator, value)
    # The newest version is in `info` and again in the index, each with an attribution of its own.
    positions = [entry.position for entry in (locator.info, *locator.index)]
    references = [
        LedgerReference(position.ledgerId, ReferenceKind.SCHEMA, path, attribution(position.properties))
        for position in positions
    ]
    return list(dict.fromkeys(references))
