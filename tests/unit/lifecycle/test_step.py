"""Functions as activities: their names, their arguments as Temporal decodes them, and how a worker finds them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, cast

import pytest
from temporalio import activity

from activities.lifecycle.polling import PollResult
from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import StepTask, async_step, polling_step, step, steps_of
from models.lifecycle.execution import Execution
from models.metadata_store.input import MetadataStoreInput


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
