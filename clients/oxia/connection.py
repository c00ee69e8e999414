"""Connection to one namespace of Oxia: shards and their leaders, calls with deadlines, typed errors."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar, cast

import grpc
import xxhash
from google.protobuf.message import Message

from clients.closeable import Closeable
from clients.deadline import PARTS
from clients.errors import (
    StoreDenied,
    StoreError,
    StoreNotFound,
    StoreProtocolError,
    StoreUnreachable,
    StoreUnsupported,
)
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.link import open_channel, why_refused
from clients.reach import obstacle
from models.store_url import StoreUrl, is_host_and_port
from models.text import shown

#: The name that servers before 0.16 know; later ones answer to it as well.
SERVICE = "io.streamnative.oxia.proto.OxiaClient"
#: The name that servers from 0.16 on also know.
SERVICE_V1 = "io.oxia.proto.v1.OxiaClient"

LARGEST_MESSAGE = 128 << 20
"""Bytes of one message of a server, which puts records of about 2 MB into one, or a single larger record."""

SLOWEST = 10_000
"""Bytes a second. A stream that is slower on average ends, after as many timeouts as a whole answer may take."""

_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # A compressed message is measured before it is unpacked, and Oxia's servers send none.
    ("grpc.per_message_decompression", 0),
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.http2.lookahead_bytes", 8 << 20),
    # One connection for each OxiaConnection: a bulk writer and a scan do not share one flow control window.
    ("grpc.use_local_subchannel_pool", 1),
    # Metadata stores are never behind an HTTP proxy, yet gRPC obeys the environment's even for local addresses.
    ("grpc.enable_http_proxy", 0),
)

Answer = TypeVar("Answer", bound=Message)
Answer_co = TypeVar("Answer_co", covariant=True)


class Call(Protocol[Answer_co]):
    """A running call that answers with a stream of messages."""

    def __iter__(self) -> Iterator[Answer_co]: ...

    def cancel(self) -> bool:
        """End the call on both sides."""
        ...


class Shard(NamedTuple):
    """One shard of the namespace: the hashes of its keys, both ends included, and where its leader listens."""

    id: int
    low: int
    high: int
    address: str


def key_hash(key: bytes) -> int:
    """Return the hash by which Oxia routes a key: the low 32 bits of its XXH3."""
    return xxhash.xxh3_64_intdigest(key) & 0xFFFFFFFF


def shards_of(url: StoreUrl, layout: pb.ShardAssignments) -> tuple[Shard, ...]:
    """Return the shards of `url`'s namespace, ordered by hash; see `OxiaConnection.shards` for the errors."""
    namespace = layout.namespaces.get(url.root)
    if namespace is None or not namespace.assignments:
        raise _no_namespace(url)
    if namespace.shard_key_router != pb.XXHASH3:
        raise StoreUnsupported(f"{url} routes keys by rule {namespace.shard_key_router}; only XXHASH3 is known")
    shards = sorted((_shard(url, assignment) for assignment in namespace.assignments), key=lambda shard: shard.low)
    # A gap would be keys without a shard, an overlap records that are read twice.
    expected = 0
    for shard in shards:
        if shard.low != expected:
            raise StoreProtocolError(f"{url}: hash {min(expected, shard.low)} belongs to none or several of its shards")
        expected = shard.high + 1
    if expected != 1 << 32:
        raise StoreProtocolError(f"{url}: hash {expected} belongs to none of its shards")
    return tuple(shards)


class OxiaConnection(Closeable):
    """Connects lazily to the shards of `url`'s namespace; calls may come from several threads.

    The shards are asked for once. When a leader moves or a shard is split, calls fail with StoreUnreachable, and a new
    connection sees the new layout.

    Attributes:
        url: the store.
        access: credentials and TLS settings, also for the leaders that the server names.
        timeout: seconds that a call may take, or that a stream may stay silent; `SLOWEST` is for streams, too.
    """

    def __init__(self, url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> None:
        self.url = url
        self.access = access
        self.timeout = timeout
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards in the order of their hashes; together they hold every hash once.

        Raises:
            StoreUnreachable: the server does not answer.
            StoreUnsupported: no such namespace, or keys are routed in a way that is not known.
            StoreProtocolError: the shards leave out hashes, or share some.
        """
        return shards_of(self.url, self.assignments(SERVICE))

    def shard_of(self, key: bytes) -> int:
        """Return the shard where a record without partition key lies."""
        shards = self.shards
        if len(shards) == 1:
            return shards[0].id
        return shards[bisect_right(self._lows, key_hash(key)) - 1].id

    def assignments(self, service: str) -> pb.ShardAssignments:
        """Return the layout of the namespace as one of the service's names gives it (`SERVICE` or `SERVICE_V1`).

        Raises:
            StoreUnreachable: the server does not answer.
            StoreUnsupported: the server does not know the service's name, or not the namespace.
        """
        address = self.url.hosts[0]
        request = pb.ShardAssignmentsRequest(namespace=self.url.root)
        method = self._channel(address).unary_stream(
            f"/{service}/GetShardAssignments", _serialize, pb.ShardAssignments.FromString
        )
        try:
            call = method(request, timeout=self.timeout, metadata=self.access.metadata())
            try:
                # The server keeps the stream open for later changes.
                for layout in call:
                    return layout
            finally:
                call.cancel()
        except grpc.RpcError as error:
            raise self._first_error(error, address) from error
        raise StoreProtocolError(f"Oxia at {address} closed the stream of shard assignments without an answer")

    def unary(self, shard: int, method: str, request: Message, answer: type[Answer]) -> Answer:
        """Call the leader of a shard, answer within `timeout`.

        Raises:
            StoreError: see the module's errors.
        """
        address = self.leader(shard)
        call = self._channel(address).unary_unary(f"/{SERVICE}/{method}", _serialize, answer.FromString)
        try:
            return call(request, timeout=self.timeout, metadata=self.access.metadata())
        except grpc.RpcError as error:
            raise self.error(error, address) from error

    def stream(self, shard: int, method: str, request: Message, answer: type[Answer]) -> Iterator[Answer]:
        """Call the leader of a shard that answers with a stream, however long; no gap lasts longer than `timeout`.

        Raises:
            StoreUnreachable: connection lost, or the stream was silent or too slow while the caller waited.
            StoreError: see the module's errors.
        """
        address = self.leader(shard)
        watch = _StreamWatch(self.timeout)

        def read(data: bytes) -> Answer:
            watch.received += len(data)
            return answer.FromString(data)

        method_call = self._channel(address).unary_stream(f"/{SERVICE}/{method}", _serialize, read)
        call = method_call(request, metadata=self.access.metadata())
        watch.start(call)
        try:
            for message in call:
                watch.pause()
                yield message
                watch.resume()
        except grpc.RpcError as error:
            if watch.fault:
                raise StoreUnreachable(f"Oxia at {address} sent {watch.fault} ({method})", server=address) from error
            raise self.error(error, address) from error
        finally:
            watch.stop()
            call.cancel()

    def write_stream(
        self, shard: int, requests: Iterator[pb.WriteRequest], *, lifetime: float | None = None
    ) -> Call[pb.WriteResponse]:
        """Open the stream of writes to one shard; acknowledgements come in the order of the requests.

        Iterating raises grpc.RpcError, for `error` to translate. When `requests` ends before every acknowledgement is
        in, the missing ones never come though the data is stored.

        Args:
            shard: its number.
            requests: what is written.
            lifetime: seconds after which the server itself ends the stream, by its own clock: requests that
                arrive later are not applied, however long they were in flight.
        """
        method = self._channel(self.leader(shard)).stream_stream(
            f"/{SERVICE}/WriteStream", _serialize, pb.WriteResponse.FromString
        )
        metadata = (("namespace", self.url.root), ("shard-id", str(shard)), *self.access.metadata())
        # mutant: metadata-store/streams-of-lost-tasks-last
        return method(requests, timeout=lifetime, metadata=metadata)

    def leader(self, shard: int) -> str:
        """Return `host:port` of the shard's leader."""
        for candidate in self.shards:
            if candidate.id == shard:
                return candidate.address
        raise StoreProtocolError(
            f"{self.url} has no shard {shard}; its layout changed, or the number is from elsewhere"
        )

    def error(self, error: grpc.RpcError, address: str) -> StoreError:
        """Return the typed error for a failed call to `address`."""
        failed = cast("grpc.Call", error)
        code, details = failed.code(), cast("str | None", failed.details()) or ""
        text = f"Oxia at {address}: {shown(details)} ({code.name})"
        if "namespace not found" in details:
            return _no_namespace(self.url)
        if "session not found" in details:
            return StoreNotFound(text, server=address)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return StoreUnreachable(f"Oxia at {address} did not answer within {self.timeout:g} s", server=address)
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return StoreDenied(f"{text}; {self._token_cure}", server=address)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return StoreUnsupported(f"{text}; needs Oxia 0.16 or newer", server=address)
        if "failed to Deserialize" in details:
            # Oxia 0.14 with notifications reads its own records as if they were a user's.
            cure = "it cannot scan past its own records, upgrade it to Oxia 0.16 or newer"
            return StoreUnsupported(f"{text}; {cure}", server=address)
        if "handshake" in details.lower() and (refused := why_refused(address, self.access, self.timeout)):
            return refused
        if code in _WORTH_A_RETRY or any(sign in details for sign in _LEADER_MOVED):
            return StoreUnreachable(text, server=address)
        return StoreProtocolError(text, server=address)

    def _first_error(self, error: grpc.RpcError, address: str) -> StoreError:
        """Return the typed error for a failure of the first call, which may have gone to a wrong address."""
        typed = self.error(error, address)
        if not isinstance(typed, StoreUnreachable):
            return typed
        if refused := why_refused(address, self.access, self.timeout):
            return refused
        if why := obstacle(address):
            return why.saying(f"no Oxia server answers at {address}: {why}; check host and port")
        text = f"{typed}; if {address} is the port of another server, such as ZooKeeper, correct it"
        return StoreUnreachable(text, server=address)

    def close(self) -> None:
        """Close the channels, which ends every call; harmless when done twice."""
        with self._lock:
            while self._channels:
                self._channels.popitem()[1].close()

    @property
    def _token_cure(self) -> str:
        if not self.access.has_token:
            return "set oxia_token_file if the server wants a token"
        return f"check {'oxia_token_file' if self.access.token_file else 'oxia_token'}"

    @cached_property
    def _lows(self) -> list[int]:
        return [shard.low for shard in self.shards]

    def _channel(self, address: str) -> grpc.Channel:
        """Create a channel; the only function that does."""
        with self._lock:
            if address not in self._channels:
                self._channels[address] = open_channel(address, self.access, _CHANNEL_OPTIONS)
            return self._channels[address]


class _StreamWatch:
    """Cancels a stream that stays silent too long, or is too slow, while a caller waits: gRPC has no deadline for that.

    Attributes:
        received: bytes, which the caller counts.
        fault: what the server sent; empty while the stream is fast enough.
    """

    def __init__(self, timeout: float) -> None:
        self.received = 0
        self.fault = ""
        self._timeout = timeout
        self._waited = 0.0
        self._waiting_since: float | None = time.monotonic()
        self._stopped = threading.Event()

    def start(self, call: Call[Message]) -> None:
        threading.Thread(target=self._run, args=(call,), name="oxia-stream-watch", daemon=True).start()

    # The silence between two messages is the caller's while it works on one.
    def pause(self) -> None:
        since, self._waiting_since = self._waiting_since, None
        self._waited += time.monotonic() - since if since is not None else 0.0

    def resume(self) -> None:
        self._waiting_since = time.monotonic()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self, call: Call[Message]) -> None:
        while not self._stopped.wait(self._timeout / 8):
            since = self._waiting_since
            if since is None:
                continue
            silence = time.monotonic() - since
            waited = self._waited + silence
            if silence > self._timeout:
                self.fault = f"nothing for {self._timeout:g} s"
            elif waited > PARTS * self._timeout + self.received / SLOWEST:
                self.fault = f"only {self.received:,} bytes in {waited:.0f} s"
            else:
                continue
            call.cancel()
            return


_WORTH_A_RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED)
# Servers before 0.16 send these with codes of their own, which gRPC shows as UNKNOWN.
_LEADER_MOVED = ("not leader", "not initialized", "already closed", "operation was cancelled", "shard not found")


def _shard(url: StoreUrl, assignment: pb.ShardAssignment) -> Shard:
    hashes = assignment.int32_hash_range
    # A standalone server may omit the leader, or name only a port: then it is the server that was connected to.
    has_leader = assignment.leader and not assignment.leader.startswith(":")
    if has_leader and not is_host_and_port(assignment.leader):
        raise StoreProtocolError(f"{url}: the leader of shard {assignment.shard} is not a host with its port")
    return Shard(
        assignment.shard,
        hashes.min_hash_inclusive,
        hashes.max_hash_inclusive,
        assignment.leader if has_leader else url.hosts[0],
    )


def _no_namespace(url: StoreUrl) -> StoreUnsupported:
    return StoreUnsupported(
        f"Oxia at {url.hosts[0]} has no namespace {url.root!r}; "
        "create it in the coordinator's cluster configuration, or name another one: oxia://host:port/namespace"
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
