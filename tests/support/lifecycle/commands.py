"""Our commands, as operators run them: in a process of their own, against the Temporal server of an environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.lifecycle.environment import Environment

_ROOT = Path(__file__).parents[3]
_LIMIT = 120.0


def run_command(environment: Environment, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `pulsar-migrate`, without the settings of this process.

    Args:
        environment: whose Temporal server it talks to.
        words: of the command.
        settings: further variables.
    """
    return run_against(environment.stack.temporal_address, *words, **settings)


def run_against(address: str, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `pulsar-migrate` against a Temporal server; see `run_command`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "PULSAR_"))}
    return subprocess.run(
        [sys.executable, "-m", "pulsar_migrate", *words],
        env={**ours, "TEMPORAL_ADDRESS": address, **settings},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
