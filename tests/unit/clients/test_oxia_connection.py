"""How keys find their shards, and shards their servers."""

from __future__ import annotations

import pytest

from clients.errors import StoreProtocolError, StoreUnsupported
from clients.oxia import oxia_pb2 as pb
from clients.oxia.connection import Shard, key_hash, shards_of
from models.store_url import parse_store_url

URL = parse_store_url("oxia://10.0.0.1:6648/pulsar")
HALF, LAST = 0x80000000, 0xFFFFFFFF


def layout(*shards: tuple[int, int, str], router: pb.ShardKeyRouter = pb.XXHASH3) -> pb.ShardAssignments:
    """Return a namespace of these shards: first hash, last hash, leader."""
    assignments = [
        pb.ShardAssignment(
            shard=number,
            leader=leader,
            int32_hash_range=pb.Int32HashRange(min_hash_inclusive=low, max_hash_inclusive=high),
        )
        for number, (low, high, leader) in enumerate(shards)
    ]
    namespace = pb.NamespaceShardsAssignment(assignments=assignments, shard_key_router=router)
    return pb.ShardAssignments(namespaces={"pulsar": namespace})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("/", 0x3285562E),
        ("/ledgers/idgen", 0x8DC50DEA),
        ("/managed-ledgers/public/default/persistent/topic-1", 0x21E633C1),
        ("/admin/policies/ünïcode", 0x9BD3AF4C),
    ],
)
def test_keys_hash_as_in_oxia(key: str, expected: int) -> None:
    """The hash of a key is what Oxia's own client (0.14, hash.Xxh332) computes."""
    assert key_hash(key.encode()) == expected


def test_shards_come_in_the_order_of_their_hashes_with_their_leaders() -> None:
    """A shard without a leader, or with a port alone, is served by the address that was dialled."""
    shards = shards_of(URL, layout((HALF, LAST, "10.0.0.2:6648"), (0, 9, ""), (10, HALF - 1, ":6648")))
    dialled = "10.0.0.1:6648"
    assert shards == (
        Shard(1, 0, 9, dialled),
        Shard(2, 10, HALF - 1, dialled),
        Shard(0, HALF, LAST, "10.0.0.2:6648"),
    )


@pytest.mark.parametrize(
    ("shards", "orphan"),
    [
        ([(1, LAST, "")], 0),
        ([(0, 9, ""), (11, LAST, "")], 10),
        ([(0, 10, ""), (10, LAST, "")], 10),
        ([(0, LAST - 1, "")], LAST),
    ],
)
def test_holes_and_overlaps_are_refused(shards: list[tuple[int, int, str]], orphan: int) -> None:
    """A layout in which a hash belongs to no shard or to two is refused with that hash."""
    with pytest.raises(StoreProtocolError, match=f"hash {orphan} belongs to none"):
        shards_of(URL, layout(*shards))


def test_other_routing_and_namespaces_are_refused() -> None:
    """A routing rule that is not known, and a layout without the namespace, are refused."""
    with pytest.raises(StoreUnsupported, match="only XXHASH3 is known"):
        shards_of(URL, layout((0, LAST, ""), router=pb.UNKNOWN))
    for missing in (pb.ShardAssignments(), layout()):
        with pytest.raises(StoreUnsupported, match="no namespace 'pulsar'"):
            shards_of(URL, missing)
