"""The image, built once in a session by `make image` from a copy of the checkout."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sealed.products import ROOT
from tests.support.wheel import copy_checkout

NAME = "pulsar-migrate:test"


@dataclass(frozen=True)
class BuiltImage:
    """An image, and what its build left.

    Attributes:
        checkout: the copy of the checkout that it was built in.
        base: name and digest of its base.
        output: what the build printed.
        seconds: how long it took.
    """

    checkout: Path
    base: str
    output: str
    seconds: float


@pytest.fixture(scope="session")
def base() -> str:
    """Name and digest of the base image, in the registry of the sealed network."""
    if "SEALED_BASE" not in os.environ:
        pytest.skip("needs a sealed network and an engine: make test-image")
    return os.environ["SEALED_BASE"]


@pytest.fixture(scope="session")
def checkout(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout, without what was built in it."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    return folder


@pytest.fixture(scope="session")
def image(checkout: Path, base: str) -> BuiltImage:
    """Build the image in the sealed network."""
    begun = time.monotonic()
    done = run(make_image(base), checkout)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return BuiltImage(checkout, base, output, time.monotonic() - begun)


def make_image(base: str) -> list[str]:
    """Return the command that builds the image on a base, where each step has the sealed network."""
    return ["make", "image", f"BASE={base}", f"IMAGE={NAME}", "BUILD_FLAGS=--network=host"]


def run(
    command: Sequence[str], cwd: Path = ROOT, *, limit: float = 600, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return what it printed and its exit code."""
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=limit, check=False)
