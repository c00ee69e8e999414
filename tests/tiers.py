"""Run the checks, provision the servers, and run the four tiers of tests; say how long each took.

`python -m tests.tiers [checks|servers|unit|workflows|integration|faults]...`; all of them by default. Ends with the
first failure.
"""

from __future__ import annotations

import subprocess
import sys
import time

PYTEST = [sys.executable, "-m", "pytest", "-q", "--durations=5"]
TIERS: dict[str, list[list[str]]] = {
    "checks": [
        [sys.executable, "-m", "ruff", "check", "."],
        [sys.executable, "-m", "ruff", "format", "--check", "."],
        [sys.executable, "-m", "pyright"],
    ],
    # Outside of pytest, whose time limits are made for tests: the first time it builds for minutes.
    "servers": [[sys.executable, "-m", "cli.app", "dev", "provision"]],
    "unit": [[*PYTEST, "tests/unit"]],
    "workflows": [[*PYTEST, "tests/workflows"]],
    "integration": [[*PYTEST, "tests/integration"]],
    "faults": [[*PYTEST, "tests/faults"]],
}


def main(names: list[str]) -> int:
    """Run the named tiers; returns the exit code of the first command that fails, else 0."""
    taken: dict[str, float] = {}
    code = 0
    for name in names or TIERS:
        begun = time.monotonic()
        sys.stdout.write(f"\n== {name} ==\n")
        sys.stdout.flush()
        code = next((code for command in TIERS[name] if (code := subprocess.call(command))), 0)
        taken[name] = time.monotonic() - begun
        if code:
            break
    sys.stdout.write("\ntier           seconds\n")
    sys.stdout.writelines(f"{name:<14} {seconds:>7.1f}\n" for name, seconds in taken.items())
    sys.stdout.write(f"{'total':<14} {sum(taken.values()):>7.1f}  {'FAILED' if code else 'passed'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
