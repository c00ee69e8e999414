"""Stores, bookies and brokers that mean harm, on real sockets, against clients with little memory."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from unittest.mock import patch

import grpc
import pytest

from clients.bookkeeper.ledgers import Bookie
from clients.bookkeeper.pool import Bookies
from clients.errors import StoreError, StoreProtocolError, StoreUnreachable
from clients.oxia import oxia_pb2 as pb
from clients.oxia.connection import LARGEST_MESSAGE, SERVICE
from clients.oxia.reader import OxiaReader
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.connection import BrokerConnection
from clients.pulsar.wire.position import EntryPosition
from clients.pulsar.wire.reader import RawReader
from clients.zookeeper.coordination import CoordinationReader
from clients.zookeeper.reader import ZooKeeperReader
from models.store_url import parse_store_url
from pulsar_wire.access import addresses
from pulsar_wire.frames import SIZE, Command, decode, encode
from pulsar_wire.pulsar_api_pb2 import (
    CommandConnect,
    CommandConnected,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPing,
    CommandReachedEndOfTopic,
    CommandSubscribe,
    CommandSuccess,
)
from tests.support.hostile import (
    LONG_TIMEOUT,
    PARTS,
    TIMEOUT,
    WHOLE,
    HostileServer,
    LittleMemory,
    Script,
    drip,
    received,
    slowly,
)

_GIB = 1 << 30
_INT = struct.Struct(">i")
_HEAD = struct.Struct(">iqi")


@pytest.fixture(scope="module")
def reader() -> Generator[LittleMemory]:
    """Return a process with little memory."""
    with LittleMemory() as process:
        yield process


# ZooKeeper ----------------------------------------------------------------------------------------------------------

_SESSION = struct.pack(">iiqi16s", 0, 30_000, 1, 16, bytes(16))


def _packet(body: bytes, size: int | None = None) -> bytes:
    return _INT.pack(len(body) if size is None else size) + body


def _zookeeper(answer: Callable[[socket.socket, int], object]) -> Script:
    """Return a server that gives a session; the function answers requests, whose number it gets."""

    def script(connected: socket.socket) -> None:
        received(connected)
        connected.sendall(_packet(_SESSION))
        while requests := received(connected):
            while requests:
                answer(connected, _INT.unpack_from(requests, 4)[0])
                requests = requests[4 + _INT.unpack_from(requests)[0] :]

    return script


def _names(count: int, names: bytes = b"") -> Callable[[socket.socket, int], None]:
    """Return what answers with a list of children that claims so many names."""
    return lambda connected, xid: connected.sendall(_packet(_HEAD.pack(xid, 1, 0) + _INT.pack(count) + names))


def _event_flood(connected: socket.socket, _: int) -> None:
    event = _packet(_HEAD.pack(-1, -1, 0) + struct.pack(">iii", 1, 3, 2) + b"/a")
    drip(connected, repeat(event))


def _dripping_packet(connected: socket.socket, _: int) -> None:
    drip(connected, [_INT.pack(1_000_000), *repeat(b"\0", 1_000)])


def children(address: str, timeout: float = LONG_TIMEOUT) -> int:
    """Return how many children the root of a ZooKeeper store has."""
    with ZooKeeperReader(parse_store_url(f"zk://{address}"), timeout=timeout) as store:
        return len(store.children(b"/"))


def read_record(address: str) -> object:
    """Read one record of a ZooKeeper store."""
    with ZooKeeperReader(parse_store_url(f"zk://{address}"), timeout=LONG_TIMEOUT) as store:
        return store.read([b"/a"])


def coordinate(address: str, timeout: float = 5.0) -> object:
    """Read one record of a ZooKeeper store with kazoo."""
    with CoordinationReader(parse_store_url(f"zk://{address}"), timeout=timeout) as store:
        return store.get("/a")


def growth(address: str) -> int:
    """Return how many bytes more this process needed while kazoo could not read a record."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StoreUnreachable):
        coordinate(address)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10


def _huge_packet(connected: socket.socket, _: int) -> None:
    connected.sendall(_INT.pack(_GIB))
    for _ in range(1_024):
        connected.sendall(bytes(1 << 20))


def _empty_packet(connected: socket.socket, xid: int) -> None:
    connected.sendall(_packet(_HEAD.pack(xid, 1, 0)))


_ZOOKEEPERS: dict[str, tuple[Script, str]] = {
    "a packet of 1 GiB": (
        _zookeeper(lambda connected, _: connected.sendall(_packet(b"x", _GIB))),
        "does not speak ZooKeeper's protocol",
    ),
    "a negative size": (
        _zookeeper(lambda connected, _: connected.sendall(_packet(b"x", -1))),
        "does not speak ZooKeeper's protocol",
    ),
    "a billion names": (_zookeeper(_names((1 << 31) - 1, _INT.pack(-4) * 8)), "claims to hold 2,147,483,647 names"),
    "a short list": (_zookeeper(_names(2, _INT.pack(1) + b"a" + bytes(3))), "damaged"),
    "a greeting that drips": (lambda connected: drip(connected, repeat(b"\0")), "does not speak"),
}


@pytest.mark.parametrize("server", _ZOOKEEPERS)
def test_a_zookeeper_that_means_harm(reader: LittleMemory, server: str) -> None:
    """Sizes and counts that a server claims reserve no memory, and damage is a typed error."""
    script, reason = _ZOOKEEPERS[server]
    with HostileServer(script) as zookeeper, pytest.raises(StoreError, match=reason):
        reader.read(children, zookeeper.address)


def test_a_damaged_record_of_zookeeper(reader: LittleMemory) -> None:
    """A record that is longer than its packet is a typed error."""
    body = struct.pack(">ibi", 4, 0, 0) + _INT.pack(_GIB)
    damaged = _zookeeper(lambda connected, xid: connected.sendall(_packet(_HEAD.pack(xid, 1, 0) + body)))
    with HostileServer(damaged) as zookeeper, pytest.raises(StoreProtocolError, match="damaged"):
        reader.read(read_record, zookeeper.address)


@pytest.mark.parametrize("answer", [_event_flood, _dripping_packet])
def test_a_zookeeper_that_drips(reader: LittleMemory, answer: Callable[[socket.socket, int], object]) -> None:
    """An answer has a deadline, however often events or parts of it arrive."""
    with (
        HostileServer(_zookeeper(answer)) as zookeeper,
        pytest.raises(StoreUnreachable, match=f"longer than {WHOLE}"),
    ):
        reader.read(children, zookeeper.address, TIMEOUT)


def test_a_million_children(reader: LittleMemory) -> None:
    """The largest legitimate lists are read."""
    count = 1_000_000
    names = b"".join(_INT.pack(30) + b"persistent-topic-number%07d" % number for number in range(count))
    with HostileServer(_zookeeper(_names(count, names))) as zookeeper:
        assert reader.read(children, zookeeper.address) == count


@pytest.mark.parametrize(
    ("answer", "kind", "timeout"),
    [(_empty_packet, StoreProtocolError, LONG_TIMEOUT), (_dripping_packet, StoreUnreachable, 5.0)],
)
def test_a_zookeeper_that_means_harm_to_kazoo(
    reader: LittleMemory, answer: Callable[[socket.socket, int], object], kind: type[StoreError], timeout: float
) -> None:
    """Damage and slowness are typed errors of small reads, too."""
    with HostileServer(_zookeeper(answer)) as zookeeper, pytest.raises(kind):
        reader.read(coordinate, zookeeper.address, timeout)


def test_kazoo_receives_no_huge_packet() -> None:
    """Nothing is received for a packet that announces 1 GiB."""
    with LittleMemory(4 * _GIB) as process, HostileServer(_zookeeper(_huge_packet)) as zookeeper:
        assert process.read(growth, zookeeper.address) < 64 << 20


# Oxia ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _oxia(messages: Callable[[], Iterator[bytes]], compression: grpc.Compression | None = None) -> Generator[str]:
    """Yield the address of a server that answers each scan with these messages."""
    layout = pb.ShardAssignments()
    namespace = layout.namespaces["default"]
    namespace.shard_key_router = pb.XXHASH3
    shard = namespace.assignments.add()
    shard.int32_hash_range.max_hash_inclusive = (1 << 32) - 1
    served: dict[str, Callable[[], Iterator[bytes]]] = {
        f"/{SERVICE}/GetShardAssignments": lambda: iter([layout.SerializeToString()]),
        f"/{SERVICE}/RangeScan": messages,
    }

    class Handler(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            answers = served[handler_call_details.method]
            return grpc.unary_stream_rpc_method_handler(lambda *_: answers())

    server = grpc.server(
        ThreadPoolExecutor(4),
        handlers=[Handler()],
        options=[("grpc.max_send_message_length", -1)],
        compression=compression,
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0)


def scan(address: str, timeout: float = LONG_TIMEOUT) -> int:
    """Return how many records a store of Oxia has."""
    with OxiaReader(parse_store_url(f"oxia://{address}/default"), timeout=timeout) as store:
        return sum(len(batch) for partition in store.partitions(1) for batch in store.scan(partition))


def _record(size: int) -> bytes:
    answer = pb.RangeScanResponse()
    answer.records.add(key=b"/a", value=bytes(size))
    return answer.SerializeToString()


def test_an_oxia_with_records_of_any_size(reader: LittleMemory) -> None:
    """A message larger than the limit is refused, and so is a packed one, which could hold a thousand times more."""
    large = LARGEST_MESSAGE + 1
    with _oxia(lambda: iter([_record(large)])) as address, pytest.raises(StoreProtocolError, match="larger than max"):
        reader.read(scan, address)
    with (
        _oxia(lambda: iter([_record(16 << 20)] * 64), grpc.Compression.Gzip) as address,
        pytest.raises(StoreProtocolError, match="INTERNAL"),
    ):
        reader.read(scan, address)
    with _oxia(lambda: iter([_record(16 << 20)] * 4)) as address:
        assert reader.read(scan, address) == 4


def test_an_oxia_that_drips(reader: LittleMemory) -> None:
    """A stream that is never silent for long, but brings nearly nothing, ends."""
    drops = slowly(repeat(_record(1)))
    with _oxia(lambda: drops) as address, pytest.raises(StoreUnreachable, match=r"only \d+ bytes in"):
        reader.read(scan, address, TIMEOUT)


# Bookies ------------------------------------------------------------------------------------------------------------


def _with_bookie(address: str, use: Callable[[Bookies], object]) -> object:
    host, _, port = address.rpartition(":")
    bookies = {"b": Bookie("b", host, int(port), writable=True)}
    with (
        patch("clients.bookkeeper.connection._TIMEOUT_FACTOR", PARTS),
        Bookies(lambda: bookies, read_timeout=TIMEOUT, add_timeout=TIMEOUT) as pool,
    ):
        return use(pool)


def read_entry(address: str) -> str:
    """Read an entry of a bookie; return why it did not come."""

    def use(pool: Bookies) -> str:
        connection = pool.connection("b")
        connection.read(1, 1, lambda _: None)
        while not connection.lost:
            pool.loop.poll()
        return connection.lost

    return str(_with_bookie(address, use))


def add_entry(address: str) -> str:
    """Send an entry to a bookie; return why it was not taken."""

    def use(pool: Bookies) -> str:
        connection = pool.connection("b")
        connection.add([b"frames"], [b"body"], 4)
        while not connection.lost:
            pool.loop.poll()
        return connection.lost

    return str(_with_bookie(address, use))


def ask_space(address: str) -> object:
    """Ask a bookie for its space."""
    return _with_bookie(address, lambda pool: pool.free_space("b"))


def _dripping(connected: socket.socket) -> None:
    received(connected)
    entry = bytes.fromhex("0202000000000000") + struct.pack(">qq", 1, 1)
    drip(connected, [_INT.pack(1_000_000) + entry, *repeat(b"\0", 1_000)])


def _dripping_answer(connected: socket.socket) -> None:
    received(connected)
    drip(connected, [_INT.pack(1_000), *repeat(b"\0", 1_000)])


def _huge_frame(connected: socket.socket) -> None:
    received(connected)
    connected.sendall(_INT.pack(_GIB) + bytes(24))
    received(connected)


def test_a_bookie_that_means_harm(reader: LittleMemory) -> None:
    """A frame of 1 GiB reserves nothing, and answers that drip end the connection."""
    with HostileServer(_huge_frame) as bookie:
        assert f"a frame of {_GIB} bytes" in str(reader.read(read_entry, bookie.address))
    with HostileServer(_dripping) as bookie:
        assert f"unanswered for {WHOLE}" in str(reader.read(read_entry, bookie.address))
        assert f"answered no add for {WHOLE}" in str(reader.read(add_entry, bookie.address))
    with HostileServer(_dripping_answer) as bookie, pytest.raises(StoreUnreachable, match=f"longer than {WHOLE}"):
        reader.read(ask_space, bookie.address)


# Brokers ------------------------------------------------------------------------------------------------------------


def _broker(pushed: Callable[[socket.socket, int], object]) -> Script:
    """Return a broker that owns every topic; the function pushes to a consumer, or to the client that pings (0)."""

    def answers(asked: Command, connected: socket.socket) -> list[Command]:
        if isinstance(asked, CommandConnect):
            return [CommandConnected(server_version="double", max_message_size=(1 << 31) - 1)]
        if isinstance(asked, CommandLookupTopic):
            own = f"pulsar://127.0.0.1:{connected.getsockname()[1]}"
            kind = CommandLookupTopicResponse.Connect
            return [CommandLookupTopicResponse(request_id=asked.request_id, response=kind, brokerServiceUrl=own)]
        return [CommandSuccess(request_id=asked.request_id)] if isinstance(asked, CommandSubscribe) else []

    def script(connected: socket.socket) -> None:
        while head := received(connected):
            while head:
                end = SIZE.size + SIZE.unpack_from(head)[0]
                asked, head = decode(head[SIZE.size : end]).command, head[end:]
                assert asked is not None
                connected.sendall(b"".join(map(encode, answers(asked, connected))))
                if isinstance(asked, CommandSubscribe):
                    pushed(connected, asked.consumer_id)
                elif isinstance(asked, CommandPing):
                    pushed(connected, 0)

    return script


def _no_entries(connected: socket.socket, consumer: int) -> None:
    drip(connected, repeat(encode(CommandReachedEndOfTopic(consumer_id=consumer))))


def read_topic(url: str) -> int:
    """Read the entries of a topic."""
    access = WireAccess(timeout=TIMEOUT)
    with RawReader(url, TopicName.parse("public/default/t"), access, notes={}) as topic:
        return len(list(topic.entries(EntryPosition(1, 1))))


def ping(url: str) -> None:
    """Wait for something from a broker."""
    with BrokerConnection(addresses(url)[0], WireAccess(timeout=LONG_TIMEOUT)) as connection:
        connection.send(encode(CommandPing()))
        connection.receive("waiting")


def test_a_broker_that_means_harm(reader: LittleMemory) -> None:
    """A broker that announces messages of 2 GiB may not send them, and one without entries is left in time."""
    huge = _broker(lambda connected, _: connected.sendall(SIZE.pack(_GIB)))
    with HostileServer(huge) as broker, pytest.raises(StoreProtocolError, match=f"a frame of {_GIB} bytes"):
        reader.read(ping, f"pulsar://{broker.address}")
    with HostileServer(_broker(_no_entries)) as broker, pytest.raises(StoreUnreachable, match=f"no entry in {WHOLE}"):
        reader.read(read_topic, f"pulsar://{broker.address}")
