"""Options of the faults tier, and its servers: one Temporal and one worker, and a fresh cluster for each round."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any, cast

import pytest
from _pytest.capture import CaptureManager

from deploy.devstack.provision import Toolchain
from deploy.devstack.stack import Stack, StackSpec
from tests.faults.bookie_cluster import rounds as switch_rounds
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.stack_pool import StackPool
from tests.faults.metadata_store import rounds as metadata_rounds
from tests.faults.metadata_store.environment import CLUSTER
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.gates import Gates
from tests.support.lifecycle.operator import Operator
from tests.support.stacks import stack_maker

_SPEC = StackSpec(zookeepers=1, oxias=1, bookies=1, brokers=2, cluster=CLUSTER)
_DEFAULT_SEED = 454
_ROUNDS = {"round_": metadata_rounds.ROUNDS, "switch_round": switch_rounds.ROUNDS}


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


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "exhaustive: not of the fixed sample; runs where a number of rounds is given")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the fixed sample has no time for, and of a replay all but its rounds; the last line counts it."""
    options: Any = config.option
    if options.replay:
        left_out = [item for item in items if not _ROUNDS.keys() & getattr(item, "fixturenames", ())]
    elif options.rounds is None:
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    else:
        left_out = []
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each round; a number of rounds is shared by all migrations."""
    options: Any = metafunc.config.option
    for place, (name, choice) in enumerate(_ROUNDS.items()):
        if name in metafunc.fixturenames:
            count = None if options.rounds is None else (options.rounds + place) // len(_ROUNDS)
            chosen = choice.replay(options.replay) if options.replay else choice.rounds(count, options.seed)
            metafunc.parametrize(name, chosen, ids=str)


@pytest.fixture(scope="package")
def stacks(
    toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Generator[StackPool]:
    """Fresh clusters: ZooKeeper, Oxia, a bookie and two brokers."""
    wanted = sum("stacks" in getattr(item, "fixturenames", ()) for item in request.session.items)
    with stack_maker(toolchain, tmp_path_factory, request.session) as make:
        pool = StackPool(lambda: make(_SPEC), wanted)
        yield pool
        pool.close()


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
