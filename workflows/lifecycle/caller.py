"""The sender of the signal or update that a handler runs for, as the sender names itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ExecuteWorkflowInput, HandleSignalInput, HandleUpdateInput, WorkflowInboundInterceptor

from models.lifecycle.names import CALLER_HEADER
from models.text import shown
from workflows.lifecycle.failures import failure_of
from workflows.lifecycle.log import log

UNNAMED = "an unnamed client of Temporal"
"""Sender of a signal or update without a header, as the `temporal` command line sends it."""

_LONGEST_HEADER, _LONGEST_NAME = 4_000, 200

_caller: ContextVar[str] = ContextVar("caller", default="")
_recorded: ContextVar[list[str]] = ContextVar("recorded")
_starter: ContextVar[str] = ContextVar("starter", default="")


class Audited(Protocol):
    """A workflow that keeps requests in an audit trail."""

    def records_refusals(self) -> bool:
        """Return whether another refused update may enter the history."""
        ...

    def record(self, what: str, *, accepted: bool, result: str) -> None:
        """Add the request that a handler runs for to the audit trail, and call `recorded`."""
        ...


def sender() -> str:
    """Return the sender's name; empty for an unnamed sender, and outside of handlers.

    Only the history has evidence: Temporal sets the identity of its events, and the sender chose this name itself.
    """
    return "" if (caller := _caller.get()) == UNNAMED else caller


def starter() -> str:
    """Return the name of the sender who started this run; empty if the sender gave none."""
    return _starter.get()


def recorded(what: str) -> None:
    """Record that the running handler has recorded its request itself, in its own words."""
    if (records := _recorded.get(None)) is not None:
        records.append(what)


def by() -> str:
    """Return ` by <sender>`, to follow other words; empty outside of handlers."""
    caller = _caller.get()
    return f" by {caller}" if caller else ""


class CallerInterceptor(WorkflowInboundInterceptor):
    """Reads the sender's name from the header before a handler runs; each handler has its own context.

    Updates of an audited workflow are recorded, also those that their validator refuses.
    """

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        """Run the workflow."""
        _starter.set(named_caller(input.headers))
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        """Handle a signal."""
        _caller.set(named_caller(input.headers) or UNNAMED)
        await super().handle_signal(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        """Refuse an update before it enters the history, unless the workflow records the refusal."""
        _caller.set(named_caller(input.headers) or UNNAMED)
        try:
            super().handle_update_validator(input)
        except ApplicationError as error:
            audited = _audited()
            if audited is None or not audited.records_refusals():
                log(error.message, logging.WARNING, update=input.update, accepted=False)
                raise

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        """Handle an update."""
        _caller.set(named_caller(input.headers) or UNNAMED)
        audited, records = _audited(), list[str]()
        _recorded.set(records)
        try:
            # Temporal calls the validator only once, and not when it replays.
            super().handle_update_validator(input)
            result = await super().handle_update_handler(input)
        except FailureError as error:
            # Refused, or a step of the update has failed.
            why = failure_of(error).why
            log(why, logging.WARNING, update=input.update, accepted=False)
            if audited is not None and not records:
                audited.record(input.update, accepted=False, result=why)
            raise
        if audited is not None and not records:
            audited.record(input.update, accepted=True, result="done")
        return result


def _audited() -> Audited | None:
    instance: Any = workflow.instance()
    return instance if hasattr(instance, "records_refusals") else None


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
