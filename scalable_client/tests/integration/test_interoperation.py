"""The Java client 5.0.1 and this one, together on one scalable topic and one subscription."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from scalable_client.tests.support.interoperation import Kind, Together
from scalable_client.tests.support.topics import make_scalable, scalable

from clients.pulsar.admin.client import PulsarAdmin
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_program import ClientProgram
from pulsar_devstack.traffic.plan import Language
from pulsar_scalable import ScalableClient


@pytest.fixture
def java(stack: Stack, toolchain: Toolchain, tmp_path: Path) -> Generator[ClientProgram]:
    """Clients of the Java library for scalable topics."""
    tools = with_scalable_clients(toolchain)
    with closing(ClientProgram.of(Language.JAVA_V5, stack.broker_url, tmp_path, tools, shared=True)) as clients:
        yield clients


@pytest.fixture
def python(stack: Stack) -> Generator[ScalableClient]:
    """Python's client library."""
    with ScalableClient(stack.broker_url) as client:
        yield client


def test_streams_of_both_languages(admin: PulsarAdmin, java: ClientProgram, python: ScalableClient) -> None:
    """Nothing is lost, the order of each key is kept, and all consumers work, through a split, a merge, a rebucket.

    The topic begins with one segment, which all consumers share by its entry buckets.
    """
    name = make_scalable(admin, 1)
    together = Together(java, python, scalable(name), Kind.STREAM)
    together.await_work("on one segment", "java", "python")
    third = together.join("another")
    together.await_work("as three on one segment", "java", "python", "another")
    admin.scalable_topics.split(name, 0)
    together.await_work("after the split", "java", "python", "another")
    third.close()
    together.await_work("after one has left", "java", "python")
    admin.scalable_topics.merge(name, 1, 2)
    together.await_work("after the merge", "java", "python")
    admin.scalable_topics.rebucket(name, 3, 2)
    together.await_work("after the rebucket", "java", "python")
    together.finish()


def test_queues_of_both_languages(admin: PulsarAdmin, java: ClientProgram, python: ScalableClient) -> None:
    """Nothing is lost, and both consumers work, through a split, a merge and a rebucket."""
    name = make_scalable(admin, 1, SubscriptionKind.QUEUE)
    together = Together(java, python, scalable(name), Kind.QUEUE)
    together.await_work("on one segment", "java", "python")
    admin.scalable_topics.split(name, 0)
    together.await_work("after the split", "java", "python")
    admin.scalable_topics.merge(name, 1, 2)
    together.await_work("after the merge", "java", "python")
    admin.scalable_topics.rebucket(name, 3, 2)
    together.await_work("after the rebucket", "java", "python")
    together.finish()


def test_checkpoint_consumers_of_both_languages(
    admin: PulsarAdmin, java: ClientProgram, python: ScalableClient
) -> None:
    """Each receives everything, with the order of each key kept, through a split, a merge and a rebucket."""
    name = make_scalable(admin, 1)
    together = Together(java, python, scalable(name), Kind.CHECKPOINT)
    together.await_work("on one segment", "java", "python")
    for what, change in (
        ("split", lambda: admin.scalable_topics.split(name, 0)),
        ("merge", lambda: admin.scalable_topics.merge(name, 1, 2)),
        ("rebucket", lambda: admin.scalable_topics.rebucket(name, 3, 2)),
    ):
        change()
        together.await_work(f"after the {what}", "java", "python")
    together.finish()
