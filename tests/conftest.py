"""What all tiers share: real servers, and an exit code that is the tests' own."""

from __future__ import annotations

import os
import sys

import pytest

pytest_plugins = ["tests.support.stacks"]

_exit_code = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remember how the tests ended."""
    session.config.stash[_exit_code] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave at once: native threads of clients have crashed interpreters at their exit, after all tests had passed."""
    code = config.stash.get(_exit_code, None)
    if code is None:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
