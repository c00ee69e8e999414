"""A pytest plugin for all tests: the option that runs everything, and an exit code that is the tests' own."""

from __future__ import annotations

import os
import sys

import pytest

_exit_code = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs everything."""
    parser.addoption("--exhaustive", action="store_true", help="also the tests that `make test` leaves out for time")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "exhaustive: takes long, and something shorter shows nearly the same; see --exhaustive"
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Return a line that says whether all tests run."""
    return "exhaustive tests run" if _is_exhaustive(config) else "exhaustive tests are left out: make test-exhaustive"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave exhaustive tests out, unless they are asked for, or named; the last line counts them."""
    if not _is_exhaustive(config):
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def _is_exhaustive(config: pytest.Config) -> bool:
    named = any("::" in argument for argument in config.args)
    return named or bool(config.option.exhaustive) or getattr(config.option, "rounds", None) is not None


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
