"""What can go wrong when a migration talks to a store.

StoreError
├── StoreUnreachable     no connection, connection lost, or no answer in time; worth a retry
├── StoreConflict        somebody else changed what was to be changed (version, existence, owner)
├── StoreNotFound        what was asked for is not there
├── StoreDenied          the store refuses the credentials, or a node's ACL does
├── StoreUnsupported     the server lacks something that a migration needs; names the cure
├── RecordNotWritable    a record cannot be represented in the target; names path and cause
├── LedgerUnreadable     no replica has a valid copy of an entry; names ledger, entry and what each bookie said
├── BookieNotWritable    a bookie does not take entries, read-only or full for example; worth a retry with others
└── StoreProtocolError   an answer that the protocol does not allow
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of the stores' clients; the message says cause and, where known, cure."""


class StoreUnreachable(StoreError):
    """No connection, connection lost, or no answer in time."""


class StoreConflict(StoreError):
    """The state was not the expected one: version, existence or owner."""


class StoreNotFound(StoreError):
    """What was asked for is not there."""


class StoreDenied(StoreError):
    """The store refuses the credentials, or the ACL of a node does."""


class StoreUnsupported(StoreError):
    """The server lacks something that a migration needs."""


class RecordNotWritable(StoreError):
    """A record cannot be represented in the target store."""


class LedgerUnreadable(StoreError):
    """No replica has a valid copy of a ledger's entry."""


class BookieNotWritable(StoreError):
    """A bookie does not take entries: it is read-only, full or overloaded."""


class StoreProtocolError(StoreError):
    """An answer that the protocol does not allow."""
