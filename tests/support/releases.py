"""On which releases of Pulsar tests run: that of `PULSAR_MIGRATE_PULSAR`, and in a usual run samples of others."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from models.releases import Behaviour, parse_release
from pulsar_devstack.servers.provision import with_release
from pulsar_devstack.servers.server_releases import RELEASES, chosen_release
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from tests.releases import BLUE_VARIABLE
from tests.support.stacks import MakeStack, SharedStack

TestT = TypeVar("TestT", bound=Callable[..., None])

CHOSEN = chosen_release().line
"""The release line of this run."""

RELEASE = parse_release(chosen_release().version)
"""The release of this run."""

native_topics = pytest.mark.skipif(
    not RELEASE.has(Behaviour.SCALABLE_TOPICS),
    reason=f"brokers of {RELEASE} control no scalable topics themselves",
)
"""Marks what needs brokers with a controller of their own."""

live_migrations = pytest.mark.skipif(
    not RELEASE.has(Behaviour.LIVE_MIGRATION),
    reason=f"brokers of {RELEASE} take no part in a live migration (PIP-454)",
)
"""Marks what needs brokers and bookies that take part in a migration of their metadata store."""

SAMPLED_ON_ANOTHER = [pytest.mark.exhaustive] if next(iter(RELEASES)) == CHOSEN else []
"""Marks what `make test` runs on an older release, so that on the default one it is left to `make test-exhaustive`."""


def sampled_from_older_blue(test: TestT) -> TestT:
    """Leave a test to `make test-exhaustive` unless blue has an older release, from which `make test` runs it."""
    return test if os.environ.get(BLUE_VARIABLE) else pytest.mark.exhaustive(test)


def with_sample(line: str, *, exhaustive: bool = False) -> list[object]:
    """Return parameters of a fixture: the release line of this run and, if that is the default, an older one.

    Args:
        line: the older one; a run on that line, or a third one, has it as its own.
        exhaustive: whether the older one is left out of `make test`.
    """
    if next(iter(RELEASES)) != CHOSEN:
        return [CHOSEN]
    return [CHOSEN, pytest.param(line, marks=pytest.mark.exhaustive) if exhaustive else line]


def stack_of(line: str, spec: StackSpec, shared: SharedStack, make: MakeStack, tools: Toolchain) -> Stack:
    """Return a stack of a release line: the shared one of this run, or one that ends with the module's tests."""
    return shared(spec) if line == CHOSEN else make(spec, tools=with_release(tools, line))
