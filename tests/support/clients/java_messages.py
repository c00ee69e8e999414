"""Pulsar's own Java client (`java/Messages.java`), for what the Python client lacks: typed records and transactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.java_programs import JavaTool
from pulsar_devstack.servers.toolchain import Toolchain

SchemaKind = Literal["AVRO", "JSON"]


class Record(NamedTuple):
    """A typed message.

    Attributes:
        version: of the schema that it was written with, counted from 0.
        fields: names to values, as text.
    """

    version: int
    fields: dict[str, str]


class JavaMessages(JavaTool):
    """One Java machine with Pulsar's client. Every call may raise `Refused`.

    Args:
        tools: Java and the jars.
        folder: where its log goes.
    """

    def __init__(self, tools: Toolchain, folder: Path) -> None:
        super().__init__(Path(__file__).parent / "java" / "Messages.java", tools, folder)

    def send_records(
        self, service: str, topic: str, kind: SchemaKind, definition: str, records: Sequence[dict[str, str | int]]
    ) -> None:
        """Send records of one schema; a new schema becomes the topic's next version.

        Args:
            service: `pulsar://host:port[,...]`.
            topic: by any of its names.
            kind: how records are encoded.
            definition: the schema, in Avro's JSON.
            records: names to values, ints or text as the schema says.
        """
        rows = list(records)
        self.ask(
            "send_records", service=service, topic=topic_url(topic), type=kind, definition=definition, records=rows
        )

    def read_records(self, service: str, topic: str) -> list[Record]:
        """Return all records that the topic holds, each decoded by the schema version that it names."""
        answer = self.ask("read_records", service=service, topic=topic_url(topic))
        return [Record(row["version"], row["fields"]) for row in answer]

    def transact(
        self,
        service: str,
        topic: str,
        payloads: Sequence[bytes],
        *,
        subscription: str,
        acknowledge: Sequence[bytes],
        commit: bool,
    ) -> None:
        """Send messages, and acknowledge messages of a subscription, in one transaction; payloads are ASCII text.

        Args:
            service: `pulsar://host:port[,...]`.
            topic: by any of its names.
            payloads: what to send.
            subscription: made where it is missing, from the earliest message on.
            acknowledge: payloads of the messages to acknowledge.
            commit: False aborts.
        """
        self.ask(
            "transact",
            service=service,
            topic=topic_url(topic),
            payloads=[payload.decode() for payload in payloads],
            subscription=subscription,
            acknowledge=[message_id.decode() for message_id in acknowledge],
            commit=commit,
        )
