"""Oxia's messages, as a real server (0.17, standalone) took and gave them."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from clients.oxia import oxia_pb2 as pb
from clients.oxia.reader import record_of
from clients.store import Record

# Two shards, one server.
ASSIGNMENTS = bytes.fromhex(
    "0a480a0764656661756c74123d0a18120f3132372e302e302e313a32333130351a0515ffffff7f0a1f0801120f3132372e302e302e313a323331"
    "30351a0a0d0000008015ffffffff1001"
)
# A put with overrides (-2, 7), a put that must not exist, an ephemeral put, a delete.
WRITE_REQUEST = bytes.fromhex(
    "080012140a022f6112017648feffffffffffffffff01500712120a022f6112017718ffffffffffffffffff0112090a022f6520002a01741a070a05"
    "2f6e6f6e65"
)
WRITE_RESPONSE = bytes.fromhex(
    "0a21121f08feffffffffffffffff01100719a92d65fda101000021a92d65fda10100000a0208020a1b1219080119a92d65fda101000021a92d65fd"
    "a1010000280032017412020801"
)
SCAN = bytes.fromhex(
    "0a28121f08feffffffffffffffff01100719a92d65fda101000021a92d65fda10100001a017622022f610a1f1219080119a92d65fda101000021a9"
    "2d65fda1010000280032017422022f65"
)
READ = bytes.fromhex("0a24121f08feffffffffffffffff01100719a92d65fda101000021a92d65fda10100001a01760a020801")
LISTING = bytes.fromhex("0a022f610a022f65")
# A put with sequence_key_delta, which our messages leave out, and the answer with the key that the server chose.
SEQUENCE_REQUEST = bytes.fromhex("0800120d0a022f731201313201703a0101")
SEQUENCE_RESPONSE = bytes.fromhex(
    "0a2f1214080419cf7c65fda101000021cf7c65fda10100001a172f732d3030303030303030303030303030303030303031"
)
MODIFIED = 0x01A1FD652DA9


def test_shard_assignments_are_read() -> None:
    """Shards, hash ranges and leaders of a real layout are read."""
    namespace = pb.ShardAssignments.FromString(ASSIGNMENTS).namespaces["default"]
    assert namespace.shard_key_router == pb.XXHASH3
    ranges = [
        (a.shard, a.leader, a.int32_hash_range.min_hash_inclusive, a.int32_hash_range.max_hash_inclusive)
        for a in namespace.assignments
    ]
    assert ranges == [(0, "127.0.0.1:23105", 0, 0x7FFFFFFF), (1, "127.0.0.1:23105", 0x80000000, 0xFFFFFFFF)]


def test_write_request_is_written_as_the_server_took_it() -> None:
    """Overrides, conditions and sessions get the field numbers that a real server obeyed; 0 is not absent."""
    request = pb.WriteRequest(
        shard=0,
        puts=[
            pb.PutRequest(key=b"/a", value=b"v", override_version_id=-2, override_modifications_count=7),
            pb.PutRequest(key=b"/a", value=b"w", expected_version_id=-1),
            pb.PutRequest(key=b"/e", value=b"", session_id=0, client_identity="t"),
        ],
        deletes=[pb.DeleteRequest(key=b"/none")],
    )
    assert request.SerializeToString() == WRITE_REQUEST


def test_write_response_is_read() -> None:
    """Each write has its own status, and a put the version that it got."""
    response = pb.WriteResponse.FromString(WRITE_RESPONSE)
    assert [put.status for put in response.puts] == [pb.OK, pb.UNEXPECTED_VERSION_ID, pb.OK]
    assert [delete.status for delete in response.deletes] == [pb.KEY_NOT_FOUND]
    version = response.puts[0].version
    assert (version.version_id, version.modifications_count) == (-2, 7)
    assert version.created_timestamp == version.modified_timestamp == MODIFIED


def test_session_zero_differs_from_no_session() -> None:
    """The first session of a shard has the id 0, and its records still show that they have one."""
    persistent, ephemeral = pb.RangeScanResponse.FromString(SCAN).records
    assert (persistent.key, persistent.value, persistent.version.HasField("session_id")) == (b"/a", b"v", False)
    assert (ephemeral.key, ephemeral.version.session_id, ephemeral.version.HasField("session_id")) == (b"/e", 0, True)
    assert record_of(b"/a", persistent) == Record(b"/a", b"v", -2, 7, 0, 0, 0)
    assert record_of(b"/e", ephemeral) == Record(b"/e", b"", 1, 0, 1, 0, 0)


def test_reads_and_listings_are_read() -> None:
    """A get answers in the order of the request, absent keys included; a listing has keys alone."""
    there, absent = pb.ReadResponse.FromString(READ).gets
    assert (there.status, there.value, absent.status) == (pb.OK, b"v", pb.KEY_NOT_FOUND)
    assert list(pb.ListResponse.FromString(LISTING).keys) == [b"/a", b"/e"]


@pytest.mark.parametrize(
    ("message", "golden"),
    [
        (pb.ShardAssignments(), ASSIGNMENTS),
        (pb.WriteRequest(), WRITE_REQUEST),
        (pb.WriteResponse(), WRITE_RESPONSE),
        (pb.RangeScanResponse(), SCAN),
        (pb.ReadResponse(), READ),
        (pb.ListResponse(), LISTING),
        (pb.WriteRequest(), SEQUENCE_REQUEST),
        (pb.WriteResponse(), SEQUENCE_RESPONSE),
    ],
)
def test_nothing_is_lost_in_a_round_trip(message: Message, golden: bytes) -> None:
    """Parsing and writing a real message gives the same bytes, fields that are not known included."""
    message.ParseFromString(golden)
    assert message.SerializeToString(deterministic=True) == golden


def test_fields_that_are_not_known_are_kept() -> None:
    """The server's answer contains the key of a sequential put, which the messages do not define, and keeps it."""
    put = pb.WriteResponse.FromString(SEQUENCE_RESPONSE).puts[0]
    assert put.version.version_id == 4
    assert b"/s-00000000000000000001" in put.SerializeToString()
    assert pb.WriteRequest.FromString(SEQUENCE_REQUEST).puts[0].SerializeToString().endswith(bytes.fromhex("3a0101"))
