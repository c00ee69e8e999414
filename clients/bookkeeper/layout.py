"""Paths at which BookKeeper keeps a ledger's metadata beneath the ledgers root, in its hierarchical layouts.

An id below 2^31 has ten digits and lies at `/dd/dddd/Ldddd`; a larger one has nineteen, at `/ddd/dddd/dddd/dddd/Ldddd`.
BookKeeper's HierarchicalLedgerManager, which Pulsar uses, reads and writes both; its LongHierarchicalLedgerManager has
only the second one, for every id.

Source: HierarchicalLedgerManager, LegacyHierarchicalLedgerManager and LongHierarchicalLedgerManager of BookKeeper 4.18.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: First id that the short form has no place for.
LONG_IDS = 1 << 31
#: First id that no form has a place for.
ID_LIMIT = 1 << 63

#: Nodes beneath the ledgers root that are not ledgers.
LAYOUT, INSTANCE_ID, AVAILABLE, READ_ONLY = "/LAYOUT", "/INSTANCEID", "/available", "/available/readonly"
#: Ledgers that lack replicas, in nodes of their own: `…/urL0000000017`.
UNDERREPLICATED = "/underreplication/ledgers"
COOKIES, ID_GENERATOR, LONG_ID_GENERATOR = "/cookies", "/idgen", "/idgen-long"

_LEDGER = re.compile(r"/(?:(\d{2})/(\d{4})|(\d{3})/(\d{4})/(\d{4})/(\d{4}))/L(\d{4})", re.ASCII)
_SUBTREE = re.compile(r"/\d{2,3}", re.ASCII)


def ledger_path(ledger_id: int, *, always_long: bool = False) -> str:
    """Return path of a ledger's metadata, relative to the ledgers root.

    Args:
        ledger_id: 0 or more, less than 2^63.
        always_long: the root has the layout of LongHierarchicalLedgerManager.
    """
    if not 0 <= ledger_id < ID_LIMIT:
        raise ValueError(f"invalid ledger id {ledger_id}; ids lie between 0 and 2^63 - 1")
    if ledger_id < LONG_IDS and not always_long:
        digits = f"{ledger_id:010d}"
        return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id(path: str) -> int | None:
    """Return the ledger whose metadata lies at a path relative to the ledgers root; None if it is none's."""
    match = _LEDGER.fullmatch(path)
    return int("".join(match.groups(""))) if match else None


def ledger_subtrees(children: Iterable[str]) -> list[str]:
    """Return the root's children (full paths) beneath which ledgers lie, without BookKeeper's own nodes."""
    return [path for path in children if _SUBTREE.fullmatch(path)]
