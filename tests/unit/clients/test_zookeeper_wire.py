"""ZooKeeper's wire format against packets exchanged with a ZooKeeper 3.9.5 server."""

from __future__ import annotations

from clients.store import Record, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.scan import created_children, owner_session, read_records

#: The tree of these packets: /gold (`abcd`, version 1) had the children `ü` (empty) and `x`, which was deleted.
GOLD, UMLAUT, NONE = b"/gold", "/gold/ü".encode(), b"/gold/none"

STAT_REPLY = bytes.fromhex(
    "00000001000000000000017200000000000000000000016d000000000000016e000001a1fd706809000001a1fd706809"
    "000000010000000300000000000000000000000000000004000000010000000000000171"
)
DATA_REQUEST = bytes.fromhex(
    "0000005200000005000000160000000400ffffffff000000052f676f6c64000000000400ffffffff0000000a2f676f6c"
    "642f6e6f6e65000000000400ffffffff000000082f676f6c642fc3bc00ffffffff01ffffffff"
)
DATA_REPLY = bytes.fromhex(
    "000000050000000000000172000000000000000400000000000000000461626364000000000000016d00000000000001"
    "6e000001a1fd706809000001a1fd70680900000001000000030000000000000000000000000000000400000001000000"
    "0000000171ffffffff00ffffff9bffffff9b00000004000000000000000000000000000000016f000000000000016f00"
    "0001a1fd70680a000001a1fd70680a000000000000000000000000000000000000000000000000000000000000000000"
    "00016fffffffff01ffffffff"
)
CHILDREN_REPLY = bytes.fromhex("000000020000000000000172000000000000000100000002c3bc")
MULTI_REQUEST = bytes.fromhex(
    "0000007e000000070000000e0000000100ffffffff000000072f676f6c642f6d0000000176000000010000001f000000"
    "05776f726c6400000006616e796f6e65000000000000000500ffffffff000000072f676f6c642f6d0000000177000000"
    "000000000200ffffffff000000072f676f6c642f6d00000001ffffffff01ffffffff"
)
MULTI_REPLY = bytes.fromhex(
    "00000007000000000000017300000000000000010000000000000000072f676f6c642f6d000000050000000000000000"
    "00000001730000000000000173000001a1fd70680d000001a1fd70680d00000001000000000000000000000000000000"
    "0000000001000000000000000000000173000000020000000000ffffffff01ffffffff"
)
FAILED_MULTI_REPLY = bytes.fromhex(
    "00000008000000000000017400000000ffffffff000000000000000000ffffffff00ffffff99ffffff99ffffffff00ff"
    "fffffefffffffeffffffff01ffffffff"
)
DELETED_EVENT = bytes.fromhex("ffffffff0000000000000173000000000000000200000003000000072f676f6c642f6d")


def test_session_packets() -> None:
    """Connecting and adding a credential send what the server took, and its answer is understood."""
    assert wire.connect_packet(30_000).hex() == "0000002d" + "00" * 12 + "00007530" + "00" * 8 + "00000010" + "00" * 17
    connected = bytes.fromhex("0000000000007530010000148f23000a0000001031db655ea066e694f51c1cfb1f61365500")
    assert wire.read_connected(connected) == (30_000, 0x10000148F23000A)
    assert wire.auth_packet("digest", b"u:p").hex() == (
        "0000001dfffffffc00000064000000000000000664696765737400000003753a70"
    )


def test_single_requests() -> None:
    """exists, getChildren, sync and addWatch send what the server took."""
    assert wire.packet(1, wire.EXISTS, wire.watched_path(GOLD)).hex() == (
        "000000120000000100000003000000052f676f6c6400"
    )
    assert wire.packet(2, wire.GET_CHILDREN, wire.watched_path(GOLD)).hex() == (
        "000000120000000200000008000000052f676f6c6400"
    )
    assert wire.packet(3, wire.SYNC, wire.buffer(GOLD)).hex() == "000000110000000300000009000000052f676f6c64"
    watch = wire.packet(4, wire.ADD_WATCH, wire.add_watch(GOLD, wire.PERSISTENT_RECURSIVE))
    assert watch.hex() == "00000015000000040000006a000000052f676f6c6400000001"


def test_stat() -> None:
    """A Stat's fields are read in the server's order."""
    assert wire.read_answer(STAT_REPLY)[:3] == (1, 0x172, wire.OK)
    stat = wire.read_stat(STAT_REPLY, wire.BODY)
    assert stat == (0x16D, 0x16E, 1795253364745, 1795253364745, 1, 3, 0, 0, 4, 1, 0x171)


def test_names() -> None:
    """A list of children is read, with names beyond ASCII as UTF-8."""
    assert wire.read_names(CHILDREN_REPLY, wire.BODY) == (["ü".encode()], len(CHILDREN_REPLY))


def test_multi_read_of_data() -> None:
    """One multiRead asks for several nodes; an absent node is left out, and one with children is marked."""
    paths = [GOLD, NONE, UMLAUT]
    assert wire.packet(5, wire.MULTI_READ, wire.multi_read(wire.GET_DATA, paths)) == DATA_REQUEST
    records: list[Record | Unreadable] = []
    inner: list[tuple[bytes, int]] = []
    read_records(DATA_REPLY, paths, records, inner)
    assert records == [
        Record(GOLD, b"abcd", 1, 2, 0, 0x16E, 0x171, 0x16D),
        Record(UMLAUT, b"", 0, 0, 0, 0x16F, 0x16F, 0x16F),
    ]
    assert inner == [(GOLD, 1)]


def test_multi() -> None:
    """A multi sends what the server took; success reads as no error and failure as the culprit's."""
    parts = [
        wire.op_create(b"/gold/m", b"v"),
        wire.op_set(b"/gold/m", b"w", 0),
        wire.op_delete(b"/gold/m", 1),
    ]
    assert wire.packet(7, wire.MULTI, wire.multi(parts)) == MULTI_REQUEST
    assert wire.read_multi_failure(MULTI_REPLY)[1] == wire.OK
    assert wire.read_multi_failure(FAILED_MULTI_REPLY)[1] == wire.BAD_VERSION


def test_event() -> None:
    """An event has its own xid, and names what happened to which node."""
    assert wire.read_answer(DELETED_EVENT).xid == wire.XID_EVENT
    assert wire.read_event(DELETED_EVENT) == (wire.EVENT_DELETED, b"/gold/m")


def test_created_children_beyond_32_bits() -> None:
    """The number of children ever created survives the overflow of the server's counter."""
    assert created_children(cversion=3, num_children=1) == 2
    overflowed = 2 * 2_000_000_000 - 5 - (1 << 32)
    assert created_children(cversion=overflowed, num_children=5) == 2_000_000_000


def test_owner_session() -> None:
    """Containers and nodes with a time to live belong to no session, while negative session ids are kept."""
    assert owner_session(0x10000148F23000A) == 0x10000148F23000A
    assert owner_session(-(1 << 63)) == 0
    assert owner_session(0xFF00_0000_0000_1388 - (1 << 64)) == 0
    session = 0x90001234_56780001 - (1 << 64)
    assert owner_session(session) == session
