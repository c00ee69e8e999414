"""When observers of consumers begin, where they run, and when the workflow acts on what they see."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from models.topic_controller.input import SplitRequest
from models.topic_controller.observation import Observation, ObserverInput
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Run
from tests.workflows.topic_controller.activities import Script, long_timers, until
from tests.workflows.topic_controller.conftest import BILL, Start, register
from workflows.topic_controller import sessions


class _Silent(Hang):
    """A step without heartbeats, which therefore receives no cancellation."""

    async def run(self) -> None:
        self._entered.set()
        await self._released.wait()


async def test_observers_need_no_slots_of_other_steps(start: Start) -> None:
    """Observers run on a queue of their own."""
    watching = Hang()
    script = Script(observe=watching)
    run = await start(script)
    await register(run, "a")
    await watching.entered()
    queues = {call.step: call.queue for call in script.calls}
    assert (queues["observe"], queues["publish_assignments"]) == ("pulsar-migrate-observers", "pulsar-migrate")


async def test_sessions_are_observed_once_they_are_stored(start: Start) -> None:
    """An observer reads sessions from the metadata store, and begins when they are there."""
    telling, watching = Hang(), Hang()
    script = Script(publish_assignments=[telling, None], observe=watching)
    run = await start(script)
    joining = asyncio.ensure_future(register(run, "a"))
    await telling.entered()
    assert "observe" not in [call.step for call in script.calls]
    telling.release()
    await watching.entered()
    assert await joining == {"a": (0, 1)}


async def test_an_observation_during_a_wave_of_consumers_counts_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observer that will be replaced soon, since consumers have come, is heard until then, and at once."""
    monkeypatch.setattr(sessions, "_BATCH_WINDOW", timedelta(minutes=5))
    drained = Hang(answer=Observation(drained={BILL: (0,)}))
    script = Script(observe=[drained, None])
    run = await start(script)
    await register(run, "a")
    await drained.entered()
    await register(run, "b")
    drained.release()
    await until(run, lambda _: bool(_last_watching(script).drained[BILL]))
    assert script.cancelled == []
    events = (await run.handle.fetch_history()).events
    fired = {event.timer_fired_event_attributes.started_event_id for event in events}
    assert not fired & long_timers(events).keys()


async def test_another_layout_is_observed_at_once(start: Start) -> None:
    """After a split a new observer starts before the old one, which does not know the split, has been cancelled."""
    old, new = _Silent(answer=Observation()), Hang()
    script = Script(observe=old)
    run = await start(script)
    await register(run, "a")
    await old.entered()
    script.say("observe", new)
    await run.update("split", SplitRequest(segment=0))
    await new.entered()
    events = (await run.handle.fetch_history()).events
    assert not long_timers(events)
    assert not [event for event in events if event.HasField("activity_task_timed_out_event_attributes")]
    scheduled = {event.event_id: event.activity_task_scheduled_event_attributes for event in events}
    first = min(number for number, event in scheduled.items() if event.activity_type.name == "topic_controller_observe")
    old.release()
    async with asyncio.timeout(120):
        # The time-skipping server's clock would stay locked.
        while True:
            if first in await _completed(run):
                break
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("step", ["observe", "publish_assignments", "find_drained", "await_prune", "await_scale"])
async def test_an_answer_that_cannot_be_read(start: Start, step: str) -> None:
    """The controller notes it, waits, and repeats the step; a worker of another version may have answered."""
    script = Script(**{step: ["unreadable", None]})
    run = await start(script, auto_scale={})
    await run.update("split", SplitRequest(segment=0))
    registering = asyncio.ensure_future(register(run, "a"))
    reason = f"the answer of topic_controller_{step} cannot be read"
    await until(run, lambda status: any(reason in note for note in status.notes))
    await registering
    assert await run.running()


async def _completed(run: Run) -> set[int]:
    """Return the activities that have answered, by the numbers of the events that scheduled them."""
    events = (await run.handle.fetch_history()).events
    return {event.activity_task_completed_event_attributes.scheduled_event_id for event in events}


def _last_watching(script: Script) -> ObserverInput:
    return next(call.args[0] for call in reversed(script.calls) if call.step == "observe")
