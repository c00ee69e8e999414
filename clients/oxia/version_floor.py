"""Keep version ids that the server chooses apart from those of copied records."""

from __future__ import annotations

from itertools import count

from clients.errors import StoreProtocolError
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.connection import OxiaConnection
from clients.store import COORDINATOR
from models.store_url import StoreUrl

# Puts in one request: short enough for any timeout (100,000 take a third of a second).
_STEP = 50_000


def raise_version_floor(url: StoreUrl, floor: int, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> int:
    """Make every shard choose version ids above `floor` from now on; returns how many ids that took.

    A shard numbers ordinary writes from its own counter, which overrides do not move, and a fresh one begins at 0. A
    copied record of version 5 could thus get version 5 again when it changes, and a broker that still holds the old one
    would pass its compare-and-set. Each id costs a put of an empty scratch record, about 300,000 of them a second.

    Raises:
        StoreError: see clients.oxia.connection; it can be repeated.
    """
    connection = OxiaConnection(url, access=access, timeout=timeout)
    try:
        return sum(len(_raise_shard(connection, shard.id, floor)) for shard in connection.shards)
    finally:
        connection.close()


def mark_versions(url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> dict[int, int]:
    """Return a version id of each shard, above those of all writes to it until now, and below those of later ones.

    Overrides are not considered: a copied record may have a version above that of its shard. Shards count apart from
    each other, so after months of use one may be millions ahead of another.

    Raises:
        StoreError: see clients.oxia.connection; it can be repeated.
    """
    connection = OxiaConnection(url, access=access, timeout=timeout)
    try:
        return {shard.id: _raise_shard(connection, shard.id, 0)[-1] for shard in connection.shards}
    finally:
        connection.close()


def _raise_shard(connection: OxiaConnection, shard: int, floor: int) -> range:
    """Use up version ids of a shard, at least one, until they are above a floor; returns those that it took."""
    keys = (COORDINATOR + b"/version-floor-%d" % number for number in count())
    # Each shard has a counter of its own, and takes only keys that hash to it.
    key = next(key for key in keys if connection.shard_of(key) == shard)
    first = last = _put(connection, shard, key, 1)
    while last < floor:
        last = _put(connection, shard, key, min(floor - last, _STEP))
    delete = pb.WriteRequest(shard=shard, deletes=[pb.DeleteRequest(key=key)])
    connection.unary(shard, "Write", delete, pb.WriteResponse)
    return range(first, last + 1)


def _put(connection: OxiaConnection, shard: int, key: bytes, times: int) -> int:
    """Write the scratch record several times; returns the last version id that it got."""
    request = pb.WriteRequest(shard=shard, puts=[pb.PutRequest(key=key)] * times)
    puts = connection.unary(shard, "Write", request, pb.WriteResponse).puts
    if len(puts) != times or any(put.status != pb.OK for put in puts):
        raise StoreProtocolError(f"{connection.url} did not take {times} scratch writes on shard {shard}")
    return puts[-1].version.version_id
