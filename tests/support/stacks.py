"""Fixtures that give tests real servers: `toolchain` for the session, `make_stack` for each module.

`PULSAR_MIGRATE_STACK=containers` runs the same stacks in containers, and skips where no container engine answers.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
from _pytest.capture import CaptureManager

from deploy.devstack.containers import ContainerStack, engine_trouble
from deploy.devstack.provision import Toolchain, provision
from deploy.devstack.stack import Stack, StackSpec

MakeStack = Callable[[StackSpec], Stack]


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
    stack_type = _stack_type()
    failed_before = request.session.testsfailed
    stacks: list[Stack] = []

    def make(spec: StackSpec) -> Stack:
        stack = stack_type(spec, tmp_path_factory.mktemp("stack"), toolchain)
        stacks.append(stack)
        stack.up()
        return stack

    yield make
    for stack in stacks:
        stack.down(graceful=False)
        _clean(stack.folder, keep_logs=request.session.testsfailed > failed_before)


def _stack_type() -> type[Stack]:
    if os.environ.get("PULSAR_MIGRATE_STACK", "processes") != "containers":
        return Stack
    if trouble := engine_trouble():
        pytest.skip(f"stacks in containers: {trouble}")
    return ContainerStack


def _clean(folder: Path, *, keep_logs: bool) -> None:
    if not keep_logs:
        shutil.rmtree(folder)
        return
    for data in folder.glob("*/data"):
        shutil.rmtree(data)
    sys.stderr.write(f"\nlogs of the stack: {folder}\n")
