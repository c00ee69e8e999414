"""The steps of the metadata store migration, doubled: they record their calls and answer by a script.

Stores are doubled here because this tier proves the orchestration: which step runs when, and what follows from its
answer, its failure, its silence. The steps themselves are proven on real stores in the integration tier.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from temporalio import activity

from activities.metadata_store import MetadataStoreActivities
from models.metadata_store import (
    Census,
    ChangeCopy,
    CleanupStep,
    Completion,
    FlagPhase,
    MetadataStorePlan,
    Precheck,
    PreCopy,
    Preparation,
    Restoration,
    Survey,
    Verification,
)
from worker.migrations import activities_of

OWN_QUEUE = "pulsar-migrate@own"
"""The queue of the one worker that watches the source."""

SURVEY = Survey(
    records=12,
    value_bytes=340,
    ephemerals=3,
    largest_path="/managed-ledgers/a",
    largest_bytes=90,
    unreadable=(),
    unreadable_count=0,
)
READY = Precheck(
    blockers=(),
    warnings=("the target is not empty",),
    survey=SURVEY,
    participants=("broker-1", "bookie-1"),
    flag=FlagPhase.NOT_STARTED,
    estimated_copy_seconds=4.0,
    estimated_blocked_seconds=2.5,
    estimate_basis="the source was read in 1.0 s just now",
)
COPIED = PreCopy(
    since_zxid=77,
    copied=12,
    copied_bytes=340,
    copy_seconds=3.0,
    compared=12,
    compare_seconds=1.0,
    repaired=1,
    rounds=2,
    version_floor=10_012,
    worker_queue=OWN_QUEUE,
)
ANSWERS: dict[str, Any] = {
    "precheck": READY,
    "pre_copy": COPIED,
    "copy_whole": COPIED,
    "prepare": Preparation(ephemerals=3, seconds=0.5),
    "copy_changes": ChangeCopy(by="watch", gap="", changed=4, written=3, deleted=1, seconds=0.2),
    "verify": Verification(compared=4, repaired=2, whole=False, seconds=0.3),
    "complete": Completion(blocked_seconds=1.75),
    "give_back": Restoration(committed=False, flag=FlagPhase.FAILED),
    "clear_target": 12,
    "set_speed": None,
    "take_census": Census(services=(), unknown=()),
    "count_source": 12,
    "clean_source": CleanupStep(removed=12, remaining=0),
}
"""What each step answers unless a script says otherwise: a migration without trouble."""

LIVE = ["precheck", "pre_copy", "prepare", "copy_changes", "verify", "complete"]
OFFLINE = ["precheck", "copy_whole", "verify", "complete"]
"""The steps before the window, in their order."""

_PATIENCE = 30.0


class Call(NamedTuple):
    """One attempt of a step: its name, its arguments after the plan, and the queue from which it was taken."""

    step: str
    args: tuple[Any, ...]
    queue: str


class Hang:
    """A step that goes on, with heartbeats, until it is cancelled or released.

    Args:
        deaf: whether a cancellation only makes it end its work and answer.
        failure: how it ends when it is released.
        answer: what it answers when it does not fail; by default what the step answers without trouble.
    """

    def __init__(self, *, deaf: bool = False, failure: BaseException | None = None, answer: Any = None) -> None:
        self.answer = answer
        self._deaf = deaf
        self._failure = failure
        self._entered = asyncio.Event()
        self._released = asyncio.Event()

    async def entered(self) -> None:
        """Wait until the step runs."""
        async with asyncio.timeout(_PATIENCE):
            await self._entered.wait()

    def release(self) -> None:
        """Let the step end."""
        self._released.set()

    async def run(self) -> None:
        """The work of the step."""
        self._entered.set()
        try:
            while not self._released.is_set():
                activity.heartbeat()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._released.wait(), 0.05)
        except asyncio.CancelledError:
            if not self._deaf:
                raise
        if self._failure is not None:
            raise self._failure.with_traceback(None)


class Script:
    """What the steps of one migration do.

    Attributes:
        calls: all calls so far.
        cancelled: the steps that were cancelled.
        hanging: the `Hang` that runs now.

    Args:
        answers: by step, a result, an exception, a `Hang`, or a list of these for one attempt after the other; the last
            one stays.
    """

    def __init__(self, **answers: Any) -> None:
        unknown = answers.keys() - ANSWERS.keys()
        assert not unknown, f"no such steps: {unknown}"
        self._answers = {step: list(_as_list(answer)) for step, answer in answers.items()}
        self.calls: list[Call] = []
        self.cancelled: list[str] = []
        self.hanging: Hang | None = None

    def say(self, step: str, answer: Any) -> None:
        """Give a step another answer from now on."""
        self._answers[step] = _as_list(answer)

    @property
    def steps(self) -> list[str]:
        """The steps in the order of their calls."""
        return [call.step for call in self.calls]

    async def play(self, call: Call) -> Any:
        """Record a call, and answer it."""
        self.calls.append(call)
        answers = self._answers.get(call.step, [ANSWERS[call.step]])
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
            return ANSWERS[call.step] if answer.answer is None else answer.answer
        if isinstance(answer, BaseException):
            # One object for many attempts would gather their traces.
            raise answer.with_traceback(None)
        return answer


class Doubles:
    """The doubled steps of all migrations of one worker; each plays the script of its plan's cluster."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}

    def activities(self) -> list[Callable[..., Any]]:
        """As many activities as the real ones, with their names and signatures."""
        # Without a runtime: nothing of the original is called.
        real = MetadataStoreActivities.__new__(MetadataStoreActivities)
        return [self._doubled(method) for method in activities_of(real)]

    def _doubled(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        # The wrapper takes over the activity's definition with all other attributes of the original.
        @functools.wraps(method)
        async def double(plan: MetadataStorePlan, *args: Any) -> Any:
            call = Call(method.__name__, args, activity.info().task_queue)
            return await self.scripts[plan.cluster].play(call)

        return double


def _as_list(answer: Any) -> list[Any]:
    return cast("list[Any]", answer) if isinstance(answer, list) else [answer]
