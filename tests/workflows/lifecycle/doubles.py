"""Steps, doubled: they record their calls and answer by a script.

Stores are doubled here because this tier proves the orchestration: which step runs when, and what follows from its
answer, its failure, its silence. The steps themselves are proven on real stores in the integration tier.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, cast

from temporalio import activity

from activities.hooks.activities import HookActivities
from activities.lifecycle.step import AnyStep, steps_of
from models.hooks import Hook
from models.lifecycle.execution import Execution
from models.lifecycle.input import WorkflowInput
from worker.catalog import ALL

OWN_QUEUE = "pulsar-migrate@own"
"""The queue of the one worker that watches the source."""

_TIMEOUT = 180.0


class Call(NamedTuple):
    """One attempt of a step: name, arguments after the plan, the queue from which it was taken, and the plan."""

    step: str
    args: tuple[Any, ...]
    queue: str
    input: WorkflowInput


class Hang:
    """A step that continues, with heartbeats, until it is cancelled or released.

    Args:
        deaf: whether a cancellation only makes it end its work and answer.
        late: whether it ends only when it is released, also after a cancellation.
        failure: how it ends when it is released.
        answer: what it answers when it does not fail; by default what the step answers without trouble.
    """

    def __init__(
        self, *, deaf: bool = False, late: bool = False, failure: BaseException | None = None, answer: Any = None
    ) -> None:
        self.answer = answer
        self._deaf = deaf
        self._late = late
        self._failure = failure
        self._entered = asyncio.Event()
        self._cancelled = asyncio.Event()
        self._released = asyncio.Event()

    async def entered(self) -> None:
        """Wait until the step runs."""
        async with asyncio.timeout(_TIMEOUT):
            await self._entered.wait()

    async def cancelled(self) -> None:
        """Wait until the step is cancelled."""
        async with asyncio.timeout(_TIMEOUT):
            await self._cancelled.wait()

    def release(self) -> None:
        """Release the step, so that it ends."""
        self._released.set()

    async def run(self) -> None:
        """Wait as the step, until it is released; then raise its failure, if it has one."""
        self._entered.set()
        while not self._released.is_set():
            activity.heartbeat()
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._released.wait(), 0.05)
            except asyncio.CancelledError:
                self._cancelled.set()
                if self._late:
                    continue
                if not self._deaf:
                    raise
                break
        if self._failure is not None:
            raise self._failure.with_traceback(None)


class Script:
    """Answers of the steps of one migration; each kind of migration has a subclass.

    Attributes:
        kind: name of the kind of migration.
        plan: the plan but for its cluster, as a user would type it.
        usual: what each step answers unless the script says otherwise: a migration without trouble.
        unlisted: steps that only clean up or check; `steps` leaves them out.
        calls: all calls so far.
        cancelled: the steps that were cancelled.
        hanging: the `Hang` that runs now.

    Args:
        answers: by step, a result, a function of the step's begin, an exception, a `Hang`, or a list of these for
            one attempt after the other; the last one stays.
    """

    kind: ClassVar[str]
    input: ClassVar[dict[str, Any]]
    usual: ClassVar[dict[str, Any]]
    unlisted: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **answers: Any) -> None:
        unknown = answers.keys() - self.usual.keys()
        assert not unknown, f"no such steps: {unknown}"
        self._answers = {step: list(_as_list(answer)) for step, answer in answers.items()}
        self.calls: list[Call] = []
        self.cancelled: list[str] = []
        self.hanging: Hang | None = None

    def knows(self, step: str) -> bool:
        """Return whether a step has an answer of its own."""
        return step in self._answers

    def say(self, step: str, answer: Any) -> None:
        """Give a step another answer from now on."""
        self._answers[step] = _as_list(answer)

    @property
    def steps(self) -> list[str]:
        """The steps in the order of their calls, without those that only clean up or check."""
        return [call.step for call in self.calls if call.step not in self.unlisted]

    @property
    def stages(self) -> list[str]:
        """The steps in the order of their calls; one that was repeated counts once."""
        return [step for step, _ in groupby(self.steps)]

    async def play(self, call: Call) -> Any:
        """Record a call, and answer it."""
        self.calls.append(call)
        answers = self._answers.get(call.step, [self.usual[call.step]])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Hang):
            self.hanging = answer
            try:
                await answer.run()
            except asyncio.CancelledError:
                self.cancelled.append(call.step)
                raise
            finally:
                self.hanging = None
            answer = self.usual[call.step] if answer.answer is None else answer.answer
        if callable(answer):
            # The server's clock, which is not the worker's.
            return answer(activity.info().started_time)
        if isinstance(answer, BaseException):
            # One object for many attempts would gather their traces.
            raise answer.with_traceback(None)
        return answer


def real_steps() -> list[Callable[..., Any]]:
    """Return all activities, without a runtime: good for their names and signatures only."""
    packages = dict.fromkeys(kind.package for kind in ALL.values())
    return [_unbound(step) for package in packages for step in steps_of(f"activities.{package}")]


def _unbound(step: AnyStep[..., Any]) -> Callable[..., Any]:
    activity = step.bind(cast("Any", None))
    # Scripts call a step by its name without the kind of migration.
    activity.__name__ = step.name.removeprefix(step.prefix)
    return activity


class Doubles:
    """The doubled steps of all migrations of one worker; each plays the script of its plan's cluster.

    Attributes:
        scripts: by cluster.
        hooks: of the worker's settings; their activities are the real ones.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.hooks: dict[str, Hook] = {}

    def activities(self) -> list[Callable[..., Any]]:
        """Return doubles of all activities, with their names and signatures."""
        return [*(self._doubled(method) for method in real_steps()), *HookActivities(self.hooks).all]

    def _doubled(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        # The wrapper takes over the activity's definition with all other attributes of the original.
        @functools.wraps(method)
        async def double(execution: Execution[WorkflowInput], *args: Any) -> Any:
            call = Call(method.__name__, args, activity.info().task_queue, execution.input)
            return await self.scripts[execution.input.cluster].play(call)

        return double


def _as_list(answer: Any) -> list[Any]:
    return cast("list[Any]", answer) if isinstance(answer, list) else [answer]
