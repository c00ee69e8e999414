"""`pulsar-migrate topic-controller`, and `start topic-controller`, on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from models.segments.layout import SegmentLayout
from models.topic_controller.input import controller_id
from models.topic_controller.pruning import PruneResult
from models.topic_controller.state import ControllerStatus, LayoutChange, TopicReport
from process.exit_codes import ExitCode
from pulsar_devstack.servers.stack import Stack
from tests.support.lifecycle.commands import run_command
from tests.support.lifecycle.environment import Environment
from tests.support.waiting import wait_for

TOPIC = "persistent://public/default/commanded"

Command = Callable[..., str]


@pytest.fixture
def command(environment: Environment, stack: Stack) -> Command:
    """Runs a command for the stack's cluster, checks its exit code, and returns what it printed, or its error."""

    def command(*words: str, code: ExitCode = ExitCode.OK) -> str:
        done = run_command(environment, *words, PULSAR_MIGRATE_CLUSTER=stack.state.spec.cluster)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stderr if code else done.stdout

    return command


def test_a_topic_by_commands(command: Command, stack: Stack) -> None:
    """Everything that an operator does with a topic can be done, and seen, without another tool."""
    plan = {"cluster": stack.state.spec.cluster, "metadata_url": stack.metadata_url}
    words = ["--topic", TOPIC, "--admin-urls", ",".join(stack.admin_urls), "--segments", "2"]
    started = command("start", "topic-controller", "--input", json.dumps(plan), *words)
    workflow_id = controller_id(stack.state.spec.cluster, TOPIC)
    assert f"started {workflow_id} (run " in started
    assert f"see pulsar-migrate topic-controller status {workflow_id}" in started
    assert "bill (STREAM) has a cursor" in command("topic-controller", "subscribe", TOPIC, "bill")
    assert "audit (QUEUE)" in command(
        "topic-controller", "subscribe", "public/default/commanded", "audit", "--kind", "QUEUE"
    )

    assert command("topic-controller", "split", TOPIC, "1") == "epoch 1: 2 (8000-bfff) and 3 (c000-ffff) instead of 1\n"
    merged = LayoutChange.model_validate_json(command("topic-controller", "merge", TOPIC, "2", "0", "-o", "json"))
    assert (merged.epoch, merged.sealed, [segment.descriptor for segment in merged.made]) == (
        2,
        (2, 0),
        ["0000-bfff-4"],
    )
    layout = SegmentLayout.model_validate_json(command("topic-controller", "layout", workflow_id, "-o", "json"))
    assert [segment.descriptor for segment in layout.active] == ["0000-bfff-4", "c000-ffff-3"]
    lines = command("topic-controller", "layout", TOPIC).splitlines()
    assert lines[0] == "epoch 2"
    assert lines[2].split() == ["0", "0000-7fff", "sealed", "-", "4"]
    assert "sessions outlive their connections by 90 s" in command("topic-controller", "grace", TOPIC, "90s")
    status = ControllerStatus.model_validate_json(command("topic-controller", "status", TOPIC, "-o", "json"))
    assert (status.epoch, status.changes, {*status.subscriptions}) == (2, 2, {"bill", "audit"})
    assert "bill (STREAM)" in command("topic-controller", "status", TOPIC)
    report = TopicReport.model_validate_json(command("topic-controller", "stats", TOPIC, "-o", "json"))
    assert (report.epoch, report.subscriptions) == (2, {"audit": 0, "bill": 0})
    assert "backlog of bill: 0 messages" in command("topic-controller", "stats", TOPIC)
    assert "bill has no consumers" in command("topic-controller", "consumers", TOPIC, "bill")
    row = {"cluster": stack.state.spec.cluster, "topic": "public/default/commanded", "doing": "IDLE"}
    # Temporal lists a workflow, and its search attributes, some time after they changed.
    wait_for("the topic in the list", lambda: row in _json(command("topic-controller", "list", "-o", "json")), 30)
    _refusals(command, workflow_id)
    # Nothing was ever in the three that are sealed. The controller may have removed some of them itself by now.
    pruned = PruneResult.model_validate_json(command("topic-controller", "prune", TOPIC, "-o", "json"))
    remaining = SegmentLayout.model_validate_json(command("topic-controller", "layout", TOPIC, "-o", "json"))
    assert {*remaining.segments} <= {*pruned.retained, 3, 4} <= {*range(5)}
    assert {*pruned.removed} <= {0, 1, 2} - {*pruned.retained}
    assert command("topic-controller", "auto-scale", TOPIC) == "off\n"
    scaled = command("topic-controller", "auto-scale", TOPIC, "--policy", '{"dryRun":true,"maxSegments":8}')
    assert "last decision: nothing yet" in scaled
    assert ["maxSegments", "8"] in [line.split() for line in scaled.splitlines()]
    assert command("topic-controller", "auto-scale", TOPIC, "--policy", "off") == "off\n"
    assert "audit is deleted" in command("topic-controller", "unsubscribe", TOPIC, "audit")
    assert "public/default/commanded is deleted" in command("topic-controller", "delete", TOPIC, "--yes")
    wait_for("a list without the topic", lambda: "commanded" not in command("topic-controller", "list"), 30)


def test_an_input_is_checked(command: Command, stack: Stack) -> None:
    """Before anything is started."""
    plan = {
        "cluster": stack.state.spec.cluster,
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "topic": "persistent://public/default/x-partition-0",
    }
    error = command("start", "topic-controller", "--input", json.dumps(plan), code=ExitCode.USAGE)
    assert "invalid name 'persistent://public/default/x-partition-0' of a scalable topic" in error
    findings = run_doctor(command, stack)
    assert {
        finding["level"] for finding in findings if finding["subject"].startswith(("metadata store", "broker"))
    } == {"ok"}


def run_doctor(command: Command, stack: Stack) -> list[dict[str, Any]]:
    """Return the findings of `doctor` about the servers of a topic."""
    plan = {
        "cluster": stack.state.spec.cluster,
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "topic": TOPIC,
    }
    return _json(command("doctor", "topic-controller", "--input", json.dumps(plan), "-o", "json"))


def _refusals(command: Command, workflow_id: str) -> None:
    """Check that a refusal has its cause, its cure and its exit code."""
    assert "segment 0 is sealed" in command("topic-controller", "split", TOPIC, "0", code=ExitCode.REFUSED)
    assert "is STREAM, and not QUEUE" in command(
        "topic-controller", "subscribe", TOPIC, "bill", "--kind", "QUEUE", code=ExitCode.REFUSED
    )
    assert "segment: " in command("topic-controller", "split", TOPIC, "one", code=ExitCode.USAGE)
    assert "and cannot be undone. cure: add --yes" in command("topic-controller", "delete", TOPIC, code=ExitCode.USAGE)
    assert "of a scalable topic" in command("topic-controller", "status", "a b", code=ExitCode.USAGE)
    other = workflow_id.replace("commanded", "other")
    assert f"no workflow {other}" in command("topic-controller", "status", "public/default/other", code=ExitCode.USAGE)
    other = f"no workflow {controller_id('staging', TOPIC)}"
    assert other in command("topic-controller", "delete", TOPIC, "--yes", "--cluster", "staging", code=ExitCode.USAGE)
    output = command("status", workflow_id, code=ExitCode.USAGE)
    assert "is not a migration. cure: use pulsar-migrate topic-controller" in output


def _json(text: str) -> Any:
    return json.loads(text)
