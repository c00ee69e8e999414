"""Activities as functions: `@step(Task)` adds the activity's name, heartbeats, typed failures and the attempt.

A step is a plain function. Its first argument is the task: one attempt at one activity of a migration, with what the
migration's steps share. Workflows name the function; a worker registers all steps of a package by `steps_of`.
"""

from __future__ import annotations

import inspect
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, get_args, get_type_hints

from structlog.contextvars import bound_contextvars
from temporalio import activity

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.pacer import Brakes, Pacer, Throttle
from activities.lifecycle.parallel import ItemT, ResultT, map_concurrent
from activities.lifecycle.polling import PollResult, poll
from activities.lifecycle.runner import require_open, run_activity, this_attempt
from activities.lifecycle.runtime import Runtime
from clients.load import Sources
from models.lifecycle.auto_throttle import AutoThrottle, CopyOrders
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution, InputT
from models.lifecycle.input import WorkflowInput
from models.lifecycle.report import PrecheckResult
from models.lifecycle.status import WaitKind
from spark.engine import SparkEngine
from spark.run import RunStopped

ArgsT = ParamSpec("ArgsT")
PrecheckT = TypeVar("PrecheckT", bound=PrecheckResult)
InputT_co = TypeVar("InputT_co", bound=WorkflowInput, covariant=True)


_LOOK_AT_STOP_FILE = 2.0
"""Seconds between two looks at the stop file."""


class StepTask(Generic[InputT_co]):
    """One attempt at one step; a context manager, which closes what `self.open` holds.

    Args:
        runtime: of the process.
        execution: the input, and the numbers that order the step among all steps of its migration.
        attempt: which attempt of the migration this is.
        context: of the activity: progress, waits and cancellation.
    """

    #: `MigrationKind` of the workflows that call these steps.
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
        self._tag = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.close()

    def begin(self) -> None:
        """Acquire what the step must hold before it starts; a task that needs a claim overrides this."""

    def wait_while_stopped(self) -> timedelta:
        """Wait while the stop switch is set, and return how long; call it before an item of a wave changes anything."""
        begun = time.monotonic()
        while reason := self.runtime.stopped_because:
            self.context.waiting_for(WaitKind.STOP_SWITCH, reason, action="remove the stop file to continue")
            self.context.pause(_LOOK_AT_STOP_FILE)
        self.context.clear_waiting()
        return timedelta(seconds=time.monotonic() - begun)

    @classmethod
    def attempt_of(cls, execution: Execution[Any]) -> Attempt:
        """Return the attempt that Temporal started here, as claims order it."""
        return this_attempt(execution)

    @classmethod
    def failure(cls, error: Exception) -> Exception:
        """Return the error that a failed step raises; a task with failure types of its own overrides this."""
        return error

    @property
    def workflow_id(self) -> str:
        """The migration's workflow id."""
        return self.attempt.workflow_id

    @property
    def run_id(self) -> str:
        """The id of the migration's first run."""
        return self.attempt.run_id

    @property
    def engine(self) -> SparkEngine:
        """The Spark session of this process."""
        return self.runtime.engine

    def each(self, items: Iterable[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
        """Return the results of a function for many items, some at the same time; see `parallel.map_concurrent`."""
        return map_concurrent(self.context, items, work)

    def tag(self) -> str:
        """Return the tag of the step's Spark jobs, which are stopped when the step is cancelled."""
        self._tag = self._tag or self.runtime.tag(self.run_id, self.context)
        return self._tag

    @contextmanager
    def paced(self, throttle: AutoThrottle | None, tell: Callable[[str], object], credentials: str) -> Generator[None]:
        """Hold the step's Spark jobs in the block while the workflow or the automatic throttle orders that.

        Args:
            throttle: of the input.
            tell: writes `held` into the claim.
            credentials: name of those whose TLS settings the sources of the throttle need.

        Raises:
            StoreError: another attempt has taken over, or the claim cannot be written.
        """
        tag, engine, runtime = self.tag(), self.engine, self.runtime
        brakes = Brakes(
            hold=partial(engine.hold, tag),
            release=partial(engine.release, tag),
            claim_held=partial(tell, self.attempt.mark),
            claim_free=partial(tell, ""),
            stop=partial(engine.cancel, tag),
        )
        # A batch has claims of its migration, which orders what all batches do.
        workflows = (self.attempt.workflow_id, self.context.workflow_id or self.attempt.workflow_id)
        with Pacer(
            lambda: runtime.copy_orders(workflows),
            brakes,
            self.context,
            partial(self._open_sources, credentials),
            CopyOrders(throttle=throttle),
        ) as pacer:
            pacer.start()
            try:
                yield
            except RunStopped:
                if pacer.failure is not None:
                    raise pacer.failure from None
                raise
            pacer.finish()

    def with_throttle_warnings(self, result: PrecheckT, throttle: AutoThrottle | None, credentials: str) -> PrecheckT:
        """Return the result of a precheck, with a warning for each source that would stop the copy now.

        Args:
            result: of the precheck.
            throttle: of the input.
            credentials: as in `paced`.
        """
        if throttle is None:
            return result
        try:
            with Throttle(throttle, partial(self._open_sources, credentials)) as sources:
                objecting = sources.objections()
        except OSError as error:
            objecting = [f"the files of the TLS settings cannot be used: {error}"]
        warnings = (f"auto_throttle would stop the copy now: {why}" for why in objecting)
        return result.model_copy(update={"warnings": (*result.warnings, *warnings)})

    def _open_sources(self, credentials: str, wanted: AutoThrottle) -> Sources:
        admin, stores = self.runtime.admin_of(credentials), self.runtime.stores_of(credentials)
        return Sources(wanted, admin=admin.tls, zookeeper=stores.common.zookeeper)


TaskT = TypeVar("TaskT", bound=StepTask[Any])


@dataclass(frozen=True)
class Options:
    """Options of an activity.

    Attributes:
        name: follows the kind in the activity's name; the function's name where empty.
        reads_only: it writes nothing, so late attempts are harmless.
        needs_open_run: an attempt whose run has ended is refused before it starts.
        observes: it runs until something changes, on a queue of its own.
    """

    name: str = ""
    reads_only: bool = False
    needs_open_run: bool = False
    observes: bool = False


class AnyStep(ABC, Generic[ArgsT, ResultT]):
    """An activity that workflows name; see `step`, `polling_step` and `async_step`.

    Args:
        function: does the work; its first argument does not come from the workflow.
        task: has the kind of migration, and the type of its input.
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
        """Type of the activity's result."""
        return get_type_hints(self.function)["return"]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Parameters of the function; the first one becomes the execution that workflows send."""
        return [*inspect.signature(self.function).parameters.values()]

    def bind(self, runtime: Runtime) -> Callable[..., Awaitable[ResultT]]:
        """Return the activity as a worker registers it."""

        async def run(execution: Execution[Any], *args: Any) -> ResultT:
            info = activity.info()
            # Threads of the step inherit them.
            with bound_contextvars(
                migration=info.workflow_id,
                run=execution.run_id,
                phase=execution.phase,
                step=self.name,
                attempt=info.attempt,
            ):
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
        """Call the function, as part of another step or of a test."""
        return self.function(task, *args, **kwargs)

    async def run(self, runtime: Runtime, execution: Execution[Any], *args: Any) -> ResultT:
        """Run the activity's attempt that Temporal started here.

        Raises:
            ApplicationError: it failed; its type is a `FailureKind`.
        """
        if self.options.needs_open_run:
            await require_open(runtime.client)
        return await run_activity(runtime.client, _in_task(self, runtime, execution, args))


class PollingStep(AnyStep[ArgsT, ResultT], Generic[TaskT, ArgsT, ResultT]):
    """A function that polls once, and returns what is due or when to poll again; see `poll`."""

    def __call__(self, task: TaskT, *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> PollResult[ResultT]:
        """Poll once."""
        return self.function(task, *args, **kwargs)

    @property
    def answer(self) -> Any:
        """Type of the activity's result when something is due."""
        return get_args(super().answer)[0]

    async def run(self, runtime: Runtime, execution: Execution[Any], *args: Any) -> ResultT:
        """Poll once.

        Raises:
            ApplicationError: nothing is due yet, or the check failed.
        """
        return await poll(_in_task(self, runtime, execution, args))


class AsyncStep(AnyStep[ArgsT, ResultT]):
    """A coroutine that gets the runtime, and handles threads, heartbeats and failures itself."""

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Parameters as in `AnyStep`, without the runtime, which is not an argument of the activity."""
        return super().parameters[1:]

    async def run(self, runtime: Runtime, execution: Execution[Any], *args: Any) -> ResultT:
        """Run the activity's attempt that Temporal started here."""
        return await self.function(runtime, execution, *args)


def step(
    task: type[TaskT], *, name: str = "", reads_only: bool = False, needs_open_run: bool = False
) -> Callable[[Callable[Concatenate[TaskT, ArgsT], ResultT]], Step[TaskT, ArgsT, ResultT]]:
    """Make an activity of a blocking function whose first argument is a task.

    Args:
        task: opened for each attempt.
        name: follows the kind in the activity's name; the function's name by default.
        reads_only: it writes nothing, so late attempts are harmless.
        needs_open_run: refuse an attempt whose run has ended, for a step that takes a free claim. Other steps see from
            the claim that their run does not hold it any more.
    """
    options = Options(name, reads_only=reads_only, needs_open_run=needs_open_run)
    return lambda function: Step(function, task, options)


def polling_step(
    task: type[TaskT], *, name: str = ""
) -> Callable[[Callable[Concatenate[TaskT, ArgsT], PollResult[ResultT]]], PollingStep[TaskT, ArgsT, ResultT]]:
    """Make a polling activity of a function whose first argument is a task; its memory is `task.context.memory`.

    Args:
        task: opened for each poll.
        name: follows the kind in the activity's name; the function's name by default.
    """
    return lambda function: PollingStep(function, task, Options(name, reads_only=True))


def async_step(
    task: type[StepTask[InputT]], *, name: str = "", observes: bool = False
) -> Callable[
    [Callable[Concatenate[Runtime, Execution[InputT], ArgsT], Awaitable[ResultT]]], AsyncStep[ArgsT, ResultT]
]:
    """Make an activity of a coroutine that gets the runtime and the execution, and heartbeats by itself.

    Args:
        task: has the kind and the type of the input.
        name: follows the kind in the activity's name; the function's name by default.
        observes: it runs until something changes; see `observers_queue`.
    """
    return lambda function: AsyncStep(function, task, Options(name, reads_only=True, observes=observes))


def steps_of(package: str) -> list[AnyStep[..., Any]]:
    """Return all steps of a package and its subpackages, sorted by name.

    Raises:
        ValueError: two steps have the same name.
    """
    top = import_module(package)
    names = [package, *(module.name for module in pkgutil.walk_packages(top.__path__, f"{package}."))]
    steps: dict[str, AnyStep[..., Any]] = {}
    for name in names:
        for value in vars(import_module(name)).values():
            # A step is also an attribute of each module that imports it.
            if not isinstance(value, AnyStep):
                continue
            step = cast("AnyStep[..., Any]", value)
            if steps.setdefault(step.name, step) is not step:
                raise ValueError(f"two steps are called {step.name}: of {step.__module__} and of another module")
    return [steps[name] for name in sorted(steps)]


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
