"""Limits of the bodies of requests: bytes and time."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1 << 20
"""Bytes; a thousand names of subscriptions need a fifth of it."""

BODY_SECONDS = 10.0
"""Longest time in which a body must arrive."""


class BodyLimit:
    """Refuses requests whose body is too large or too slow.

    Args:
        app: the protected application.
        seconds: longest time for a body.
    """

    def __init__(self, app: ASGIApp, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self._seconds
        received, more = 0, True

        async def limited() -> Message:
            nonlocal received, more
            # After the body, an application waits for the client's disconnection.
            try:
                async with asyncio.timeout_at(deadline if more else None):
                    message = await receive()
            except TimeoutError:
                reason = f"the body did not arrive within {self._seconds:.0f} s"
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, reason, {"Connection": "close"}) from None
            received += len(message.get("body", b""))
            more = more and bool(message.get("more_body", False))
            if received > MAX_BODY_BYTES:
                reason = f"send at most {MAX_BODY_BYTES:,} bytes"
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason, {"Connection": "close"})
            return message

        await self._app(scope, limited, send)
