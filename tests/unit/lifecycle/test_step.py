"""Functions as activities: their names, their arguments as Temporal decodes them, and how a worker finds them."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, cast

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities.lifecycle.polling import PollResult
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask, async_step, polling_step, step, steps_of
from models.lifecycle.execution import Execution
from models.metadata_store.input import MetadataStoreInput
from tests.support.lifecycle.log_lines import log_lines


class _Task(StepTask[MetadataStoreInput]):
    kind = "small-migration"
    input_type = MetadataStoreInput


@step(_Task, reads_only=True)
def count(task: _Task, words: list[str], least: int = 1) -> int:
    """Count words."""
    del task
    return max(len(words), least)


@polling_step(_Task, name="wait")
def wait_for_word(task: _Task) -> PollResult[str]:
    """Look for a word."""
    del task
    return PollResult()


@async_step(_Task)
async def follow(runtime: Runtime, execution: Execution[MetadataStoreInput], words: list[str]) -> int:
    """Follow words."""
    del runtime, execution
    return len(words)


def definition_of(activity_function: Any) -> Any:
    """Return the definition that Temporal's worker reads."""
    # The SDK has no public way to ask for it.
    return activity.defn.__globals__["_Definition"].must_from_callable(activity_function)


def test_a_step_is_decoded_like_its_function() -> None:
    """A worker decodes the execution with the task's input, then the function's arguments, and knows its result."""
    bound = definition_of(count.bind(cast("Any", None)))
    assert bound.name == "small_migration_count"
    assert bound.arg_types == [Execution[MetadataStoreInput], list[str], int]
    assert bound.ret_type is int
    assert definition_of(wait_for_word.bind(cast("Any", None))).ret_type is str


def test_a_coroutine_is_decoded_without_the_runtime() -> None:
    """The runtime is the worker's: a workflow sends the execution first, and then the other arguments."""
    bound = definition_of(follow.bind(cast("Any", None)))
    assert bound.name == "small_migration_follow"
    assert bound.arg_types == [Execution[MetadataStoreInput], list[str]]
    assert bound.ret_type is int


def test_a_step_is_a_function_still() -> None:
    """Another step, or a test, calls it with a task."""
    assert count(cast("Any", None), ["a", "b"]) == 2
    assert count.options.reads_only


def test_two_steps_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker would run one of them in place of the other."""
    module = ModuleType("small_package")
    module.__path__ = []
    module.first, module.second = count, step(_Task, name="count")(count.function)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "small_package", module)
    with pytest.raises(ValueError, match="two steps are called small_migration_count"):
        steps_of("small_package")


@async_step(_Task)
async def tell(runtime: Runtime, execution: Execution[MetadataStoreInput]) -> None:
    """Write a line in a thread."""
    del runtime, execution
    await asyncio.to_thread(logging.getLogger("clients.trial").warning, "the store is slow")


async def test_lines_of_a_step_name_it() -> None:
    """Each line that is written during a step, in its threads too, has migration, run, phase, step and attempt."""
    given = MetadataStoreInput(cluster="prod", source="zk:zk:2181", target="oxia://oxia:6648")
    execution = Execution(
        input=given, run_id="run-1", started=datetime(2026, 1, 1, tzinfo=UTC), epoch=1, phase="PRE_COPY"
    )
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_id="metadata-store/prod", attempt=3)
    with log_lines() as lines:
        await environment.run(tell.bind(cast("Any", None)), execution)
        logging.getLogger("clients.trial").warning("afterwards")
    fields = {"migration": "metadata-store/prod", "run": "run-1", "phase": "PRE_COPY", "step": tell.name, "attempt": 3}
    assert len(lines.of(event="the store is slow", **fields)) == 1
    [after] = lines.of(event="afterwards")
    assert not fields.keys() & after.keys()
