"""What brokers' refusals in the binary protocol mean."""

from __future__ import annotations

from enum import IntEnum

from clients.errors import (
    RetryableError,
    StoreConflict,
    StoreContention,
    StoreDenied,
    StoreError,
    StoreNotFound,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
    by_class,
)


class ServerError(IntEnum):
    """Why a broker refuses; those that mean something here."""

    METADATA = 1
    PERSISTENCE = 2
    AUTHENTICATION = 3
    AUTHORIZATION = 4
    CONSUMER_BUSY = 5
    NOT_READY = 6
    QUOTA = 7
    QUOTA_EXCEPTION = 8
    CHECKSUM = 9
    UNSUPPORTED_VERSION = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    TOO_MANY_REQUESTS = 14
    TERMINATED = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC = 17
    INCOMPATIBLE_SCHEMA = 18
    NOT_ALLOWED = 22
    PRODUCER_FENCED = 25


_KINDS: dict[int, type[StoreError]] = {
    ServerError.AUTHENTICATION: StoreDenied,
    ServerError.AUTHORIZATION: StoreDenied,
    # Another attempt still holds it, or an application came first: the next attempt sees which.
    ServerError.CONSUMER_BUSY: StoreContention,
    ServerError.PRODUCER_BUSY: StoreContention,
    ServerError.PRODUCER_FENCED: StoreContention,
    ServerError.CHECKSUM: StoreProtocolError,
    ServerError.UNSUPPORTED_VERSION: StoreUnsupported,
    ServerError.TOPIC_NOT_FOUND: StoreNotFound,
    ServerError.SUBSCRIPTION_NOT_FOUND: StoreNotFound,
    ServerError.TERMINATED: StoreConflict,
    ServerError.INVALID_TOPIC: StoreNotFound,
    ServerError.INCOMPATIBLE_SCHEMA: StoreUnsupported,
    ServerError.NOT_ALLOWED: StoreUnsupported,
}
_CURES: dict[type[StoreError], str] = {
    StoreError: "",
    RetryableError: "",
    StoreDenied: "; give credentials that may produce and consume on this topic",
    StoreUnsupported: "; change what forbids it, or let these subscriptions wait",
}


def refused(what: str, error: int, reason: str, server: str) -> StoreError:
    """The typed error for a broker's refusal; what is not known is worth another attempt."""
    kind = _KINDS.get(error, StoreUnreachable)
    text = " ".join(reason.split())[:300]
    return kind(f"{what}: {server} refuses ({text or error}){by_class(_CURES, kind('x'))}", server=server)
