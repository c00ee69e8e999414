"""Metrics of running migrations for Prometheus, as Temporal and the migrations themselves report them.

A series belongs to a run and ends with it. Nothing is remembered but the last snapshot, so the numbers do not depend on
which worker ran a step, and a restart of this process changes none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from temporalio.service import RPCError

from models.lifecycle.outlook import Outlook
from models.lifecycle.status import Progress, ReadingName, Status
from models.topic_controller.state import ControllerStatus
from page.snapshot import EndReading, RunReading, Snapshot, problem_of
from views.migration import outlook

MAX_AGE_SECONDS = 5.0
"""Age of a snapshot at which the next request reads another one."""

WAIT_SECONDS = 8.0
"""How long a request waits for a snapshot; Prometheus waits 10 s by default. Until then it gets the previous one."""

FORGET_SECONDS = 60.0
"""Age of a snapshot from which it is not served any more: what is not known is left out."""

_RUN = ("workflow_id", "run_id", "kind", "cluster")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gauge:
    """A metric of the collector.

    Attributes:
        name: its name.
        meaning: what it measures, for its help line.
        labels: its labels, those of the run first.
    """

    name: str
    meaning: str
    labels: tuple[str, ...]


def _gauge(name: str, meaning: str, *labels: str) -> Gauge:
    return Gauge(f"pulsar_migrate_{name}", meaning, (*_RUN, *labels))


STARTED = _gauge("started_timestamp_seconds", "Start of the migration")
INFO = _gauge("info", "1, with what is migrated to, and who started it", "target", "started_by")
ANSWERS = _gauge("answers", "1 if the workflow answered, 0 if no worker did in time, or the answer cannot be shown")
PHASE = _gauge("phase", "1 for the running phase", "phase")
PHASE_SECONDS = _gauge("phase_seconds", "Time that a phase took, or has taken so far", "phase")
UNDO = _gauge("undo", "1 for how the running phase is undone", "undo")
COMMITTED = _gauge("point_of_no_return_passed", "1 once a rollback is not possible any more")
WAITING = _gauge(
    "waiting_since_timestamp_seconds",
    "Start of the current wait; operator: must one act",
    "wait",
    "operator",
)
APPROVAL = _gauge(
    "approval_since_timestamp_seconds", "Since when a step waits for the approval of a second person", "verb"
)
PAUSED = _gauge("paused", "1 while the operator has paused it")
ALARMS = _gauge("alarms", "Number of dangers that the status shows in red")
HOOK_FAILING = _gauge(
    "hook_failing_since_timestamp_seconds", "Since when a hook takes no events, while it does not", "hook"
)
FAILED_ITEMS = _gauge("failed_items", "Items that could not be migrated")
DEADLINE = _gauge("deadline_timestamp_seconds", "End of a running timer", "deadline")
BLOCKED_SINCE = _gauge("blocked_since_timestamp_seconds", "Since when metadata writes are blocked, while they are")
BLOCKED = _gauge("blocked_seconds", "Time for which metadata writes were blocked")
AWAY_SINCE = _gauge("brokers_away_since_timestamp_seconds", "Since when no broker runs, while none does")
BROKERS_AWAY = _gauge("brokers_away_seconds", "Time for which no broker ran")
PROGRESS_DONE = _gauge("progress_done", "Done part of what the running step counts", "task", "unit")
PROGRESS_TOTAL = _gauge("progress_total", "All of what the running step counts, where known", "task", "unit")
PROGRESS_RATIO = _gauge("progress_ratio", "Done part of the total, 0 to 1", "task", "unit")
PROGRESS_RATE = _gauge("progress_rate", "Units per second since the start of the step", "task", "unit")
PROGRESS_ETA = _gauge("progress_eta_seconds", "Estimated time to the end of the running step", "task", "unit")
AHEAD = _gauge("ahead_seconds", "Expected time to the next wait for a person, window or end", "stop", "bound")
STEP_ATTEMPT = _gauge(
    "step_attempt", "Number of the current attempt of a step whose previous attempt failed", "step", "failure"
)
OUTCOME = _gauge("outcome", "1 for the state, or for one hour the outcome", "outcome", "failure")
ENDED = _gauge("ended_timestamp_seconds", "End of a migration that ended in the last hour", "outcome")
PUBLISHERS = _gauge("publishers", "Producers that are connected to moving topics", "side")
BACKLOG = _gauge("backlog_messages", "Messages that subscriptions of moving topics have left", "side")
EPOCH = _gauge("controller_epoch", "Epoch of the topic's layout; -1 before the topic is open")
SEGMENTS = _gauge("controller_segments", "Segments of the topic: active, sealed, or retired", "state")
CHANGES = _gauge("controller_changes", "Splits and merges since the workflow was started")
PENDING = _gauge("controller_pending", "1 for the change that is in progress", "change")
STUCK = _gauge("controller_waiting", "1 while the current operation waits for something")
CONSUMERS = _gauge("controller_consumers", "Sessions of consumers of the topic")
AWAY = _gauge("controller_consumers_away", "Consumers without a connection; counted up to 20")
POLLERS = Gauge("pulsar_migrate_task_queue_pollers", "Workers that poll a task queue", ("task_queue", "type"))
COLLECTOR_UP = Gauge("pulsar_migrate_collector_up", "1 while the collector has a recent answer of Temporal", ())
COLLECTOR_AGE = Gauge("pulsar_migrate_collector_age_seconds", "Age of what is shown", ())
COLLECTOR_SECONDS = Gauge("pulsar_migrate_collector_seconds", "Time that the last snapshot took", ())
UNANSWERED = Gauge("pulsar_migrate_unanswered", "Running workflows without an answer that can be shown", ("kind",))

GAUGES: tuple[Gauge, ...] = tuple(value for value in [*globals().values()] if isinstance(value, Gauge))
"""All metrics that depend on a snapshot."""

FAILURES = "pulsar_migrate_collector_failures"
"""Counter of snapshots that could not be read."""


class Samples:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._families = {gauge: GaugeMetricFamily(gauge.name, gauge.meaning, labels=gauge.labels) for gauge in GAUGES}

    def add(self, gauge: Gauge, labels: Mapping[str, str], value: float) -> None:
        """Add a sample."""
        self._families[gauge].add_metric([labels[name] for name in gauge.labels], float(value))  # pyright: ignore[reportUnknownMemberType] - the library has no type there

    def families(self) -> Iterable[Metric]:
        """Return all families that have samples."""
        return [family for family in self._families.values() if family.samples]


class MetricsSource(Collector):
    """Metrics of a namespace: reads a snapshot at most every few seconds, however many ask.

    Args:
        read: reads a snapshot.
        clock: seconds.
        wait: longest wait of a request for a new snapshot.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Snapshot]],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: float = WAIT_SECONDS,
    ) -> None:
        self._read = read
        self._clock = clock
        self._wait = wait
        self._snapshot: Snapshot | None = None
        self._at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._problem = ""
        self._failures = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def answer(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics and their content type.

        Args:
            accept: value of the header of the request.
        """
        if self._clock() - self._at >= MAX_AGE_SECONDS:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._renew())
            # Not cancelled with the request: the next one needs it too.
            await asyncio.wait([self._reading], timeout=self._wait)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterable[Metric]:
        """Return the families of the current snapshot."""
        samples, age = Samples(), self._clock() - self._at
        snapshot = self._snapshot if age < FORGET_SECONDS else None
        samples.add(COLLECTOR_UP, {}, snapshot is not None)
        if snapshot is not None:
            samples.add(COLLECTOR_AGE, {}, age)
            samples.add(COLLECTOR_SECONDS, {}, snapshot.seconds)
            add_snapshot(samples, snapshot)
        failures = CounterMetricFamily(FAILURES, "Snapshots that could not be read", value=self._failures)
        return [*samples.families(), failures]

    def describe(self) -> Iterable[Metric]:
        """Return no families, so that the registry does not collect to learn names."""
        return ()

    async def _renew(self) -> None:
        try:
            snapshot = await self._read()
        except RPCError as error:
            self._failures += 1
            if error.message != self._problem:
                _log.warning("Temporal does not answer (%s); metrics of migrations get old, and end", error.message)
            self._problem = error.message
        except Exception:  # noqa: BLE001 - no caller awaits this task
            self._failures += 1
            _log.exception("the metrics of migrations could not be read")
        else:
            running = tuple(showable(run, snapshot.at) for run in snapshot.running)
            self._log_problems(running)
            self._snapshot, self._at, self._problem = replace(snapshot, running=running), self._clock(), ""

    def _log_problems(self, running: Iterable[RunReading]) -> None:
        """Log which answers cannot be shown, and why; what was logged for the previous snapshot is not repeated."""
        previous = self._snapshot.running if self._snapshot else ()
        logged = {(run.subject, run.problem) for run in previous}
        for run in running:
            if run.problem and (run.subject, run.problem) not in logged:
                _log.warning("the status of %s cannot be shown: %s", run.subject.workflow_id, run.problem)


def showable(run: RunReading, now: datetime) -> RunReading:
    """Return a run as it is, or without its answer if no samples can be made of that.

    The facts and figures of another version may have other types, and one run must not end the metrics of all.
    """
    try:
        _add_run(Samples(), run, now)
    except Exception as error:  # noqa: BLE001 - whatever a value of a wrong type leads to
        return replace(run, status=None, problem=problem_of(error))
    return run


def add_snapshot(samples: Samples, snapshot: Snapshot) -> None:
    """Add all samples of a snapshot."""
    for (queue, kind), count in snapshot.pollers.items():
        samples.add(POLLERS, {"task_queue": queue, "type": kind}, count)
    silent = {run.subject.kind: 0 for run in snapshot.running}
    for run in snapshot.running:
        silent[run.subject.kind] += run.status is None
        _add_run(samples, run, snapshot.at)
    for kind, count in silent.items():
        samples.add(UNANSWERED, {"kind": kind}, count)
    for end in snapshot.ended:
        _add_end(samples, end)


def _add_run(samples: Samples, run: RunReading, now: datetime) -> None:
    labels = run.subject.labels()
    samples.add(STARTED, labels, run.started.timestamp())
    samples.add(ANSWERS, labels, run.status is not None)
    for step in run.steps:
        if step.failure:
            samples.add(STEP_ATTEMPT, {**labels, "step": step.name, "failure": step.failure}, step.attempt)
    for (name, side), value in run.readings.items():
        samples.add(_READINGS[name], {**labels, "side": side.value}, value)
    if isinstance(run.status, Status):
        _add_status(samples, labels, run.status, now)
    elif isinstance(run.status, ControllerStatus):
        _add_controller(samples, labels, run.status)
    elif run.phase:
        samples.add(PHASE, {**labels, "phase": run.phase}, 1)
    blocked_since = [step.report.blocked_since for step in run.steps if step.report.blocked_since]
    if blocked_since:
        samples.add(BLOCKED_SINCE, labels, min(blocked_since).timestamp())
    if run.progress:
        _add_progress(samples, labels, run.progress)
    if isinstance(run.status, Status):
        _add_outlook(samples, labels, outlook(run.status.model_copy(update={"progress": run.progress}), now))


def _add_progress(samples: Samples, labels: dict[str, str], progress: Progress) -> None:
    counted = {**labels, "task": progress.task.value, "unit": progress.unit.value}
    samples.add(PROGRESS_DONE, counted, progress.done)
    samples.add(PROGRESS_RATE, counted, progress.rate)
    if progress.total:
        samples.add(PROGRESS_TOTAL, counted, progress.total)
        samples.add(PROGRESS_RATIO, counted, min(1.0, progress.done / progress.total))
    if progress.eta_seconds is not None:
        samples.add(PROGRESS_ETA, counted, progress.eta_seconds)


def _add_outlook(samples: Samples, labels: dict[str, str], outlook: Outlook | None) -> None:
    if outlook is None:
        return
    for bound, seconds in (("soonest", outlook.soonest_seconds), ("latest", outlook.latest_seconds)):
        if seconds is not None:
            samples.add(AHEAD, {**labels, "stop": outlook.stop, "bound": bound}, seconds)


_READINGS = {ReadingName.PUBLISHERS: PUBLISHERS, ReadingName.BACKLOG: BACKLOG}


def _add_status(samples: Samples, labels: dict[str, str], status: Status, now: datetime) -> None:
    samples.add(OUTCOME, {**labels, "outcome": status.outcome.value, "failure": ""}, 1)
    samples.add(INFO, {**labels, "target": status.target, "started_by": status.started_by}, 1)
    samples.add(PHASE, {**labels, "phase": status.phase}, 1)
    seconds: dict[str, float] = {}
    for entry in status.history:
        seconds[entry.phase] = seconds.get(entry.phase, 0.0) + entry.seconds(now)
    for phase, taken in seconds.items():
        samples.add(PHASE_SECONDS, {**labels, "phase": phase}, taken)
    samples.add(UNDO, {**labels, "undo": status.undo.value}, 1)
    samples.add(COMMITTED, labels, status.committed)
    samples.add(PAUSED, labels, status.paused)
    samples.add(ALARMS, labels, len(status.alarms))
    for name, since in [(hook.name, hook.failing_since) for hook in status.hooks if hook.failing_since]:
        samples.add(HOOK_FAILING, {**labels, "hook": name}, since.timestamp())
    samples.add(FAILED_ITEMS, labels, sum(failed.count for failed in status.failed_items))
    if request := status.request:
        samples.add(APPROVAL, {**labels, "verb": request.verb.value}, request.since.timestamp())
    if waiting := status.waiting:
        operator = "true" if waiting.needs_operator else "false"
        wait = {**labels, "wait": waiting.kind.value, "operator": operator}
        samples.add(WAITING, wait, waiting.since.timestamp())
    for name, end in status.deadlines.items():
        samples.add(DEADLINE, {**labels, "deadline": name}, end.timestamp())
    if since := status.facts.get("pause_since"):
        samples.add(AWAY_SINCE, labels, datetime.fromisoformat(since).timestamp())
    for gauge, figure in ((BLOCKED, "blocked_seconds"), (BROKERS_AWAY, "brokers_away_seconds")):
        if (seconds_taken := status.figures.get(figure)) is not None:
            samples.add(gauge, labels, seconds_taken)


def _add_controller(samples: Samples, labels: dict[str, str], status: ControllerStatus) -> None:
    samples.add(OUTCOME, {**labels, "outcome": "running", "failure": ""}, 1)
    samples.add(EPOCH, labels, status.epoch)
    for state, count in (("active", len(status.active)), ("sealed", status.sealed), ("retired", status.retired)):
        samples.add(SEGMENTS, {**labels, "state": state}, count)
    samples.add(CHANGES, labels, status.changes)
    samples.add(CONSUMERS, labels, sum(status.consumers.values()))
    samples.add(AWAY, labels, len(status.away))
    samples.add(STUCK, labels, bool(status.waiting))
    if status.pending:
        samples.add(PENDING, {**labels, "change": status.pending.change.value}, 1)


def _add_end(samples: Samples, end: EndReading) -> None:
    labels = end.subject.labels()
    samples.add(OUTCOME, {**labels, "outcome": end.outcome, "failure": end.failure}, 1)
    samples.add(ENDED, {**labels, "outcome": end.outcome}, end.ended.timestamp())
