"""The top-level records of a Pulsar cluster's metadata; a root that holds others is shared with somebody."""

from __future__ import annotations

# As brokers, bookies, functions, transactions and BookKeeper's stream storage of Pulsar 5.0.1, 4.2.4 and 4.0.8 create
# them. Only 5.0 has `topics`, `topic-creation-locks` and `txn`.
_ROOTS = frozenset(
    b"admin bookies counters ledgers loadbalance managed-ledgers namespace pulsar resource-quota schemas stream "
    b"topic-creation-locks topics txn".split()
)


def is_pulsars(path: bytes) -> bool:
    """Whether a path lies beneath one of the top-level records that Pulsar has."""
    root, *names = path.split(b"/", 2)
    return not root and bool(names) and names[0] in _ROOTS
