"""Nodes that number sequential children, and what an Oxia record must carry so that the numbers continue.

ZooKeeper numbers a sequential child by how many children its parent ever had; Pulsar on Oxia numbers it by the parent's
modification count (PIP-454). A copy that forgets this hands out ledger ids a second time.
"""

from __future__ import annotations

from clients.store import Record

_COUNTERS = frozenset((b"/ledgers/idgen", b"/ledgers/idgen-long"))


def keeps_count(path: bytes, value: bytes) -> bool:
    """Return whether the number of children ever created beneath this node must survive a copy.

    True for a node without a value, as every parent of sequential children is, and for BookKeeper's ledger id
    generators and Pulsar's counters.
    """
    if not value or path in _COUNTERS or path.startswith(b"/ledgers/idgen-long/"):
        return True
    return path.startswith(b"/counters/") and path.count(b"/") == 2


def target_count(record: Record) -> int:
    """Return the modification count that the Oxia copy of a ZooKeeper record must carry."""
    # Pulsar on Oxia gives the next child one more than this, so one number is skipped. To err on the other side
    # would give a ledger id twice.
    # mutant: metadata-store/ledger-ids-are-reused
    if record.count > record.version and keeps_count(record.path, record.value):
        return record.count
    return record.version
