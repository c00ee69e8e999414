"""Schemas of a topic in the same versions on both sides: stored messages and clients name them by number."""

from __future__ import annotations

import time
from collections.abc import Iterator

from activities.blue_green.deltas import Change, Delta, differs, extra, missing
from activities.lifecycle.topic_inventory import TopicInventory
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.names import TopicName

FREED = "pulsar-migrate/schemas-follow-freely"
"""Property of a topic on green whose schemas may follow each other freely for a moment."""

_STRATEGY = "schemaCompatibilityStrategy"
_FREE = "ALWAYS_COMPATIBLE"
# Until brokers know a policy of a topic.
_LIMIT = 10.0
_PAUSE = 0.2


def schema_deltas(blue: TopicInventory, green: TopicInventory) -> Iterator[Delta]:
    """How the versions of a topic's schema differ, and what ends it."""
    yield from _version_deltas(blue, green)
    if FREED in (green.properties or {}):
        # An attempt ended while it was so.
        strategy = (blue.policies or {}).get(_STRATEGY)
        path = f"topic {blue.name}: policy {_STRATEGY} as it was"
        yield missing(path, strategy or "not set", "topic policy", lambda admin: _bind(admin, blue.name, strategy))


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
    strategy = (blue.policies or {}).get(_STRATEGY)
    for one in wanted[len(there) :]:
        yield missing(f"{path} version {one.version}", _text(one), "schema version", _addition(name, one, strategy))


def _content(schema: Schema) -> tuple[object, ...]:
    return schema.version, schema.type, schema.data, schema.properties


def _text(schema: Schema) -> str:
    return f"version {schema.version}, {schema.type} {schema.data}".strip()


def _addition(topic: TopicName, schema: Schema, strategy: str | None) -> Change:
    def add(admin: PulsarAdmin) -> None:
        _use_up(admin, topic, schema.version)
        try:
            admin.schemas.add(topic, schema.type, schema.data, schema.properties)
        except AdminConflict:
            # On blue it came when another rule held.
            _add_freely(admin, topic, schema)
            _bind(admin, topic, strategy)

    return add


def _use_up(admin: PulsarAdmin, topic: TopicName, number: int) -> None:
    """Use up the numbers of versions that were deleted on blue: a deletion takes a number too, also of nothing."""
    while number and not admin.schemas.versions(topic):
        if admin.schemas.delete(topic) >= number - 1:
            return


def _add_freely(admin: PulsarAdmin, topic: TopicName, schema: Schema) -> None:
    admin.topics.set_properties(topic, {FREED: "true"})
    admin.topic_policies.set(topic, _STRATEGY, _FREE)
    end = time.monotonic() + _LIMIT
    while True:
        try:
            return admin.schemas.add(topic, schema.type, schema.data, schema.properties)
        except AdminConflict:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def _bind(admin: PulsarAdmin, topic: TopicName, strategy: str | None) -> None:
    if strategy is None:
        admin.topic_policies.remove(topic, _STRATEGY)
    else:
        admin.topic_policies.set(topic, _STRATEGY, strategy)
    admin.topics.remove_property(topic, FREED)
