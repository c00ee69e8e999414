"""Records of an Oxia namespace, read with plain calls of its service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import grpc
import xxhash
from google.protobuf.message import Message

from clients.closeable import Closeable
from clients.errors import StoreDenied, StoreError, StoreProtocolError, StoreUnreachable, StoreUnsupported
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import OxiaAccess
from clients.oxia.link import open_channel
from clients.verification.records import PATHS_AT_ONCE, Answer, StoredRecord
from models.store_url import StoreUrl
from models.text import shown

_SERVICE = "/io.streamnative.oxia.proto.OxiaClient"
_OPTIONS = (("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_http_proxy", 0))
_OWN = "__oxia/"
_PAGE = 5_000
"""Keys after which a listing ends, and another one continues."""

_STREAM_PARTS = 10
"""A stream may take so many timeouts."""

AnswerT = TypeVar("AnswerT", bound=Message)


class OxiaRecords(Closeable):
    """Reads a namespace and cannot write; see `RecordReader`.

    Args:
        url: the namespace.
        access: credentials and TLS settings.
        timeout: seconds that a call may take.
    """

    def __init__(self, url: StoreUrl, *, access: OxiaAccess, timeout: float) -> None:
        self.url = url
        self._access = access
        self._timeout = timeout
        self._channels: dict[str, grpc.Channel] = {}

    @property
    def layout(self) -> str:
        """Shards of the namespace, with their first hashes."""
        return " ".join(f"{shard.shard}:{shard.int32_hash_range.min_hash_inclusive}" for shard in self._shards)

    def paths(self, scope: str, after: str) -> Iterator[list[str]]:
        """Yield the keys of each shard, in the shard's order."""
        start = self._shards.index(self._shard_of(after)) if after else 0
        for number, shard in enumerate(self._shards[start:]):
            last = _bytes(after) if after and number == 0 else b""
            while page := self._keys(shard, last):
                last = page[-1]
                keys = [key.decode(errors="surrogateescape") for key in page]
                beneath = f"{scope}/" if scope else ""
                chosen = [key for key in keys if not key.startswith(_OWN) and f"{key}/".startswith(beneath)]
                for first in range(0, len(chosen), PATHS_AT_ONCE):
                    yield chosen[first : first + PATHS_AT_ONCE]

    def read(self, paths: Sequence[str]) -> list[Answer]:
        """Return the records of these keys, in their order."""
        records: list[Answer] = [None] * len(paths)
        by_shard: dict[int, list[int]] = {}
        for index, path in enumerate(paths):
            by_shard.setdefault(self._shard_of(path).shard, []).append(index)
        for shard in self._shards:
            wanted = by_shard.get(shard.shard, [])
            gets = [pb.GetRequest(key=_bytes(paths[index]), include_value=True) for index in wanted]
            if not gets:
                continue
            request = pb.ReadRequest(shard=shard.shard, gets=gets)
            answers = [get for message in self._stream(shard, "Read", request, pb.ReadResponse) for get in message.gets]
            if len(answers) != len(wanted):
                raise StoreProtocolError(f"{self.url} answered {len(answers)} of {len(wanted)} reads")
            for index, answer in zip(wanted, answers, strict=True):
                records[index] = _record(answer)
        return records

    def close(self) -> None:
        """Close the channels; harmless when done twice."""
        while self._channels:
            self._channels.popitem()[1].close()

    @cached_property
    def _shards(self) -> list[pb.ShardAssignment]:
        address = self.url.hosts[0]
        request = pb.ShardAssignmentsRequest(namespace=self.url.root)
        for layout in self._call(address, "GetShardAssignments", request, pb.ShardAssignments):
            namespace = layout.namespaces.get(self.url.root)
            if namespace is None or not namespace.assignments:
                raise StoreUnsupported(f"Oxia at {address} has no namespace {self.url.root!r}; check the address")
            if namespace.shard_key_router != pb.XXHASH3:
                raise StoreUnsupported(f"{self.url} routes keys by a rule that is not known")
            return sorted(namespace.assignments, key=lambda shard: shard.int32_hash_range.min_hash_inclusive)
        raise StoreUnreachable(f"Oxia at {address} does not name its shards", server=address)

    def _shard_of(self, key: str) -> pb.ShardAssignment:
        number = xxhash.xxh3_64_intdigest(_bytes(key)) & 0xFFFFFFFF
        for shard in self._shards:
            if shard.int32_hash_range.min_hash_inclusive <= number <= shard.int32_hash_range.max_hash_inclusive:
                return shard
        raise StoreProtocolError(f"{self.url}: no shard has the hash {number}")

    def _keys(self, shard: pb.ShardAssignment, after: bytes) -> list[bytes]:
        """Return some keys of a shard that follow a key; none at its end."""
        # A listing that is open while its keys are compared would last too long for its timeout.
        request = pb.ListRequest(shard=shard.shard, start_inclusive=after)
        keys: list[bytes] = []
        for message in self._stream(shard, "List", request, pb.ListResponse):
            keys += [key for key in message.keys if key != after]
            if len(keys) >= _PAGE:
                break
        return keys

    def _stream(
        self, shard: pb.ShardAssignment, method: str, request: Message, answer: type[AnswerT]
    ) -> Iterator[AnswerT]:
        # A standalone server names no leader, or only a port.
        leader = shard.leader if shard.leader and not shard.leader.startswith(":") else self.url.hosts[0]
        yield from self._call(leader, method, request, answer)

    def _call(self, address: str, method: str, request: Message, answer: type[AnswerT]) -> Iterator[AnswerT]:
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._access, _OPTIONS)
        serialize = type(request).SerializeToString
        ask = self._channels[address].unary_stream(f"{_SERVICE}/{method}", serialize, answer.FromString)
        call = ask(request, timeout=_STREAM_PARTS * self._timeout, metadata=self._access.metadata())
        try:
            yield from call
        except grpc.RpcError as error:
            raise _typed(error, address) from error
        finally:
            call.cancel()


def _typed(error: grpc.RpcError, address: str) -> StoreError:
    failed: Any = cast("Any", error)
    text = f"Oxia at {address}: {shown(failed.details() or '')} ({failed.code().name})"
    match failed.code():
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return StoreDenied(f"{text}; check oxia_token", server=address)
        case grpc.StatusCode.UNIMPLEMENTED:
            return StoreUnsupported(f"{text}; needs Oxia 0.16 or newer", server=address)
        case _:
            return StoreUnreachable(text, server=address)


def _record(answer: pb.GetResponse) -> StoredRecord | None:
    if answer.status != pb.OK:
        return None
    version = answer.version
    return StoredRecord(
        value=answer.value,
        version=version.version_id,
        counter=version.modifications_count,
        is_ephemeral=version.HasField("session_id"),
        created_ms=version.created_timestamp,
        changed_ms=version.modified_timestamp,
    )


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogateescape")
