"""Names the sender in each start, signal and update that a client of this project sends.

A workflow does not see who sent it something; only events of the history have the identity of the client. So the sender
is also a header, which a worker reads. It is a claim: a client can send any header.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)
from temporalio.converter import JSONPlainPayloadConverter

from models.lifecycle.names import CALLER_HEADER

_acting_for: ContextVar[str] = ContextVar("acting_for", default="")


def user_identity() -> str:
    """Return the identity of a command: its user and machine, as the `temporal` command line names them."""
    try:
        user = getpass.getuser()
    # In a container the user often has no name.
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"pulsar-migrate:{user}@{socket.gethostname()}"


def server_identity() -> str:
    """Return the identity of a process that serves, in the form of Temporal's SDK."""
    return f"{os.getpid()}@{socket.gethostname()}"


def acting_for() -> str:
    """Return the sender for whom this process acts now; empty for itself."""
    return _acting_for.get()


@contextmanager
def act_for(sender: str) -> Generator[None]:
    """Send signals and updates in the name of a sender that this process has authenticated."""
    token = _acting_for.set(sender)
    try:
        yield
    finally:
        _acting_for.reset(token)


class NamesSender(Interceptor):
    """Interceptor of a client.

    Args:
        identity: sender where the process acts for itself; that of the client.
    """

    def __init__(self, identity: str) -> None:
        self._identity = identity

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK's own name
        """Return the interceptor of the client's calls."""
        return _Outbound(next, self._identity)


class _Outbound(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor, identity: str) -> None:
        super().__init__(following)
        self._identity = identity

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        input.headers = self._named(input.headers)
        return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        input.headers = self._named(input.headers)
        await super().signal_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        input.headers = self._named(input.headers)
        return await super().start_workflow_update(input)

    def _named(self, headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
        name = JSONPlainPayloadConverter().to_payload(_acting_for.get() or self._identity)
        return {**headers, CALLER_HEADER: name} if name is not None else headers
