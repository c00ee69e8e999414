"""Pulsar's Java library for scalable topics, with transactions (`java/SegmentTransactions.java`)."""

from __future__ import annotations

from pathlib import Path

from clients.pulsar.names import TopicName
from pulsar_devstack.servers.java_programs import JavaTool
from pulsar_devstack.servers.toolchain import Toolchain


class SegmentTransactions(JavaTool):
    """One producer, whose transactions stay open between calls. Every call may raise `Refused`.

    Args:
        tools: Java and the jars, with those of scalable topics.
        folder: where its log goes.
        service: `pulsar://host:port[,...]`.
        topic: the scalable topic.
    """

    def __init__(self, tools: Toolchain, folder: Path, service: str, topic: TopicName) -> None:
        super().__init__(Path(__file__).parent / "java" / "SegmentTransactions.java", tools, folder)
        self._given = {"service": service, "topic": f"topic://{topic.namespace_path}/{topic.topic}"}

    def send(self, payload: str, transaction: str = "") -> None:
        """Send a message, in the transaction of a name or in none; a new name begins a transaction."""
        self.ask("send", payload=payload, transaction=transaction, **self._given)

    def commit(self, transaction: str) -> None:
        """Commit a transaction."""
        self.ask("commit", transaction=transaction)

    def abort(self, transaction: str) -> None:
        """End a transaction without its messages."""
        self.ask("abort", transaction=transaction)
