"""An Oxia as it was before it could keep versions: a real server behind a proxy that takes the new abilities away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc

from clients.oxia import oxia_pb2 as pb
from tests.support.waiting import timeout_for

_OLD_NAME = "/io.streamnative.oxia.proto.OxiaClient/"
_LIMIT = 60.0


class OldOxia(grpc.GenericRpcHandler):
    """Passes calls on; drops version overrides silently, and does not know the service's newer name.

    Args:
        oxia_url: the real server.
    """

    def __init__(self, oxia_url: str) -> None:
        address, _, namespace = oxia_url.removeprefix("oxia://").partition("/")
        self._channel = grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),))
        self._server = grpc.server(ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers((self,))
        self.url = f"oxia://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}/{namespace}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait(timeout_for(10))
        self._channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return a handler for the older name only; all calls are byte streams, which is the same on the wire."""
        method: str = handler_call_details.method
        if not method.startswith(_OLD_NAME):
            return None
        onward = self._channel.stream_stream(method, _same, _same)
        rewrite = _without_overrides if method.rpartition("/")[2].startswith("Write") else _same
        sent_along = handler_call_details.invocation_metadata

        def serve(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            call: Any = onward(map(rewrite, requests), metadata=_own(sent_along), timeout=_LIMIT)
            context.add_callback(call.cancel)
            try:
                yield from map(_without_leaders, call) if method.endswith("/GetShardAssignments") else call
            except grpc.RpcError:
                context.abort(call.code(), call.details())

        return grpc.stream_stream_rpc_method_handler(serve, _same, _same)


def _same(message: bytes) -> bytes:
    return message


def _without_overrides(message: bytes) -> bytes:
    request = pb.WriteRequest.FromString(message)
    for put in request.puts:
        put.ClearField("override_version_id")
        put.ClearField("override_modifications_count")
    return request.SerializeToString()


def _without_leaders(message: bytes) -> bytes:
    """Return a server that names no leader is the leader itself, so that clients stay with the proxy."""
    layout = pb.ShardAssignments.FromString(message)
    for namespace in layout.namespaces.values():
        for shard in namespace.assignments:
            shard.leader = ""
    return layout.SerializeToString()


def _own(metadata: Any) -> tuple[tuple[str, str], ...]:
    """Return the keys of a call's metadata that Oxia reads."""
    wanted: Callable[[str], bool] = {"namespace", "shard-id"}.__contains__
    return tuple((key, value) for key, value in metadata if wanted(key))
