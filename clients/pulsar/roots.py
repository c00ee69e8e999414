"""The top-level records of a Pulsar cluster's metadata; a root that holds others is shared with other clusters."""

from __future__ import annotations

# As brokers, bookies, functions, transactions and BookKeeper's stream storage of Pulsar 5.0.1, 4.2.4 and 4.0.8 create
# them. Only 5.0 has `topics`, `topic-creation-locks` and `txn`.
_ROOTS = frozenset(
    b"admin bookies counters ledgers loadbalance managed-ledgers namespace pulsar resource-quota schemas stream "
    b"topic-creation-locks topics txn".split()
)


# Names below these are chosen by users, and may be any.
_NAMED_BY_USERS = frozenset(
    b"admin counters loadbalance managed-ledgers namespace resource-quota schemas topic-creation-locks topics "
    b"txn".split()
)
# Where BookKeeper itself has records of these names: its layouts, its bookies, the servers of its stream storage.
_BOOKKEEPERS = (
    b"/ledgers",
    b"/ledgers/available",
    b"/ledgers/available/readonly",
    b"/ledgers/cookies",
    b"/ledgers/underreplication",
    b"/stream/servers",
)


def is_pulsars(path: bytes) -> bool:
    """Return whether a path lies beneath one of the top-level records that Pulsar has."""
    root, *names = path.split(b"/", 2)
    return not root and bool(names) and names[0] in _ROOTS


def is_nested_store(path: bytes) -> bool:
    """Return whether a record shows that another cluster has its root within the records of Pulsar.

    For example bookies with `metadata-store:zk:host:2181/ledgers`, which is a chroot, are below `/ledgers/ledgers`; and
    a cluster with the chroot `/pulsar` is within that of one without a chroot.
    """
    parent, _, name = path.rpartition(b"/")
    if name not in (b"available", b"LAYOUT", b"migration-coordinator") or not is_pulsars(path):
        return False
    if path.split(b"/", 2)[1] in _NAMED_BY_USERS:
        return False
    if name == b"migration-coordinator":
        return parent.endswith(b"/pulsar") and parent != b"/pulsar"
    return parent not in _BOOKKEEPERS  # mutant: metadata-store/nested-stores-are-copied
