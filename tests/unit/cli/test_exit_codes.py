"""Exit codes, settings and log lines of the process."""

from __future__ import annotations

import json
import logging
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from structlog.contextvars import bound_contextvars

from cli import app as cli
from cli.options import read_settings
from models.lifecycle.failures import FailureKind
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from process.exit_codes import MEANINGS, CommandFailed, ExitCode, code_of_failure, table
from process.logs import JsonLines, TextLines, configure_logs
from temporal.search_attributes import create_line
from views.migration import code_of_report


def test_numbers_never_change() -> None:
    """Scripts rely on the numbers, so they never change."""
    numbers = {code.name: code.value for code in ExitCode}
    assert numbers == {
        "OK": 0,
        "UNEXPECTED": 1,
        "USAGE": 2,
        "PRECHECK": 3,
        "VERIFICATION": 4,
        "REFUSED": 5,
        "CONFLICT": 6,
        "UNREACHABLE": 7,
        "FAILED": 8,
        "INTERRUPTED": 130,
    }


def test_help_tells_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` explains each exit code."""
    assert set(MEANINGS) == set(ExitCode)
    assert cli.run(["--help"]) == ExitCode.OK
    assert table() in " ".join(capsys.readouterr().out.split())


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the name and the version of the distribution, and starts nothing."""
    assert cli.run(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"pulsar-migrate {version('pulsar-migrate')}\n"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FailureKind.PRECHECK_FAILED, 3),
        (FailureKind.VERIFICATION_FAILED, 4),
        (FailureKind.CONFLICT, 6),
        (FailureKind.CONTENTION, 6),
        (FailureKind.UNREACHABLE, 7),
        (FailureKind.DEADLINE, 8),
        (FailureKind.DENIED, 8),
        (FailureKind.LEDGER_UNREADABLE, 8),
        (FailureKind.INVALID_INPUT, 2),
        ("CancelledError", 8),
        (None, 8),
    ],
)
def test_failures_have_codes(kind: str | None, code: int) -> None:
    """The type of a migration's failure decides the exit code."""
    assert code_of_failure(kind) == code


@pytest.mark.parametrize(
    ("outcome", "figures", "code"),
    [
        (Outcome.DONE, {}, 0),
        (Outcome.PLANNED, {"blockers": 0}, 0),
        (Outcome.PLANNED, {"blockers": 2}, 3),
        (Outcome.ROLLED_BACK, {}, 8),
    ],
)
def test_reports_have_codes(outcome: Outcome, figures: dict[str, int], code: int) -> None:
    """The outcome of a report decides the exit code; a plan with blockers is not ready."""
    report: Report = Report(
        kind="k", cluster="c", outcome=outcome, summary="", history=[], figures=figures, certificate={}, notes=[]
    )
    assert code_of_report(report) == code


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["start", "metadata-store", "--cluster", "prod"], "error: the input is wrong: source: this field is needed"),
        (["throttle", "metadata-store/prod", "-o", "json", "0"], "error: megabytes_per_second: "),
        (["window", "metadata-store/prod", "soon"], "error: invalid duration 'soon'."),
        (["replay", "/no/such/history.json"], "error: [Errno 2]"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong input ends with exit code 2 and one line with cause and cure, before Temporal is asked."""
    assert cli.run(arguments) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(cause)
    assert " cure: " in err
    assert err.count("\n") == 1


def test_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that does not exist is a usage error too."""
    assert cli.run(["migrate"]) == ExitCode.USAGE
    assert "No such command 'migrate'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PULSAR_MIGRATE_STORE_TIMEOUT", "soon"), ("PULSAR_MIGRATE_SPARK_CONF", "{")],
)
def test_wrong_settings_name_the_variable(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that cannot be read is a usage error that names the setting."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(CommandFailed, match=variable.removeprefix("PULSAR_MIGRATE_") + r"|spark_conf") as failure:
        read_settings()
    assert failure.value.code is ExitCode.USAGE


def test_create_line_names_every_attribute() -> None:
    """The cure for missing search attributes is one line to copy."""
    assert create_line("ops", ("MigrationKind", "MigrationPhase")) == (
        "temporal operator search-attribute create --namespace ops "
        "--name MigrationKind --type Keyword --name MigrationPhase --type Keyword"
    )


def test_json_log_lines() -> None:
    """A log line in JSON holds time, level, logger, event, what was added, and the error."""
    try:
        raise ValueError("no quorum")
    except ValueError:
        record = logging.getLogger("a.b").makeRecord(
            "a.b", logging.ERROR, __file__, 1, "step %s", ("copy",), sys.exc_info(), extra={"workflow_id": "m/prod"}
        )
    line = json.loads(JsonLines().format(record))
    assert {name: line[name] for name in ("level", "logger", "event", "workflow_id")} == {
        "level": "ERROR",
        "logger": "a.b",
        "event": "step copy",
        "workflow_id": "m/prod",
    }
    assert line["error"].endswith("ValueError: no quorum")


def test_text_log_lines() -> None:
    """A log line in text ends with the migration, its run and phase, and the fields of Temporal by our names."""
    details = {"workflow_id": "m/prod", "activity_type": "copy", "attempt": 2, "task_queue": "q"}
    with bound_contextvars(run="run-1", phase="PRE_COPY"):
        record = logging.getLogger("a.b").makeRecord(
            "a.b", logging.INFO, __file__, 1, "slow\nly", (), None, extra={"temporal_activity": details, "verb": "x"}
        )
        line = TextLines().format(record)
    assert line.endswith(r" INFO a.b slow\nly migration=m/prod run=run-1 phase=PRE_COPY step=copy attempt=2")


def test_unknown_log_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log format that does not exist is a usage error."""
    monkeypatch.setenv("PULSAR_MIGRATE_LOG", "xml")
    with pytest.raises(CommandFailed, match="PULSAR_MIGRATE_LOG=xml") as failure:
        configure_logs()
    assert failure.value.code is ExitCode.USAGE


@pytest.mark.parametrize("workflow_id", ["", "a\nb", "\udcff", "x" * 1001])
def test_an_id_that_cannot_be_one(workflow_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An id that Temporal cannot have is wrong input, and no reason to check the server."""
    for command in ("status", "rollback", "audit", "history"):
        assert cli.run([command, workflow_id]) == ExitCode.USAGE
        assert capsys.readouterr().err.startswith("error: invalid workflow id ")


def test_a_configuration_of_temporal_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command does not go to the default server and namespace because the name of the file is wrong."""
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.tml"))
    assert cli.run(["list"]) == ExitCode.USAGE
    assert "temporal.tml does not exist. cure: correct TEMPORAL_CONFIG_FILE" in capsys.readouterr().err


def test_a_task_queue_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal has no queue without a name: the setting is named, and no request is sent."""
    monkeypatch.setenv("PULSAR_MIGRATE_TASK_QUEUE", "")
    with pytest.raises(CommandFailed, match="PULSAR_MIGRATE_TASK_QUEUE"):
        read_settings()
