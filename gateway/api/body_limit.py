"""How much a request may send; it is read before anybody looks at its token."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 1 << 20
"""Bytes; a thousand names of subscriptions are a fifth of it."""


class BodyLimit:
    """Refuses requests that send more.

    Args:
        app: what is protected.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        came = 0

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > LARGEST_BODY:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send at most {LARGEST_BODY:,} bytes")
            return message

        await self._app(scope, counted, send)
