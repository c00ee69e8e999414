"""Metrics of migrations: what a snapshot becomes, and when it is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.failures import FailedItem, FailedItems
from models.lifecycle.status import (
    HookStatus,
    Outcome,
    PhaseEntry,
    Progress,
    ProgressReport,
    ProgressTask,
    ProgressUnit,
    Reading,
    ReadingName,
    Side,
    Status,
    Undo,
    Waiting,
    WaitKind,
)
from models.lifecycle.verbs import ApprovalRequest, Verb
from models.topic_controller.state import ControllerStatus
from page.metrics import FORGET_SECONDS, GAUGES, MAX_AGE_SECONDS, MetricsSource
from page.snapshot import (
    MAX_UNANSWERED,
    EndReading,
    QueueAnswers,
    RunReading,
    Snapshot,
    StepReading,
    Subject,
    sum_of_readings,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SUBJECT = Subject("metadata-store/prod", "run-1", "metadata-store", "prod")
#: Each sample by its name and its labels other than those of the run.
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def status(**changes: Any) -> Status:
    """Return the status of a migration that copies."""
    history = [
        PhaseEntry(
            phase="PRECHECK", started=NOW - timedelta(minutes=9), ended=NOW - timedelta(minutes=8), undo=Undo.FREE
        ),
        PhaseEntry(phase="COPYING", started=NOW - timedelta(minutes=8), undo=Undo.METADATA),
    ]
    given: dict[str, Any] = {
        "kind": "metadata-store",
        "cluster": "prod",
        "target": "oxia://o",
        "phase": "COPYING",
        "outcome": Outcome.RUNNING,
        "history": history,
        "progress": None,
        "waiting": None,
        "paused": False,
        "undo": Undo.METADATA,
        "undo_cost": "",
        "legal_verbs": [],
        "failed_items": [],
        "deadlines": {},
        "notes": [],
        "facts": {},
        "figures": {},
    }
    return Status.model_validate({**given, **changes})


def run(answer: Status | ControllerStatus | None, subject: Subject = SUBJECT, **changes: Any) -> RunReading:
    """Return a running migration that gave an answer."""
    given: dict[str, Any] = {"subject": subject, "started": NOW - timedelta(hours=1), "queue": "q", "status": answer}
    return RunReading(**{**given, **changes})


def samples_of(text: str) -> Samples:
    """Return the samples of a scrape, without the labels that all series of a run have."""
    common = {*SUBJECT.labels().items()}
    return {
        (sample.name, frozenset({*sample.labels.items()} - common)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def scrape(*running: RunReading, ended: tuple[EndReading, ...] = (), **changes: Any) -> Samples:
    """Return the samples of a snapshot, through the text that Prometheus gets."""

    async def read() -> Snapshot:
        return Snapshot(at=NOW, seconds=0.5, running=running, ended=ended, **changes)

    text, content_type = await MetricsSource(read).answer("text/plain;version=1.0.0")
    assert content_type.startswith("text/plain")
    return samples_of(text.decode())


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return the key of a sample of the run."""
    return f"pulsar_migrate_{name}", frozenset(labels.items())


async def test_status_of_a_migration() -> None:
    """Phase, times, undo, wait, pause, alarms, failed items and deadlines of a migration are series of its run."""
    failed = FailedItems(what="topics", count=3, items=(FailedItem(path="t", reason="gone"),))
    waiting = Waiting(kind=WaitKind.DECISION, why="a decision", since=NOW - timedelta(minutes=20))
    samples = await scrape(
        run(
            status(
                waiting=waiting,
                paused=True,
                alarms=["late writes"],
                hooks=[HookStatus(name="chat", failing_since=NOW), HookStatus(name="pager")],
                failed_items=[failed],
                committed=True,
                started_by="ana",
                request=ApprovalRequest(verb=Verb.PROCEED, effect="cuts over", by="ana", since=NOW),
                deadlines={"window": NOW + timedelta(hours=1)},
            )
        )
    )
    assert samples[key("phase", phase="COPYING")] == 1
    assert key("phase", phase="PRECHECK") not in samples
    assert samples[key("phase_seconds", phase="PRECHECK")] == 60
    assert samples[key("phase_seconds", phase="COPYING")] == 480
    assert samples[key("undo", undo="metadata")] == 1
    assert samples[key("point_of_no_return_passed")] == 1
    since = samples[key("waiting_since_timestamp_seconds", wait="decision", operator="true")]
    assert since == waiting.since.timestamp()
    assert samples[key("info", target="oxia://o", started_by="ana")] == 1
    assert samples[key("approval_since_timestamp_seconds", verb="proceed")] == NOW.timestamp()
    assert samples[key("hook_failing_since_timestamp_seconds", hook="chat")] == NOW.timestamp()
    assert key("hook_failing_since_timestamp_seconds", hook="pager") not in samples
    assert (samples[key("paused")], samples[key("alarms")], samples[key("failed_items")]) == (1, 1, 3)
    assert samples[key("deadline_timestamp_seconds", deadline="window")] == (NOW + timedelta(hours=1)).timestamp()
    assert samples[key("outcome", outcome="running", failure="")] == 1
    assert samples[key("started_timestamp_seconds")] == (NOW - timedelta(hours=1)).timestamp()
    assert samples[key("answers")] == 1


async def test_steps_of_a_migration() -> None:
    """The newest progress, the blocked time, readings of both sides and failed attempts come from heartbeats."""
    progress = Progress(
        task=ProgressTask.COPY,
        unit=ProgressUnit.RECORDS,
        done=30,
        total=120,
        rate=3.0,
        slowest=2.0,
        fastest=5.0,
        eta_seconds=30.0,
        as_of=NOW,
    )
    older = progress.model_copy(update={"done": 10, "as_of": NOW - timedelta(minutes=1)})
    report = ProgressReport(progress=progress, blocked_since=NOW - timedelta(seconds=42))
    step = StepReading("metadata_store_copy", 4, "Unreachable", report)
    readings = {(ReadingName.PUBLISHERS, Side.GREEN): 7, (ReadingName.BACKLOG, Side.BLUE): 11}
    samples = await scrape(run(status(progress=older), steps=(step,), readings=readings))
    counted = {"task": "copied", "unit": "records"}
    assert samples[key("progress_done", **counted)] == 30
    assert samples[key("progress_total", **counted)] == 120
    assert samples[key("progress_ratio", **counted)] == 0.25
    assert samples[key("progress_rate", **counted)] == 3
    assert samples[key("progress_eta_seconds", **counted)] == 30
    stop = "the window VALIDATION"
    assert samples[key("ahead_seconds", stop=stop, bound="soonest")] == 18
    assert samples[key("ahead_seconds", stop=stop, bound="latest")] == 45
    assert samples[key("blocked_since_timestamp_seconds")] == NOW.timestamp() - 42
    assert samples[key("step_attempt", step="metadata_store_copy", failure="Unreachable")] == 4
    assert samples[key("publishers", side="green")] == 7
    assert samples[key("backlog_messages", side="blue")] == 11


def test_queues_without_a_worker() -> None:
    """A queue counts as silent after some workflows without an answer, unless one has answered; others do not."""
    queues = QueueAnswers()
    for _ in range(MAX_UNANSWERED):
        assert not queues.silent("a")
        queues.note("a", answered=False)
    assert queues.silent("a")
    assert not queues.silent("b")
    queues.note("a", answered=True)
    assert not queues.silent("a")


def test_readings_of_batches_add_up() -> None:
    """Readings of batches that move at the same time are summed up, by side."""

    def batch(publishers: int) -> StepReading:
        readings = (Reading(name=ReadingName.PUBLISHERS, side=Side.BLUE, value=publishers),)
        return StepReading("blue_green_drain", 1, "", ProgressReport(readings=readings))

    assert sum_of_readings([batch(2), batch(3)]) == {(ReadingName.PUBLISHERS, Side.BLUE): 5}


async def test_times_after_the_steps() -> None:
    """How long writes were blocked and brokers were away stays known until the migration ends."""
    away = {"pause_since": (NOW - timedelta(seconds=9)).isoformat()}
    while_away = await scrape(run(status(facts=away)))
    assert while_away[key("brokers_away_since_timestamp_seconds")] == NOW.timestamp() - 9
    assert key("brokers_away_seconds") not in while_away
    after = await scrape(run(status(figures={"blocked_seconds": 5.3, "brokers_away_seconds": 12.5})))
    assert (after[key("blocked_seconds")], after[key("brokers_away_seconds")]) == (5.3, 12.5)


async def test_silent_migration() -> None:
    """A migration that does not answer has its last known phase, and is counted."""
    samples = await scrape(run(None, phase="VERIFY"))
    assert samples[key("answers")] == 0
    assert samples[key("phase", phase="VERIFY")] == 1
    assert samples["pulsar_migrate_unanswered", frozenset()] == 1
    assert not [name for name, _ in samples if name in {"pulsar_migrate_paused", "pulsar_migrate_outcome"}]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"facts": {"pause_since": "yesterday"}}, "ValueError: Invalid isoformat string: 'yesterday'"),
        ({"figures": {"blocked_seconds": "long"}}, "ValueError: could not convert string to float: 'long'"),
    ],
)
async def test_a_status_of_another_version_hides_no_other_run(
    changes: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A run whose status has values of other types counts as unanswered, and is logged once for each reason."""
    other = Subject("metadata-store/other", "run-2", "metadata-store", "other")
    clock = Clock()

    async def read() -> Snapshot:
        return Snapshot(at=NOW, seconds=0.5, running=(run(status(**changes), other, phase="VERIFY"), run(status())))

    metrics = source(read, clock)
    await metrics.answer("")
    clock.now += MAX_AGE_SECONDS
    samples = samples_of((await metrics.answer(""))[0].decode())
    assert samples[key("phase", phase="COPYING")] == 1
    own = {name: value for name, value in other.labels().items() if value != "metadata-store"}
    assert samples[key("answers", **own)] == 0
    assert samples[key("phase", phase="VERIFY", **own)] == 1
    assert samples["pulsar_migrate_unanswered", frozenset()] == 1
    expected = f"the status of metadata-store/other cannot be shown: {problem}"
    assert [record.getMessage() for record in caplog.records if record.name == "page.metrics"] == [expected]


async def test_controller() -> None:
    """A controller has its layout, its consumers, and the failure of a step that is tried again."""
    subject = Subject("scalable-topic/prod/t/n/orders", "run-2", "topic-controller", "prod")
    answer = ControllerStatus(
        topic="t/n/orders",
        epoch=4,
        active=("0000-7fff-1", "8000-ffff-2"),
        sealed=1,
        consumers={"a": 3, "b": 2},
        waiting="x",
    )
    step = StepReading("topic_controller_commit", 9, "Unreachable", ProgressReport())
    samples = await scrape(run(answer, subject, steps=(step,)))
    own = {"workflow_id": subject.workflow_id, "run_id": "run-2", "kind": "topic-controller"}
    assert samples[key("controller_epoch", **own)] == 4
    assert samples[key("controller_segments", state="active", **own)] == 2
    assert samples[key("controller_segments", state="sealed", **own)] == 1
    assert samples[key("controller_consumers", **own)] == 5
    assert samples[key("controller_waiting", **own)] == 1
    assert samples[key("step_attempt", step="topic_controller_commit", failure="Unreachable", **own)] == 9


async def test_ends_and_queues() -> None:
    """A migration that ended has its outcome and the type of its failure; each queue has the number of its workers."""
    end = EndReading(SUBJECT, NOW, "failed", "Conflict")
    samples = await scrape(ended=(end,), pollers={("q", "workflow"): 2})
    assert samples[key("outcome", outcome="failed", failure="Conflict")] == 1
    assert samples[key("ended_timestamp_seconds", outcome="failed")] == NOW.timestamp()
    assert samples[key("task_queue_pollers", task_queue="q", type="workflow")] == 2


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"kind": WaitKind.PAUSE}, True),
        ({"kind": WaitKind.HOLD}, True),
        ({"kind": WaitKind.HOLD, "until": NOW}, False),
        ({"kind": WaitKind.WINDOW, "until": NOW}, False),
        ({"kind": WaitKind.BROKERS_STOP, "action": "stop all brokers"}, True),
        ({"kind": WaitKind.RETRY}, False),
    ],
)
def test_waits_for_an_operator(changes: dict[str, Any], needed: bool) -> None:
    """A wait needs an operator if it has something to do, or nothing else ends it."""
    assert Waiting(why="w", since=NOW, **changes).needs_operator is needed


def test_every_gauge_has_a_name_of_its_own() -> None:
    """No two gauges share a name, and all labels of the run come first."""
    assert len({gauge.name for gauge in GAUGES}) == len(GAUGES)


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def source(read: Callable[[], Awaitable[Snapshot]], clock: Clock) -> MetricsSource:
    """Return a source that waits a little for its reader."""
    return MetricsSource(read, clock=clock, wait=0.05)


async def test_one_reading_for_all() -> None:
    """Requests of a few seconds share one snapshot; after that it is read again."""
    clock, readings = Clock(), 0

    async def read() -> Snapshot:
        nonlocal readings
        readings += 1
        return Snapshot(at=NOW, seconds=0.0)

    metrics = source(read, clock)
    await asyncio.gather(*(metrics.answer("") for _ in range(5)))
    clock.now += MAX_AGE_SECONDS - 1
    await metrics.answer("")
    assert readings == 1
    clock.now += 1
    await metrics.answer("")
    assert readings == 2


async def test_slow_reading() -> None:
    """A request that would wait too long gets the previous snapshot and its age, and the reading continues."""
    clock, go = Clock(), asyncio.Event()
    go.set()

    async def read() -> Snapshot:
        await go.wait()
        return Snapshot(at=NOW, seconds=0.0)

    metrics = source(read, clock)
    await metrics.answer("")
    go.clear()
    clock.now += 20
    slow = samples_of((await metrics.answer(""))[0].decode())
    assert slow["pulsar_migrate_collector_age_seconds", frozenset()] == 20
    go.set()
    renewed = samples_of((await metrics.answer(""))[0].decode())
    assert renewed["pulsar_migrate_collector_age_seconds", frozenset()] == 0


@pytest.mark.parametrize("error", [RPCError("gone", RPCStatusCode.UNAVAILABLE, b""), ValueError("unreadable")])
async def test_blind_collector(error: Exception) -> None:
    """Without answers of Temporal the last snapshot is served for a minute; then its series end, and `up` is 0."""
    clock, broken = Clock(), False

    async def read() -> Snapshot:
        if broken:
            raise error
        return Snapshot(at=NOW, seconds=0.0, running=(run(status()),))

    metrics = source(read, clock)
    await metrics.answer("")
    broken = True
    clock.now += FORGET_SECONDS - 1
    still = samples_of((await metrics.answer(""))[0].decode())
    assert still[key("phase", phase="COPYING")] == 1
    clock.now += 1
    blind = samples_of((await metrics.answer(""))[0].decode())
    assert blind["pulsar_migrate_collector_up", frozenset()] == 0
    assert blind["pulsar_migrate_collector_failures_total", frozenset()] == 2
    assert key("phase", phase="COPYING") not in blind
