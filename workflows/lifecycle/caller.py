"""The sender of the signal or update that a handler runs for, as the sender names itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.worker import HandleSignalInput, HandleUpdateInput, WorkflowInboundInterceptor

from models.lifecycle.names import CALLER_HEADER
from models.text import shown

UNNAMED = "an unnamed client of Temporal"
"""Sender of a signal or update without a header, as the `temporal` command line sends it."""

_LONGEST_HEADER, _LONGEST_NAME = 4_000, 200

_caller: ContextVar[str] = ContextVar("caller", default="")


def by() -> str:
    """Return ` by <sender>`, to follow other words; empty outside of handlers.

    Only the history has evidence: Temporal sets the identity of its events, and the sender chose this name itself.
    """
    caller = _caller.get()
    return f" by {caller}" if caller else ""


class CallerInterceptor(WorkflowInboundInterceptor):
    """Reads the sender's name from the header before a handler runs; each handler has its own context."""

    async def handle_signal(self, input: HandleSignalInput) -> None:
        """Handle a signal."""
        _caller.set(named_caller(input.headers) or UNNAMED)
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        """Handle an update."""
        _caller.set(named_caller(input.headers) or UNNAMED)
        return await super().handle_update_handler(input)


def named_caller(headers: Mapping[str, Payload]) -> str:
    """Return the name in a header; empty if there is none that can be read, as a client may send any header."""
    payload = headers.get(CALLER_HEADER)
    if payload is None or len(payload.data) > _LONGEST_HEADER:
        return ""
    try:
        name: Any = json.loads(payload.data)
    except (ValueError, RecursionError):
        return ""
    return shown(name, _LONGEST_NAME) if isinstance(name, str) else ""
