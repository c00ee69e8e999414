"""The probe of the target against servers that cannot serve as one.

The server here is a small one in this process that does what Oxia 0.14.0 was seen to do: it takes puts with version
overrides and ignores them, and knows the service by its older name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from clients.errors import StoreUnreachable, StoreUnsupported
from clients.oxia import oxia_pb2 as pb
from clients.oxia import probe_target, speaks_v1
from clients.oxia.connection import SERVICE
from models.store_url import StoreUrl, parse_store_url


class OldServer:
    """One shard, keys in natural order.

    Attributes:
        records: key to value and version.
        keeps_versions: whether it obeys the overrides after all.
    """

    def __init__(self, *, keeps_versions: bool) -> None:
        self.records: dict[bytes, tuple[bytes, pb.Version]] = {}
        self.keeps_versions = keeps_versions
        self.written = 0
        self._server = grpc.server(ThreadPoolExecutor(8))
        handlers = {
            "GetShardAssignments": _handler(
                grpc.unary_stream_rpc_method_handler, self._layout, pb.ShardAssignmentsRequest
            ),
            "WriteStream": _handler(grpc.stream_stream_rpc_method_handler, self._write, pb.WriteRequest),
            "Read": _handler(grpc.unary_stream_rpc_method_handler, self._read, pb.ReadRequest),
            "List": _handler(grpc.unary_stream_rpc_method_handler, self._list, pb.ListRequest),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.url = parse_store_url(f"oxia://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}")
        self._server.start()

    def stop(self) -> None:
        """End it at once; harmless when done twice."""
        self._server.stop(None).wait()

    def _layout(self, request: pb.ShardAssignmentsRequest, _context: object) -> Iterator[pb.ShardAssignments]:
        whole = pb.Int32HashRange(min_hash_inclusive=0, max_hash_inclusive=0xFFFFFFFF)
        shard = pb.ShardAssignment(shard=0, leader="", int32_hash_range=whole)
        layout = pb.NamespaceShardsAssignment(assignments=[shard], shard_key_router=pb.XXHASH3)
        yield pb.ShardAssignments(namespaces={request.namespace: layout})

    def _write(self, requests: Iterator[pb.WriteRequest], _context: object) -> Iterator[pb.WriteResponse]:
        for request in requests:
            response = pb.WriteResponse()
            for put in request.puts:
                version = pb.Version(version_id=self.written)
                if self.keeps_versions:
                    version = pb.Version(
                        version_id=put.override_version_id, modifications_count=put.override_modifications_count
                    )
                self.written += 1
                self.records[put.key] = (put.value, version)
                response.puts.add(version=version)
            for delete in request.deletes:
                record = self.records.pop(delete.key, None)
                response.deletes.add(status=pb.OK if record else pb.KEY_NOT_FOUND)
            yield response

    def _read(self, request: pb.ReadRequest, _context: object) -> Iterator[pb.ReadResponse]:
        response = pb.ReadResponse()
        for get in request.gets:
            value, version = self.records[get.key]
            response.gets.add(value=value, version=version)
        yield response

    def _list(self, request: pb.ListRequest, _context: object) -> Iterator[pb.ListResponse]:
        keys = [key for key in self.records if request.start_inclusive <= key < request.end_exclusive]
        yield pb.ListResponse(keys=sorted(keys))


def _handler(
    kind: Callable[..., grpc.RpcMethodHandler[Any, Any]], method: Callable[..., Any], request: type[Message]
) -> grpc.RpcMethodHandler[Any, Any]:
    return kind(method, request_deserializer=request.FromString, response_serializer=_serialize)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


@pytest.fixture(params=[False, True], ids=["ignores-versions", "keeps-versions"])
def server(request: pytest.FixtureRequest) -> Iterator[OldServer]:
    """A server that ignores versions, and one that keeps them; both list no children."""
    running = OldServer(keeps_versions=request.param)
    yield running
    running.stop()


def test_target_is_refused_and_left_clean(server: OldServer) -> None:
    """A server that ignores overrides, or lists no children, is refused by name, and no scratch key stays."""
    cause = "does not sort the keys" if server.keeps_versions else "ignores version overrides"
    with pytest.raises(StoreUnsupported, match=f"{server.url.hosts[0]} {cause}"):
        probe_target(server.url, timeout=60)
    assert server.written >= 5
    assert server.records == {}


def test_older_name_alone_is_a_sign_that_writes_nothing(server: OldServer) -> None:
    """A server that does not know the service's newer name is recognized without a write."""
    assert not speaks_v1(server.url, timeout=60)
    assert server.written == 0


@pytest.mark.parametrize("probe", [probe_target, speaks_v1])
def test_a_port_without_listener_is_unreachable(probe: Callable[[StoreUrl], object], server: OldServer) -> None:
    """A port without a listener is reported at once, with its address."""
    server.stop()
    with pytest.raises(StoreUnreachable, match=server.url.hosts[0]):
        probe(server.url)
