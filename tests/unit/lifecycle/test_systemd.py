"""The unit of systemd: systemd accepts it, confines the worker, and what it names exists."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.app import app
from models.settings import Settings
from process.exit_codes import ExitCode

_UNIT = Path(__file__).parents[3] / "deploy/systemd/pulsar-migrate-worker.service"
_MOST_EXPOSED = 2.0
"""Of 10, as `systemd-analyze security` counts; a unit without any protection has 9.6."""


def _lines(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", _UNIT.read_text(), flags=re.MULTILINE)


def test_the_command_and_the_settings_exist() -> None:
    """The command has the option, settings are ours, and the exit code is that of wrong settings."""
    [command] = _lines("ExecStart")
    _, name, option, file = shlex.split(command)
    group: Any = get_command(app)
    worker = group.commands[name]
    assert option in [text for parameter in worker.params for text in parameter.opts]
    assert file.startswith(f"%t/{_lines('RuntimeDirectory')[0]}/")
    names = {line.partition("=")[0] for line in _lines("Environment")}
    assert names <= {f"PULSAR_MIGRATE_{field.upper()}" for field in Settings.model_fields}
    assert _lines("RestartPreventExitStatus") == [str(ExitCode.USAGE.value)]


def test_systemd_accepts_it(tmp_path: Path) -> None:
    """Systemd knows each line, and rates the worker as confined."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed; to run this: apt-get install systemd")
    # The program must exist, or systemd complains about that.
    unit = tmp_path / _UNIT.name
    unit.write_text(_UNIT.read_text().replace("/opt/pulsar-migrate/bin/pulsar-migrate", "/bin/true"))
    verified = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    rated = subprocess.run(
        [program, "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    rating = re.search(r"exposure level for \S+: (\d+\.\d)", rated.stdout)
    assert rating, rated.stdout + rated.stderr
    assert float(rating[1]) <= _MOST_EXPOSED
