"""The cluster of the benchmark, and what controls our topics: a Temporal server, a worker and the REST gateway."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from temporalio.client import Client

from bench.lifecycle.machine import importable
from bench.lifecycle.measure import serving_worker
from bench.lifecycle.results import Side
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from models.topic_controller.input import controller_id
from models.topic_controller.sessions import GraceChange
from pulsar_devstack.servers.child_programs import Child
from pulsar_devstack.servers.ports import free_port
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.two_clusters import create_namespace
from temporal.converter import DATA_CONVERTER

CLUSTER = "bench"
NAMESPACE = "bench/topics"
GRACE = 5
"""Seconds that sessions of consumers outlive their connections, on both sides."""

_ACCESS = AdminAccess(timeout=60)
_START_SECONDS = 180.0
_SETTINGS = {
    "scalableTopicConsumerSessionGracePeriodSeconds": str(GRACE),
    # Without it a segment that was ended during sends refuses its readers for good (apache/pulsar pull request 26678),
    # and the peer has nothing to measure.
    "topicFencingTimeoutSeconds": "1",
}


class Servers:
    """Servers of both sides, from the entry of the context to its end.

    Args:
        folder: for data and logs.
        tools: the programs.

    Attributes:
        stack: the cluster with the Temporal server.
        gateway: address of the REST gateway, once they are started.
    """

    def __init__(self, folder: Path, tools: Toolchain) -> None:
        spec = StackSpec(zookeepers=1, bookies=1, brokers=2, cluster=CLUSTER, temporal=True, broker_settings=_SETTINGS)
        self.stack = Stack(spec, folder / CLUSTER, tools)
        self.gateway = ""
        self._folder = folder
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            stack = opening.enter_context(self.stack)
            brokers = opening.enter_context(PulsarAdmin.open(_ACCESS, stack.admin_urls))
            create_namespace(brokers, CLUSTER, NAMESPACE, [])
            self.gateway = self._begin(opening)
            ours = opening.enter_context(PulsarAdmin.open(_ACCESS, (self.gateway,)))
            self._admins = {Side.PEER: brokers, Side.OURS: ours}
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def admin(self, side: Side) -> PulsarAdmin:
        """Return the admin client for the topics of a side."""
        return self._admins[side]

    def shorten_grace(self, topic: str) -> None:
        """Set the grace period of one of our topics to this benchmark's; brokers have it in their settings."""

        async def send() -> None:
            client = await Client.connect(self.stack.temporal_address, data_converter=DATA_CONVERTER)
            # The SDK's annotations of updates are partly untyped.
            handle: Any = client.get_workflow_handle(controller_id(CLUSTER, topic))
            await handle.execute_update("set_grace", GraceChange(grace=timedelta(seconds=GRACE)))

        asyncio.run(send())

    def _begin(self, opening: ExitStack) -> str:
        """Start the worker and the gateway; returns the address of the latter."""
        settings = settings_of(self.stack)
        opening.enter_context(serving_worker(self.stack.temporal_address, self._folder))
        port = free_port()
        settings |= self.stack.gateway_settings(port=str(port), public_url=f"http://127.0.0.1:{port}")
        gateway = Child([sys.executable, "-m", "pulsar_migrate", "gateway"], self._folder / "gateway.log", settings)
        opening.enter_context(gateway)
        line = gateway.await_line("gateway ready", _START_SECONDS)
        return line.split()[2]


def settings_of(stack: Stack) -> dict[str, str]:
    """Return the variables of our processes next to a stack."""
    return {"TEMPORAL_ADDRESS": stack.temporal_address, "PULSAR_MIGRATE_METRICS_ADDRESS": "", **importable()}
