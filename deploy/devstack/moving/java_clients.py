"""Producers and consumers with Pulsar's Java client (`data/java/MovingClients.java`), in one Java machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.devstack.java_tool import JAVA_SOURCES, JavaTool
from deploy.devstack.moving.account import ConsumerRecord, ProducerRecord, Received, Sent
from deploy.devstack.moving.plan import ConsumerPlan, ProducerPlan
from deploy.devstack.moving.python_clients import QUEUE, SEND_LIMIT_MS
from deploy.devstack.toolchain import Toolchain

# The libraries' log says how they follow, as that of Python's does.
_OPTIONS = ("-Xmx768m", "-Dlog.level=info")


class JavaClients:
    """Producers and consumers of one Java machine.

    Args:
        service_url: of the cluster that they begin with.
        folder: where its log goes, `java-movingclients.log`.
        tools: Java and the jars.
        shared: one client for all, instead of one for each.
    """

    def __init__(self, service_url: str, folder: Path, tools: Toolchain, *, shared: bool) -> None:
        self._tool = JavaTool(JAVA_SOURCES / "MovingClients.java", tools, folder, options=_OPTIONS)
        self._common: dict[str, Any] = {
            "service": service_url,
            "shared": shared,
            "queue": QUEUE,
            "send_limit_ms": SEND_LIMIT_MS,
        }
        self._producers: dict[str, ProducerRecord] = {}
        self._consumers: dict[str, ConsumerRecord] = {}

    def subscribe(self, plans: Sequence[ConsumerPlan]) -> None:
        """Open consumers, and begin to receive."""
        self._consumers = {plan.name: ConsumerRecord(plan) for plan in plans}
        self._tool.ask("subscribe", plans=[asdict(plan) for plan in plans], **self._common)

    def open_producers(self, plans: Sequence[ProducerPlan]) -> None:
        """Open producers, which do not send yet."""
        self._producers = {plan.name: ProducerRecord(plan) for plan in plans}
        self._tool.ask("open_producers", plans=[asdict(plan) for plan in plans], **self._common)

    def start(self) -> None:
        """Begin to send."""
        self._tool.ask("start")

    def stop_sending(self, limit: float) -> None:
        """End the sending, and wait, `limit` seconds at most, until every message was acknowledged or refused."""
        self._tool.ask("stop_sending", limit=limit)

    def collect(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        """What all of them did so far."""
        noted = self._tool.ask("collect")
        for name, found in noted["consumers"].items():
            record = self._consumers[name]
            record.received += [Received(*one) for one in found["received"]]
            record.breaks += found["breaks"]
            record.corrupt += found["corrupt"]
            record.errors += _errors(found["errors"])
        producers = [self._sent(self._producers[name], found) for name, found in noted["producers"].items()]
        return producers, list(self._consumers.values())

    def close(self) -> None:
        """End everything."""
        self._tool.__exit__(None, None, None)

    @staticmethod
    def _sent(record: ProducerRecord, found: Any) -> ProducerRecord:
        record.sent += [Sent(*one) for one in found["sent"]]
        record.errors += _errors(found["errors"])
        sent = [*record.sent, *(Sent(*one) for one in found["open"])]
        return ProducerRecord(record.plan, sorted(sent, key=lambda one: one.at), list(record.errors))


def _errors(found: Iterable[Sequence[Any]]) -> list[tuple[float, str]]:
    return [(when, reason) for when, reason in found]
