"""Errors of requests to stores.

StoreError
├── RetryableError           another attempt may succeed
│   ├── StoreUnreachable     no connection, connection lost, or no answer in time
│   │   └── NoServer         no address can be such a store: waiting does not help
│   ├── StoreContention      another attempt of the same work writes at the same time
│   ├── BookieNotWritable    a bookie does not take entries, read-only or full for example
│   ├── NoCredentials        the settings of this worker lack the credentials that an input names; another may have them
│   ├── LedgerIdRefused      a bookie deleted a ledger of this id, and takes no other one before its restart
│   └── StoreProtocolError   an answer that the protocol does not allow
└── FinalError               another attempt fails the same way until an operator acts
    ├── StoreConflict        another client changed the record (version, existence, owner)
    │   ├── VersionConflict  a record is not at the expected version; worth reading it again
    │   ├── ClaimHeld        another migration holds the claim; names it and the cure
    │   └── Superseded       a newer attempt or run of the same migration has taken over; this one must not write
    ├── StoreNotFound        the requested record, ledger or entry does not exist
    ├── StoreDenied          the store refuses the credentials, or a node's ACL does
    │   └── DestinationRefused the settings do not allow to send the credentials there; nothing was sent
    ├── StoreUnsupported     the server lacks something that a migration needs; names the cure
    ├── RecordNotWritable    a record cannot be represented in the target; names path and cause
    └── LedgerUnreadable     no replica has a valid copy of an entry; names ledger, entry and what each bookie said

Programs decide by type and fields; the message is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from models.redaction import redacted
from models.text import shown

ValueT = TypeVar("ValueT")

LONGEST_MESSAGE = 4_000
"""Characters of a message, which names each bookie of a ledger for example; Temporal keeps failures in histories."""


class StoreError(Exception):
    """Base of all errors of the stores' clients; the message has the cause and, where known, the cure.

    The message is one printable line without secrets, because it may repeat what a server or a client of it chose.

    It can be pickled, and keeps its fields.

    Attributes:
        server: server (`host:port`, bookie id or address of the store) with the error; empty if there is none.
        path: node or record with the error; empty if there is none, or there are many.
        ledger_id: ledger with the error; None if there is none.
        entry_id: entry with the error; None if there is none.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        path: bytes = b"",
        ledger_id: int | None = None,
        entry_id: int | None = None,
    ) -> None:
        super().__init__(shown(redacted(message), LONGEST_MESSAGE))
        self.server = server
        self.path = path
        self.ledger_id = ledger_id
        self.entry_id = entry_id

    def saying(self, message: str, *, server: str = "", path: bytes = b"", ledger_id: int | None = None) -> Self:
        """Return the same error with another message, and with more fields."""
        return type(self)(
            message,
            server=server or self.server,
            path=path or self.path,
            ledger_id=self.ledger_id if ledger_id is None else ledger_id,
            entry_id=self.entry_id,
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set, as plain JSON."""
        named = {
            "server": self.server,
            "path": self.path.decode(errors="backslashreplace"),
            "ledger_id": self.ledger_id,
            "entry_id": self.entry_id,
        }
        return {name: value for name, value in named.items() if value not in ("", None)}


class RetryableError(StoreError):
    """Another attempt may succeed."""


class FinalError(StoreError):
    """Another attempt fails the same way until an operator acts."""


class StoreUnreachable(RetryableError):
    """No connection, connection lost, or no answer in time."""


class NoServer(StoreUnreachable):
    """No address can be such a store: no such host, nothing on the port, or another program."""


class StoreContention(RetryableError):
    """Another attempt of the same work writes at the same time."""


class BookieNotWritable(RetryableError):
    """A bookie does not take entries: it is read-only, full or overloaded."""


class LedgerIdRefused(RetryableError):
    """A bookie deleted a ledger of this id some days ago at most, and takes none of it before its restart."""


class NoCredentials(RetryableError):
    """The settings of this worker lack the credentials that an input names; another one's, or later ones, may not."""


class StoreProtocolError(RetryableError):
    """An answer that the protocol does not allow."""


class StoreConflict(FinalError):
    """The state was not the expected one: version, existence or owner."""


class VersionConflict(StoreConflict):
    """A record is not at the expected version, exists though it must not, or does not exist though it must."""


class ClaimHeld(StoreConflict):
    """Another migration holds the claim; the message names it, and the cure.

    Attributes:
        workflow_id: the migration that holds it.
        run_id: its run.
    """

    def __init__(self, message: str, *, workflow_id: str = "", run_id: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.workflow_id = workflow_id
        self.run_id = run_id

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set, as plain JSON."""
        return {**super().fields, "workflow_id": self.workflow_id, "run_id": self.run_id}


class Superseded(StoreConflict):
    """A newer attempt or run of the same migration has taken over, or has ended; this one must not write."""


class StoreNotFound(FinalError):
    """The requested record, ledger or entry does not exist."""


class StoreDenied(FinalError):
    """The store refuses the credentials, or the ACL of a node does."""


class DestinationRefused(StoreDenied):
    """The settings do not allow to send the credentials to this host, or over this link; nothing was sent."""


class StoreUnsupported(FinalError):
    """The server lacks something that a migration needs."""


class RecordNotWritable(FinalError):
    """A record cannot be represented in the target store."""


class LedgerUnreadable(FinalError):
    """No replica has a valid copy of a ledger's entry."""


def by_class(values: Mapping[type[StoreError], ValueT], error: StoreError) -> ValueT:
    """Return the value of an error's class, or of the nearest of its base classes.

    Raises:
        KeyError: none of them has one; a table that names `StoreError` never raises.
    """
    for kind in type(error).__mro__:
        if kind in values:
            return values[kind]
    raise KeyError(type(error))
