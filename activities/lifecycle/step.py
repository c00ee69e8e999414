"""Activities as functions: `@step(Task)` gives one its name, heartbeats, typed failures, gauges and its attempt.

A step is a plain function whose first argument is the task: one attempt at one activity of a migration, with all that
steps of this migration share. Workflows name the function; a worker finds all steps of a package by `steps_of`.
"""

from __future__ import annotations

import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, get_args, get_type_hints

from temporalio import activity

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.polling import PollResult, poll
from activities.lifecycle.runner import require_open, run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution, InputT
from models.lifecycle.input import WorkflowInput
from spark.engine import SparkEngine

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")
InputT_co = TypeVar("InputT_co", bound=WorkflowInput, covariant=True)


class StepTask(Generic[InputT_co]):
    """One attempt at one step; a context manager, which closes what `self.open` holds.

    Args:
        runtime: what the process shares.
        execution: the input, and where the step stands among all of its migration.
        attempt: which attempt of the migration this is.
        context: of the activity: progress, waits and cancellation.
    """

    #: Of the workflows whose steps these are: `MigrationKind`.
    kind: ClassVar[str]
    #: First part of the activities' names, where it is not the kind.
    prefix: ClassVar[str] = ""
    #: The model of the input, as workers decode it.
    input_type: ClassVar[type[Any]]

    def __init__(
        self, runtime: Runtime, execution: Execution[InputT_co], attempt: Attempt, context: ActivityContext
    ) -> None:
        self.runtime = runtime
        self.execution = execution
        self.input: InputT_co = execution.input
        self.attempt = attempt
        self.context = context
        self.open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.close()

    def begin(self) -> None:
        """Take what the step must hold before it does anything: nothing, unless a migration's task says otherwise."""

    @classmethod
    def attempt_of(cls, execution: Execution[Any]) -> Attempt:
        """Return the attempt that Temporal started here, as claims order it."""
        return this_attempt(execution)

    @classmethod
    def cluster_of(cls, input: Any) -> str:
        """Return the cluster that dashboards show for an input."""
        return input.cluster

    @classmethod
    def failure(cls, error: Exception) -> Exception:
        """Return what a failed step raises in place of its error: the same, unless a migration has types of its own."""
        return error

    @property
    def workflow_id(self) -> str:
        """The migration's workflow id."""
        return self.attempt.workflow_id

    @property
    def run_id(self) -> str:
        """Id of the migration's first run."""
        return self.attempt.run_id

    @property
    def engine(self) -> SparkEngine:
        """The Spark session of this process."""
        return self.runtime.engine

    def tag(self) -> str:
        """Return a tag for Spark jobs, which are stopped when the step is cancelled."""
        return self.runtime.tag(self.run_id, self.context)


TaskT = TypeVar("TaskT", bound=StepTask[Any])


@dataclass(frozen=True)
class Options:
    """How an activity differs from others.

    Attributes:
        name: after the kind in the activity's name; empty for the function's.
        reads_only: whether it writes nowhere, so that late attempts of it do no harm.
        needs_open_run: whether an attempt whose run has ended is refused before it begins.
        observes: whether it lasts for as long as nothing changes, and is served on a queue of its own.
    """

    name: str = ""
    reads_only: bool = False
    needs_open_run: bool = False
    observes: bool = False


class AnyStep(ABC, Generic[ArgsT, ResultT]):
    """An activity that workflows name; see `step`, `polling_step` and `async_step`.

    Args:
        function: what it does; its first argument is not the workflow's.
        task: says which kind of migration it belongs to, and its input.
        options: of the activity.
    """

    def __init__(self, function: Callable[..., Any], task: type[StepTask[Any]], options: Options) -> None:
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        self.function = function
        self.task = task
        self.prefix = f"{task.prefix or task.kind.replace('-', '_')}_"
        self.name = f"{self.prefix}{options.name or function.__name__}"
        self.options = options

    @property
    def answer(self) -> Any:
        """Type of what the activity returns."""
        return get_type_hints(self.function)["return"]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Parameters of the function, the first of which stands for the execution that workflows send."""
        return [*inspect.signature(self.function).parameters.values()]

    def bind(self, runtime: Runtime) -> Callable[..., Awaitable[ResultT]]:
        """Return the activity as a worker registers it."""

        async def run(execution: Execution[Any], *args: Any) -> ResultT:
            return await self.run(runtime, execution, *args)

        # Temporal decodes arguments by names and annotations of the parameters.
        first, *others = self.parameters
        hints = {**get_type_hints(self.function), first.name: Execution[self.task.input_type], "return": self.answer}
        setattr(run, "__signature__", inspect.Signature([first, *others]))  # noqa: B010 - functions declare no such field
        run.__annotations__ = hints
        run.__doc__ = self.function.__doc__
        return activity.defn(name=self.name)(run)

    @abstractmethod
    async def run(self, runtime: Runtime, execution: Execution[Any], *args: Any) -> ResultT:
        """Run the activity's attempt that Temporal started here."""


class Step(AnyStep[ArgsT, ResultT], Generic[TaskT, ArgsT, ResultT]):
    """A function that blocks, in a thread."""

    def __call__(self, task: TaskT, *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> ResultT:
        """Do the work, as part of another step or of a test."""
        return self.function(task, *args, **kwargs)

    async def run(self, runtime: Runtime, execution: Execution[Any], *args: Any) -> ResultT:
        """Run the activity's attempt that Temporal started here.

        Raises:
            ApplicationError: it failed; its type is a `FailureKind`.
        """
        if self.options.needs_open_run:
            await require_open(runtime.client)
        labels = {"kind": self.task.kind, "cluster": self.task.cluster_of(execution.input)}
        return await run_activity(runtime.client, _in_task(self, runtime, execution, args), labels=labels)


class PollingStep(AnyStep[ArgsT, ResultT], Generic[TaskT, ArgsT, ResultT]):
    """A function that looks once, and says what is due or when to look again; see `poll`."""

    def __call__(self, task: TaskT, *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> PollResult[ResultT]:
        """PollResult once."""
        return self.function(task, *args, **kwargs)

    @property
    def answer(self) -> Any:
        """Type of what the activity returns when something is due."""
        return get_args(super().answer)[0]

    async def run(self, runtime: Runtime, execution: Execution[Any], *args: Any) -> ResultT:
        """PollResult once.

        Raises:
            ApplicationError: nothing is due yet, or the look failed.
        """
        return await poll(_in_task(self, runtime, execution, args))


class AsyncStep(AnyStep[ArgsT, ResultT]):
    """A coroutine that does by itself what other steps get: threads, heartbeats, failures. It gets the runtime."""

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """See `AnyStep`; the runtime is no argument of the activity."""
        return super().parameters[1:]

    async def run(self, runtime: Runtime, execution: Execution[Any], *args: Any) -> ResultT:
        """Run the activity's attempt that Temporal started here."""
        return await self.function(runtime, execution, *args)


def step(
    task: type[TaskT], *, name: str = "", reads_only: bool = False, needs_open_run: bool = False
) -> Callable[[Callable[Concatenate[TaskT, ArgsT], ResultT]], Step[TaskT, ArgsT, ResultT]]:
    """Make an activity of a function that blocks and gets a task first.

    Args:
        task: what it gets; opened for each attempt.
        name: after the kind in the activity's name; the function's by default.
        reads_only: whether it writes nowhere, so that late attempts of it do no harm.
        needs_open_run: refuse an attempt whose run has ended: for a step that takes a claim which nobody holds. Others
            find in the claim itself that it is not theirs any more.
    """
    options = Options(name, reads_only=reads_only, needs_open_run=needs_open_run)
    return lambda function: Step(function, task, options)


def polling_step(
    task: type[TaskT], *, name: str = ""
) -> Callable[[Callable[Concatenate[TaskT, ArgsT], PollResult[ResultT]]], PollingStep[TaskT, ArgsT, ResultT]]:
    """Make an activity of a function that looks once and gets a task first; the memory is `task.context.memory`.

    Args:
        task: what it gets; opened for each look.
        name: after the kind in the activity's name; the function's by default.
    """
    return lambda function: PollingStep(function, task, Options(name, reads_only=True))


def async_step(
    task: type[StepTask[InputT]], *, name: str = "", observes: bool = False
) -> Callable[
    [Callable[Concatenate[Runtime, Execution[InputT], ArgsT], Awaitable[ResultT]]], AsyncStep[ArgsT, ResultT]
]:
    """Make an activity of a coroutine that gets the runtime and the execution, and heartbeats by itself.

    Args:
        task: whose kind and input it has.
        name: after the kind in the activity's name; the function's by default.
        observes: whether it lasts for as long as nothing changes; see `observers_queue`.
    """
    return lambda function: AsyncStep(function, task, Options(name, reads_only=True, observes=observes))


def steps_of(package: str) -> list[AnyStep[..., Any]]:
    """Return all steps of a package and of the packages in it, by their names.

    Raises:
        ValueError: two of them have one name.
    """
    top = import_module(package)
    names = [package, *(module.name for module in pkgutil.walk_packages(top.__path__, f"{package}."))]
    found: dict[str, AnyStep[..., Any]] = {}
    for name in names:
        for value in vars(import_module(name)).values():
            # A module that imports a step has it as well.
            if not isinstance(value, AnyStep):
                continue
            step = cast("AnyStep[..., Any]", value)
            if found.setdefault(step.name, step) is not step:
                raise ValueError(f"two steps are called {step.name}: of {step.__module__} and of another module")
    return [found[name] for name in sorted(found)]


def _in_task(
    step: AnyStep[..., Any], runtime: Runtime, execution: Execution[Any], args: Sequence[Any]
) -> Callable[[ActivityContext], Any]:
    attempt = step.task.attempt_of(execution)

    def work(context: ActivityContext) -> Any:
        try:
            with step.task(runtime, execution, attempt, context) as task:
                task.begin()
                return step.function(task, *args)
        except Exception as error:
            if (failure := step.task.failure(error)) is error:
                raise
            raise failure from error

    return work
