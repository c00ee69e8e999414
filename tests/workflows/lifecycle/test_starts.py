"""Starts that cannot be used end at once, with any input that Temporal's command line sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.names import TASK_QUEUE
from tests.workflows.lifecycle.harness import Harness, failed_tasks
from worker.catalog import ALL, KINDS, Kind

_WRONG: list[tuple[tuple[Any, ...], str]] = [
    ((), "the input is missing"),
    (({}, {}), "expected one input, got 2"),
    ((None,), "the input is not a JSON object, but null"),
    (("prod",), "the input is not a JSON object, but a text"),
    (([1],), "the input is not a JSON object, but a list"),
    ((3,), "the input is not a JSON object, but a number"),
    (({},), "the input is wrong: cluster: this field is needed"),
    (({"cluster": 3},), "the input is wrong: cluster: Input should be a valid string"),
    (({"input": {}},), "the input is wrong: cluster: this field is needed; "),
    (({"input": {"cluster": "prod"}, "state": {"verbs": {}}},), "the input is wrong: cluster: this field is needed; "),
    (({"input": {"cluster": "prod"}, "state": None},), "the input is wrong: cluster: this field is needed; "),
]
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)


async def _failure(stage: Harness, workflow: str, *args: Any) -> ApplicationError:
    """Start a workflow, and wait for its end; the failure, as the history has it."""
    name = f"wrong/{next(stage.clusters)}"
    handle = await stage.client.start_workflow(workflow, args=args, id=name, task_queue=TASK_QUEUE)
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(handle.result(), 120)
    events = (await handle.fetch_history()).events
    assert failed_tasks(events) == []
    failure = events[-1].workflow_execution_failed_event_attributes.failure
    assert (failure.stack_trace, failure.HasField("cause"), failure.application_failure_info.non_retryable) == (
        "",
        False,
        True,
    )
    assert "\n" not in failure.message
    assert "http" not in failure.message
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == FailureKind.INVALID_INPUT
    return cause


@every_kind
@pytest.mark.parametrize(("args", "said"), _WRONG)
async def test_a_wrong_start_ends(stage: Harness, kind: Kind[Any], args: tuple[Any, ...], said: str) -> None:
    """A start without an input, or with another value, fails at once, and the failure names all fields."""
    message = (await _failure(stage, kind.workflow, *args)).message
    assert message.startswith(said)
    assert set(kind.input.model_fields) <= set(message.replace(",", " ").split())


async def test_an_unknown_type_ends(stage: Harness) -> None:
    """A workflow type that does not exist fails at once, and the failure names those that do."""
    message = (await _failure(stage, "MetadataMigration", {"cluster": "prod"})).message
    valid = ", ".join(sorted(kind.workflow for kind in ALL.values()))
    assert message == f"there is no workflow type 'MetadataMigration'. Cure: start one of these: {valid}"
