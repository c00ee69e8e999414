"""Ledgers, references and plans for tests of what a bookie cluster migration decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clients.bookkeeper.ledger_table import LedgerFacts, LedgerTable
from clients.bookkeeper.ledgers import LedgerDirectoryWriter, LedgerRecord
from clients.bookkeeper.metadata import COPY_TOKEN, DigestType, LedgerMetadata, LedgerState, Segment
from clients.pulsar.references import LedgerReference, ReferenceKind
from models.bookie_cluster.input import BookieClusterInput, Routing


def input(routing: Routing = Routing.RESTART, **more: object) -> BookieClusterInput:
    """Return a switch from `a` to `b`."""
    return BookieClusterInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": "test",
            "metadata_url": "zk:127.0.0.1:2181",
            "source": {"name": "a", "metadataServiceUri": "zk+hierarchical://127.0.0.1:2181/ledgers"},
            "target": {"name": "b", "metadataServiceUri": "zk+hierarchical://127.0.0.1:2181/ledgersB"},
            "routing": routing,
            **more,
        }
    )


def ledger(
    ledger_id: int,
    *,
    state: LedgerState = LedgerState.CLOSED,
    length: int = 100,
    component: str = "managed-ledger",
    mzxid: int = 5,
    czxid: int | None = None,
    is_copy: bool = False,
) -> LedgerFacts:
    """Return a ledger of ten entries, unless it is open; without `czxid` it is as it was created."""
    closed = state is LedgerState.CLOSED
    metadata = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        state=state,
        length=length if closed else 0,
        last_entry=9 if closed else -1,
        segments=(Segment(0, ("one:3181", "two:3181")),),
        digest=DigestType.CRC32C,
        custom=(("application", b"pulsar"), ("component", component.encode())),
        token=COPY_TOKEN if is_copy else None,
    )
    return LedgerRecord(ledger_id, metadata, 1, mzxid, mzxid if czxid is None else czxid).facts


def by_id(records: Iterable[LedgerFacts]) -> LedgerTable:
    """Return ledgers as a scan of a cluster lists them."""
    return LedgerTable(records)


def reference(
    ledger_id: int, kind: ReferenceKind = ReferenceKind.SCHEMA, *, cluster: str | None = None, offloaded: bool = False
) -> LedgerReference:
    """Return a position that names a ledger."""
    return LedgerReference(ledger_id, kind, f"/schemas/public/default/{ledger_id}", cluster, offloaded=offloaded)


def move(directory: LedgerDirectoryWriter, ids: Sequence[int]) -> None:
    """Write the metadata of copies again without their token, as autorecovery does when it moves them."""
    records = [record for record in directory.read(ids) if record]
    assert len(records) == len(ids)
    directory.update([(record.ledger_id, replace(record.metadata, token=0), record.version) for record in records])
