"""Fixtures that give tests real servers: `toolchain`, `shared_stack` for the session, `make_stack` for each module.

`PULSAR_MIGRATE_STACK=containers` runs the same stacks in containers, and skips where no container engine answers.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Protocol, cast

import pytest
from _pytest.capture import CaptureManager

from pulsar_devstack.servers.containers import ContainerStack, unavailable_reason
from pulsar_devstack.servers.provision import Toolchain, provision
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.worker import WorkerProcess

_COMPLAINT = re.compile(r"\b(WARN|ERROR|FATAL)\b|Exception|Error:")
_COMPLAINTS = 12
_running: list[Stack] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure how the worker's log ends, and what servers complained of last."""
    report = yield
    if report.failed:
        worker = getattr(getattr(item, "funcargs", {}).get("environment"), "worker", None)
        if isinstance(worker, WorkerProcess):
            report.sections.append(("log of the worker", worker.story("")))
        for stack in _running:
            report.sections += complaints(stack)
    return report


def complaints(stack: Stack) -> list[tuple[str, str]]:
    """Return the last warnings and errors of each server of a stack, with a title; nothing if none runs."""
    if not any(server.alive for server in stack):
        return []
    complaints_by_server = [
        (server.name, [line for line in server.tail(1000) if _COMPLAINT.search(line)]) for server in stack
    ]
    return [
        (f"last complaints of {name}", "\n".join(lines[-_COMPLAINTS:])) for name, lines in complaints_by_server if lines
    ]


class SharedStack(Protocol):
    """Gives stacks that all modules share."""

    def __call__(self, spec: StackSpec, tools: Toolchain | None = None) -> Stack:
        """Return the stack of a spec.

        Args:
            spec: its servers.
            tools: other programs than usual.
        """
        ...


class MakeStack(Protocol):
    """Starts stacks."""

    def __call__(
        self,
        spec: StackSpec,
        before_start: Callable[[Stack], None] | None = None,
        *,
        tools: Toolchain | None = None,
    ) -> Stack:
        """Start a stack.

        Args:
            spec: its servers.
            before_start: changes the settings of servers, which need no restart for it then.
            tools: other programs than usual.
        """
        ...


@pytest.fixture(scope="session")
def toolchain(request: pytest.FixtureRequest) -> Toolchain:
    """The servers' programs; what is missing is provisioned in plain sight, because it takes minutes."""
    capture = cast("CaptureManager | None", request.config.pluginmanager.getplugin("capturemanager"))
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        return provision()


@pytest.fixture(scope="module")
def make_stack(
    toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[MakeStack]:
    """Start stacks that live as long as the module's tests; after a failure their logs and settings are kept."""
    with stack_maker(toolchain, tmp_path_factory, request.session) as make:
        yield make


@pytest.fixture(scope="session")
def shared_stack(
    toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SharedStack]:
    """The one stack of a spec that all modules share: a test leaves its servers running, and others' data alone."""
    with stack_maker(toolchain, tmp_path_factory, request.session) as make:
        stacks: list[Stack] = []

        def share(spec: StackSpec, tools: Toolchain | None = None) -> Stack:
            running = next((stack for stack in stacks if stack.state.spec == spec), None)
            if running is None:
                stacks.append(running := make(spec, tools=tools))
            # A test that failed may have left a server down.
            running.up()
            return running

        yield share


@contextmanager
def stack_maker(toolchain: Toolchain, folders: pytest.TempPathFactory, session: pytest.Session) -> Generator[MakeStack]:
    """Yield a function that starts stacks; they end with the context. A failure keeps their logs and settings."""
    stack_type = _stack_type()
    failed_before = session.testsfailed
    stacks: list[Stack] = []

    def make(
        spec: StackSpec, before_start: Callable[[Stack], None] | None = None, *, tools: Toolchain | None = None
    ) -> Stack:
        stack = stack_type(spec, folders.mktemp("stack"), tools or toolchain)
        stacks.append(stack)
        _running.append(stack)
        if before_start:
            before_start(stack)
        stack.up()
        return stack

    yield make
    for stack in stacks:
        _running.remove(stack)
        stack.down(graceful=False)
        _clean(stack.folder, keep_logs=session.testsfailed > failed_before)


def _stack_type() -> type[Stack]:
    if os.environ.get("PULSAR_MIGRATE_STACK", "processes") != "containers":
        return Stack
    if trouble := unavailable_reason():
        pytest.skip(f"stacks in containers: {trouble}")
    return ContainerStack


def _clean(folder: Path, *, keep_logs: bool) -> None:
    if not keep_logs:
        shutil.rmtree(folder)
        return
    for data in folder.glob("*/data"):
        shutil.rmtree(data)
    sys.stderr.write(f"\nlogs of the stack: {folder}\n")
