"""Options of the faults tier, its rounds, and what all share: one Temporal and one worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from importlib import import_module
from typing import Any, cast

import pytest
from _pytest.capture import CaptureManager

from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.rounds import Choice
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.gates import Gates
from tests.support.lifecycle.operator import Operator
from worker.catalog import ALL

_DEFAULT_SEED = 454
_ROUNDS: dict[str, Choice] = {
    f"{kind.package}_round": import_module(f"tests.faults.{kind.package}.rounds").ROUNDS for kind in ALL.values()
}
"""Where rounds come from, by the parameter of the tests that play them: `<package>_round`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the faults tier."""
    group = parser.getgroup("faults")
    group.addoption(
        "--rounds",
        type=int,
        help="rounds of faults over all migrations: the matrix first, then random ones; default: a fixed sample",
    )
    group.addoption("--seed", type=int, default=_DEFAULT_SEED, help="decides instants and durations of faults")
    group.addoption("--replay", action="append", default=[], help="a round as its line names it: victim/step.edge/seed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of a replay all but its rounds."""
    options: Any = config.option
    if options.replay:
        left_out = [item for item in items if not _ROUNDS.keys() & getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each round; a number of rounds is shared by all migrations."""
    options: Any = metafunc.config.option
    for place, (name, choice) in enumerate(_ROUNDS.items()):
        if name in metafunc.fixturenames:
            count = None if options.rounds is None else (options.rounds + place) // len(_ROUNDS)
            chosen = choice.replay(options.replay) if options.replay else choice.rounds(count, options.seed)
            first = choice.first if count is None and not options.replay else len(chosen)
            rest = [pytest.param(fault, marks=pytest.mark.exhaustive) for fault in chosen[first:]]
            metafunc.parametrize(name, [*chosen[:first], *rest], ids=str)


@pytest.fixture(scope="session")
def environment(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[FaultEnvironment]:
    """Temporal, an operator, and a worker whose steps can be held."""
    folder = tmp_path_factory.mktemp("environment")
    (folder / "gates").mkdir()
    with ExitStack() as opened:
        stack = opened.enter_context(Stack(StackSpec(temporal=True), folder / "stack", toolchain))
        operator = opened.enter_context(Operator(stack.temporal_address))
        link = opened.enter_context(Proxy(stack.temporal_address))
        environment = FaultEnvironment(folder, stack, operator, Gates(folder / "gates"), link)
        opened.callback(environment.close)
        environment.worker.restart()
        yield environment


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line at once, whatever captures the output."""
    capture = cast("CaptureManager", request.config.pluginmanager.getplugin("capturemanager"))

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n{text}\n")
            sys.stdout.flush()

    return line
