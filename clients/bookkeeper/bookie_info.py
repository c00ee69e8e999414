"""What a bookie says of itself in ZooKeeper while it is up."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from clients.bookkeeper.ledger_metadata_pb2 import BookieServiceInfoFormat
from clients.errors import StoreProtocolError

_PROTOCOL = "bookie-rpc"


class Bookie(NamedTuple):
    """A bookie that is up.

    Attributes:
        bookie_id: its name in ensembles.
        host: where it listens.
        port: where it listens, with and without TLS.
        writable: whether it takes new entries.
    """

    bookie_id: str
    host: str
    port: int
    writable: bool


def read_bookie(bookie_id: str, value: bytes, *, writable: bool) -> Bookie:
    """Read a bookie's node.

    Args:
        bookie_id: the node's name.
        value: `BookieServiceInfoFormat`, the same from Pulsar's metadata driver and from BookKeeper's own; bookies
            before BookKeeper 4.11 leave it empty, and are called `host:port`.
        writable: whether the node stands among those that take entries.

    Raises:
        StoreProtocolError: it says nowhere how to reach the bookie.
    """
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError as cause:
        raise StoreProtocolError(
            f"what bookie {bookie_id} says of itself cannot be read: {cause}", server=bookie_id
        ) from cause
    for endpoint in info.endpoints:
        if endpoint.protocol == _PROTOCOL:
            return Bookie(bookie_id, endpoint.host, endpoint.port, writable)
    host, _, port = bookie_id.rpartition(":")
    if not host or not port.isdecimal():
        raise StoreProtocolError(
            f"bookie {bookie_id} names no endpoint for {_PROTOCOL}, and its id is no host:port", server=bookie_id
        )
    return Bookie(bookie_id, host.strip("[]"), int(port), writable)
