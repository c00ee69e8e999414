"""A controlled topic under traffic, with all that must hold of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from tests.support.lifecycle.operator import Operator
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.oracle import Oracle
from tests.support.topic_controller.registrar import Registrar
from tests.support.topic_controller.traffic import ORDERED, SHARED, Traffic

SOME = 20
"""Messages that show that all flows."""


@contextmanager
def flowing(operator: Operator, stack: Stack, topic: str) -> Generator[tuple[Controller, Traffic]]:
    """Run traffic on a topic of two segments; check at the end that nothing is wrong."""
    with ExitStack() as opened:
        admin = opened.enter_context(PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls))
        controller = Controller.of(operator, stack, f"persistent://public/default/{topic}", segments=2)
        opened.callback(controller.terminate)
        controller.subscribe(SHARED, SubscriptionKind.QUEUE)
        controller.subscribe(ORDERED)
        registrar = opened.enter_context(Registrar(lambda: controller))
        oracle = opened.enter_context(Oracle(stack, controller.name, (SHARED, ORDERED)))
        traffic = opened.enter_context(Traffic(stack.broker_url, controller.input.topic, registrar.base_url, rate=200))
        traffic.wait_for_more(SOME)
        yield controller, traffic
        traffic.wait_for_more(SOME)
        traffic.stop()
        assert traffic.faults() == []
        assert oracle.faults_at_rest(admin) == []
