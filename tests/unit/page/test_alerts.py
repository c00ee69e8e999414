"""Alerts: each fires on series of the collector, stays silent without its cause, and names metrics that exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.metrics import DURATION, IN_FLIGHT, REQUESTS
from models.lifecycle.report import Report
from models.lifecycle.status import (
    HookStatus,
    Outcome,
    Progress,
    ProgressReport,
    ProgressTask,
    ProgressUnit,
    Waiting,
    WaitKind,
)
from models.lifecycle.verbs import ApprovalRequest, Verb
from models.topic_controller.record import Change, Mutation
from models.topic_controller.state import ControllerStatus
from page.metrics import FAILURES, GAUGES, Samples, add_snapshot
from page.snapshot import EndReading, RunReading, Snapshot, StepReading, Subject
from process.exit_codes import ExitCode
from tests.environments import ROOT
from tests.support.promtool import firing_alerts, run_promtool
from tests.unit.page.test_metrics import SUBJECT, run, status
from views.migration import code_of_report

RULES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/kubernetes/prometheusrule.yaml").read_text())["spec"]
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
#: Labels of each metric that rules and dashboards use.
LABELS = {gauge.name: {*gauge.labels} for gauge in GAUGES} | {
    f"{FAILURES}_total": set[str](),
    f"{REQUESTS}_total": {"route", "status"},
    f"{DURATION}_seconds": {"route"},
    IN_FLIGHT: set[str](),
}
CONTROLLER = Subject("topic-controller/prod/t/n/orders", "run-2", "topic-controller", "prod")
#: Prometheus sets it on all series of a target.
TARGET = {"instance"}
MINUTES = 31

Minutes = Callable[[int], Snapshot | None]


def at(minute: float) -> datetime:
    """Return the time of a minute: promtool's clock starts with the epoch."""
    return datetime.fromtimestamp(60 * minute, UTC)


@dataclass(frozen=True)
class Scene:
    """Series of half an hour, with the cause of an alert and without it.

    Attributes:
        cause: returns the snapshot of each minute; None for none.
        without: the same without the cause of the alert.
        more: series that do not come from snapshots, for both.
    """

    cause: Minutes
    without: Minutes
    more: tuple[dict[str, list[float | None]], dict[str, list[float | None]]] = field(default=({}, {}))


def migration(**changes: Any) -> Minutes:
    """Return a migration that has a status all the time."""
    return lambda minute: snapshot(minute, run(status(**changes)))


def snapshot(minute: int, *running: RunReading, **changes: Any) -> Snapshot:
    """Return a snapshot of a minute."""
    return Snapshot(at=at(minute), seconds=0.1, running=running, **changes)


def waiting(kind: WaitKind, since: float, **more: Any) -> Minutes:
    """Return a migration that waits since a minute."""
    return migration(waiting=Waiting(kind=kind, why="w", since=at(since), **more))


def asked(since: float) -> Minutes:
    """Return a migration with a step that waits for a second person since a minute."""
    return migration(request=ApprovalRequest(verb=Verb.PROCEED, effect="cuts over", by="ana", since=at(since)))


def step(attempt: int, failure: str, **report: Any) -> Minutes:
    """Return a migration with a pending step."""
    reading = StepReading("copy", attempt, failure, ProgressReport(**report))
    return lambda minute: snapshot(minute, run(status(), steps=(reading,)))


def copied(done: Callable[[int], int], **changes: Any) -> Minutes:
    """Return a migration that has copied so many records in each minute."""

    def reading(minute: int) -> Snapshot:
        progress = Progress(
            task=ProgressTask.COPY, unit=ProgressUnit.RECORDS, done=done(minute), total=1000, as_of=at(minute)
        )
        return snapshot(minute, run(status(progress=progress, **changes)))

    return reading


def controller(**changes: Any) -> Minutes:
    """Return a controller that has a status all the time."""
    answer = ControllerStatus(topic="t/n/orders", epoch=3, **changes)
    return lambda minute: snapshot(minute, run(answer, CONTROLLER))


def away(since: float, until: float) -> Minutes:
    """Return a migration that has no brokers since a minute, and may have none until another one."""
    return migration(facts={"pause_since": at(since).isoformat()}, deadlines={"longest pause": at(until)})


def ended(outcome: str, failure: str = "") -> Minutes:
    """Return a migration that has ended."""
    return lambda minute: snapshot(minute, ended=(EndReading(SUBJECT, at(0), outcome, failure),))


def requests(refused: float) -> dict[str, list[float | None]]:
    """Return the requests of a gateway, of which a part is refused."""

    def series(status: str) -> str:
        return f'{REQUESTS}_total{{instance="gateway:9465", route="lookup", status="{status}"}}'

    return {
        series("200"): [600.0 * minute * (1 - refused) for minute in range(MINUTES)],
        series("503"): [600.0 * minute * refused for minute in range(MINUTES)],
    }


def quiet(minute: int) -> Snapshot:
    """Return a snapshot in which nothing runs."""
    return snapshot(minute)


SCENES = {
    "PulsarMigrationWaitsForOperator": Scene(waiting(WaitKind.DECISION, 10), waiting(WaitKind.DECISION, 20)),
    "PulsarMigrationNeedsApproval": Scene(asked(10), asked(20)),
    "PulsarMetadataWritesBlocked": Scene(step(1, "", blocked_since=at(28)), step(1, "", blocked_since=at(29.5))),
    "PulsarBrokersAway": Scene(away(20, 35), away(28, 35)),
    "PulsarMigrationWindowEndsSoon": Scene(
        migration(deadlines={"window": at(89)}), migration(deadlines={"window": at(91), "longest pause": at(40)})
    ),
    "PulsarMigrationFailed": Scene(ended("failed", "Conflict"), ended("done")),
    "PulsarMigrationAlarm": Scene(migration(alarms=["late writes"]), migration()),
    "PulsarMigrationHookFails": Scene(
        migration(hooks=[HookStatus(name="chat", failing_since=at(15))]), migration(hooks=[HookStatus(name="chat")])
    ),
    "PulsarMigrationNoProgress": Scene(copied(lambda minute: min(minute, 10)), copied(lambda minute: minute)),
    "PulsarMigrationStepFails": Scene(step(11, "Unreachable"), step(9, "Unreachable")),
    "PulsarMigrationSilent": Scene(
        lambda minute: snapshot(minute, run(None if minute > 20 else status())),
        lambda minute: snapshot(minute, run(status())),
    ),
    "PulsarMigrateNoWorker": Scene(
        lambda minute: snapshot(minute, pollers={("pulsar-migrate", "activity"): 0}),
        lambda minute: snapshot(minute, pollers={("pulsar-migrate", "activity"): 1}),
    ),
    "PulsarTopicControllerStuck": Scene(controller(waiting="the broker b-1"), controller()),
    "PulsarGatewayRefuses": Scene(quiet, quiet, (requests(0.2), requests(0.05))),
    "PulsarMigrateCollectorBlind": Scene(lambda minute: quiet(minute) if minute < 20 else None, quiet),
}
#: Scenes with the same cause in another way, and what may not fire.
OTHERS = {
    "PulsarTopicControllerStuck": Scene(
        controller(pending=Mutation(change=Change.SPLIT, segments=(1,), epoch=3)), controller(changes=4)
    ),
    "PulsarMigrationFailed": Scene(ended("terminated"), ended("rolled back")),
    "PulsarMigrationNoProgress": Scene(
        copied(lambda _: 5, waiting=Waiting(kind=WaitKind.RETRY, why="w", since=at(0))),
        copied(lambda _: 5, waiting=Waiting(kind=WaitKind.WINDOW, why="w", since=at(0))),
    ),
    "PulsarMigrationWaitsForOperator": Scene(
        waiting(WaitKind.BROKERS_STOP, 0, action="stop all brokers"), waiting(WaitKind.BROKERS_STOP, 0)
    ),
    "PulsarMetadataWritesBlocked": Scene(
        step(3, "Unreachable", blocked_since=at(5)), migration(figures={"blocked_seconds": 600.0})
    ),
    "PulsarMigrateCollectorBlind": Scene(lambda _: None, quiet),
}


def series_of(minutes: Minutes) -> dict[str, list[float | None]]:
    """Return the series that Prometheus has after half an hour."""
    series: dict[str, list[float | None]] = {}
    for minute in range(MINUTES):
        for name, value in _scraped(minutes(minute)):
            series.setdefault(name, [None] * MINUTES)[minute] = value
    return series


def _scraped(read: Snapshot | None) -> Iterator[tuple[str, float]]:
    samples = Samples()
    if read is not None:
        add_snapshot(samples, read)
        yield "pulsar_migrate_collector_up", 1.0
    for family in samples.families():
        for sample in family.samples:
            labels = ", ".join(f'{name}="{value}"' for name, value in sample.labels.items())
            yield f"{sample.name}{{{labels}}}", sample.value


@pytest.mark.parametrize(
    ("alert", "scene"), [*SCENES.items(), *OTHERS.items()], ids=[*SCENES, *(f"{name}-other" for name in OTHERS)]
)
def test_alerts(alert: str, scene: Scene, tmp_path: Path) -> None:
    """An alert fires in half an hour with its cause, and not without it."""
    cause, without = (
        {**series_of(minutes), **more} for minutes, more in zip((scene.cause, scene.without), scene.more, strict=True)
    )
    assert alert in firing_alerts(tmp_path, RULES, cause, 30)
    assert alert not in firing_alerts(tmp_path, RULES, without, 30)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.RUNNING])
def test_an_end_as_ordered_is_silent(outcome: Outcome, tmp_path: Path) -> None:
    """The alert of failures fires for ends whose exit code is not 0, except for a rollback: a person ordered it."""
    report: Report = Report(
        kind="", cluster="", outcome=outcome, summary="", history=[], figures={}, certificate={}, notes=[]
    )
    fires = "PulsarMigrationFailed" in firing_alerts(tmp_path, RULES, series_of(ended(outcome.value)), 30)
    ordered = code_of_report(report) is ExitCode.OK or outcome is Outcome.ROLLED_BACK
    assert fires is not ordered


def test_a_healthy_migration_is_silent(tmp_path: Path) -> None:
    """No alert fires for a migration that copies, with a worker and a gateway."""
    at_work = copied(lambda minute: 10 * minute)
    series = series_of(at_work) | requests(0.0)
    assert firing_alerts(tmp_path, RULES, series, 30) == set()


def test_every_alert_is_tested() -> None:
    """Each rule has a scene in which it fires, a severity, a summary, and what to do."""
    assert set(SCENES) == set(ALERTS)
    for alert in ALERTS.values():
        assert alert["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(alert["annotations"]) == {"summary", "action"}


def test_rules_are_valid(tmp_path: Path) -> None:
    """Prometheus accepts the rules."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    checked = run_promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_rules_name_metrics_and_labels_that_exist(alert: str) -> None:
    """A rule names metrics that are exported, and labels that they have, also in its texts."""
    rule = ALERTS[alert]
    names = {*re.findall(r"pulsar_migrate_\w+", rule["expr"])}
    assert names <= set(LABELS)
    labels = set[str]().union(*(LABELS[name] for name in names)) | TARGET
    used = re.findall(r"(\w+)(?:=~|!=|!~|=)\"", rule["expr"])
    used += [
        label.strip()
        for group in re.findall(r"(?:by|on|without) \(([^)]*)\)", rule["expr"])
        for label in group.split(",")
    ]
    used += re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
    assert {*used} <= labels


def test_documented_alerts_and_metrics() -> None:
    """Each alert and each metric is on the page about monitoring, and no other one."""
    page = (ROOT / "docs/monitoring.md").read_text()
    assert {*re.findall(r"`(Pulsar[A-Z]\w+)`", page)} == set(ALERTS)
    assert [name for name in LABELS if f"`{name}" not in page] == []
    assert {*re.findall(r"`(pulsar_migrate_\w+)", page)} <= set(LABELS)
