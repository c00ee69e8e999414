"""Schemas of a topic in the same versions on both sides: stored messages and clients name them by number."""

from __future__ import annotations

from collections.abc import Iterator

from activities.blue_green.deltas import Change, Delta, differs, extra, missing
from activities.pulsar.schema_versions import FREED, STRATEGY, add_version, bind
from activities.pulsar.topic_inventory import TopicInventory
from clients.pulsar.admin.late_requests import FencedAdmin
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.names import TopicName


def schema_deltas(blue: TopicInventory, green: TopicInventory) -> Iterator[Delta]:
    """How the versions of a topic's schema differ, and what ends it."""
    yield from _version_deltas(blue, green)
    if FREED in (green.properties or {}):
        # An attempt ended while it was so.
        strategy = (blue.policies or {}).get(STRATEGY)
        path = f"topic {blue.name}: policy {STRATEGY} as it was"
        yield missing(path, strategy or "not set", "topic policy", lambda admin: bind(admin, blue.name, strategy))


def _version_deltas(blue: TopicInventory, green: TopicInventory) -> Iterator[Delta]:
    path, name = f"topic {blue.name}: schema", blue.name
    wanted, there = blue.schemas, green.schemas
    for of_blue, of_green in zip(wanted, there, strict=False):
        if _content(of_blue) != _content(of_green):
            # Versions stay for ever: nothing but the deletion of the topic makes room for others.
            yield differs(f"{path} version {of_blue.version}", (_text(of_blue), _text(of_green)))
            return
    for one in there[len(wanted) :]:
        yield extra(f"{path} version {one.version}", _text(one))
    strategy = (blue.policies or {}).get(STRATEGY)
    for one in wanted[len(there) :]:
        yield missing(f"{path} version {one.version}", _text(one), "schema version", _addition(name, one, strategy))


def _content(schema: Schema) -> tuple[object, ...]:
    return schema.version, schema.type, schema.data, schema.properties


def _text(schema: Schema) -> str:
    return f"version {schema.version}, {schema.type} {schema.data}".strip()


def _addition(topic: TopicName, schema: Schema, strategy: str | None) -> Change:
    def add(admin: FencedAdmin) -> None:
        add_version(admin, topic, schema, strategy)

    return add
