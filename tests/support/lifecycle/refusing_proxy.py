"""A proxy in front of Temporal that refuses services, as Temporal Cloud and roles without admin rights do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import grpc.aio

OPERATOR_SERVICE = "/temporal.api.operatorservice.v1.OperatorService/"

_ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class _Proxy(grpc.GenericRpcHandler):
    """Sends calls on as they are, except those of one service.

    Args:
        channel: to Temporal.
        refused: prefixes of the methods that are refused.
        status: with which they are refused.
    """

    def __init__(self, channel: grpc.aio.Channel, refused: tuple[str, ...], status: grpc.StatusCode) -> None:
        self._channel = channel
        self._refused = refused
        self._status = status
        self.refusals: list[str] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return what handles a call; all methods of Temporal have one request and one answer."""
        method = handler_call_details.method
        send = cast("Callable[..., Any]", self._channel.unary_unary(method))

        async def handle(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            if method.startswith(self._refused):
                self.refusals.append(method.rpartition("/")[2])
                await context.abort(self._status, "Request unauthorized.")
            metadata = [pair for pair in context.invocation_metadata() or () if not pair[0].startswith("grpc-")]
            remaining = context.time_remaining()
            try:
                return cast("bytes", await send(request, timeout=remaining, metadata=cast("Any", metadata)))
            except grpc.aio.AioRpcError as error:
                context.set_trailing_metadata(tuple(error.trailing_metadata()))
                await context.abort(error.code(), error.details() or "")

        return cast("Any", grpc).unary_unary_rpc_method_handler(handle)


@asynccontextmanager
async def refusing_proxy(
    address: str,
    *,
    refused: tuple[str, ...] = (OPERATOR_SERVICE,),
    status: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED,
) -> AsyncGenerator[tuple[str, list[str]]]:
    """Run a proxy; yield its address, and the methods that it has refused so far.

    Args:
        address: of Temporal.
        refused: prefixes of the methods that are refused.
        status: with which they are refused.
    """
    async with grpc.aio.insecure_channel(address, options=_ANY_SIZE) as channel:
        proxy = _Proxy(channel, refused, status)
        server = grpc.aio.server(options=_ANY_SIZE)
        server.add_generic_rpc_handlers([proxy])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}", proxy.refusals
        finally:
            await server.stop(grace=None)
