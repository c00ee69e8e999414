"""Schemas of topics."""

from __future__ import annotations

from typing import Any

from pydantic import Field, TypeAdapter

from clients.pulsar.admin.answers import Answer
from clients.pulsar.admin.http import Endpoint, ReadEndpoint, parsed
from clients.pulsar.names import TopicName


class Schema(Answer):
    """A version of a topic's schema.

    Attributes:
        version: its number, from 0.
        type: `AVRO`, `JSON`, `STRING`, …
        data: the definition; empty for primitive types.
        properties: of its own.
        timestamp: when it was stored, in milliseconds since the epoch.
    """

    version: int
    type: str
    data: str = ""
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    timestamp: int = 0


_SCHEMA = TypeAdapter(Schema)


class _Versions(Answer):
    get_schema_responses: tuple[Schema, ...]


class _Deleted(Answer):
    version: int


_VERSIONS = TypeAdapter(_Versions)
_DELETED = TypeAdapter(_Deleted)


class SchemasReader:
    """Schemas of topics; a partitioned topic has one for all partitions."""

    def __init__(self, endpoint: ReadEndpoint) -> None:
        self._endpoint = endpoint

    def latest(self, topic: TopicName) -> Schema | None:
        """Return the newest version of a topic's schema; None if it has none."""
        return self._endpoint.find_as(_SCHEMA, f"/schemas/{topic.schema_path}/schema")

    def version(self, topic: TopicName, number: int) -> Schema | None:
        """Return one version of a topic's schema; None if there is no such version."""
        return self._endpoint.find_as(_SCHEMA, f"/schemas/{topic.schema_path}/schema/{number}")

    def versions(self, topic: TopicName) -> list[Schema]:
        """Return all versions of a topic's schema, oldest first; empty if it has none."""
        versions = self._endpoint.find_as(_VERSIONS, f"/schemas/{topic.schema_path}/schemas")
        return sorted(versions.get_schema_responses, key=lambda schema: schema.version) if versions else []


class Schemas(SchemasReader):
    """Schemas of topics, and what changes them."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._calls = endpoint

    def add(self, topic: TopicName, kind: str, data: str, properties: dict[str, str] | None = None) -> None:
        """Add a version to a topic's schema, unless the newest one is equal.

        Args:
            topic: a partitioned topic as a whole.
            kind: its type, for example `AVRO`.
            data: the definition.
            properties: of its own.

        Raises:
            AdminConflict: it is not compatible with the versions before it.
        """
        body: dict[str, Any] = {"type": kind, "schema": data, "properties": properties or {}}
        self._calls.post(f"/schemas/{topic.schema_path}/schema", body)

    def delete(self, topic: TopicName) -> int:
        """Delete all versions of a topic's schema.

        Returns:
            The number of the deletion, which counts as a version: the next one follows it.
        """
        answer = self._calls.delete(f"/schemas/{topic.schema_path}/schema")
        return parsed(_DELETED, answer).version
