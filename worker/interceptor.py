"""The interceptor of a worker: its workflows learn who sent a signal or update, and what the namespace lacks."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import cast

from temporalio.worker import Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from models.lifecycle.names import ATTRIBUTES_MISSING
from workflows.lifecycle.caller import CallerInterceptor


class WorkflowInterceptor(Interceptor):
    """Interceptor of a worker's workflows.

    Args:
        attributes_missing: whether the namespace lacks search attributes of migrations.
    """

    def __init__(self, *, attributes_missing: bool) -> None:
        self._attributes_missing = attributes_missing

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Return the interceptor of a workflow's calls, and give workflows a function."""
        functions = cast("MutableMapping[str, Callable[[], bool]]", input.unsafe_extern_functions)  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation
        functions[ATTRIBUTES_MISSING] = lambda: self._attributes_missing
        return CallerInterceptor
