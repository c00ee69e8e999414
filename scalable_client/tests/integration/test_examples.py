"""The examples in the README and in the distribution run as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.stacks import SharedStack

pytestmark = pytest.mark.exhaustive

FOLDER = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
URL = "pulsar://localhost:6650"


@pytest.fixture(scope="module")
def stack(shared_stack: SharedStack) -> Stack:
    """Two brokers."""
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=2))


@pytest.fixture(scope="module")
def orders(stack: Stack) -> Generator[TopicName]:
    """The topic that the examples name."""
    name = TopicName.parse("public/default/orders")
    with PulsarAdmin.open(AdminAccess(timeout=60), stack.admin_urls) as admin:
        admin.scalable_topics.create(name, 2)
        admin.scalable_topics.set_auto_scale_policy(name, AutoScalePolicy(enabled=False))
        for subscription, kind in (("work", SubscriptionKind.QUEUE), ("billing", SubscriptionKind.STREAM)):
            admin.scalable_topics.register(name, subscription, kind)
        yield name


def run(stack: Stack, folder: Path, *command: str) -> str:
    """Run Python with the package on its path."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme(stack: Stack, orders: TopicName, tmp_path: Path) -> None:
    """Each example of the README runs, in the README's order."""
    assert len(BLOCKS) == 5
    printed = [run(stack, tmp_path, "-c", block.replace(URL, stack.broker_url)) for block in BLOCKS]
    assert printed[0] == "stored\n"
    assert printed[2].startswith("customer-1 b'one' of segment ")
    assert printed[3] == "b'two'\n"


def test_the_examples(stack: Stack, orders: TopicName, tmp_path: Path) -> None:
    """Each example does what it says."""
    topic = f"topic://{orders.local_path}"

    def example(name: str, *more: str) -> str:
        return run(stack, tmp_path, str(FOLDER / "examples" / name), stack.broker_url, topic, *more)

    assert example("replay.py").endswith("orders were read\n")
    assert example("produce.py", "50") == "50 of 50 orders are stored\n"
    assert example("replay.py") == "50 orders were read\n"
    assert example("in_order.py").endswith("orders were received\n")
