"""Versions of a topic's schema under the numbers that they have elsewhere: stored messages name them so."""

from __future__ import annotations

import time

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.names import TopicName

FREED = "pulsar-migrate/schemas-follow-freely"
"""Property of a topic whose schemas may follow each other freely for a moment."""

STRATEGY = "schemaCompatibilityStrategy"
"""The policy of a topic that says how they may follow each other."""

_FREE = "ALWAYS_COMPATIBLE"
# Until brokers know a policy of a topic.
_LIMIT = 10.0
_PAUSE = 0.2


def add_version(admin: PulsarAdmin, topic: TopicName, schema: Schema, strategy: str | None) -> None:
    """Add the next version of a topic's schema, with its number.

    Args:
        admin: of the cluster that gets it.
        topic: a whole one.
        schema: the version, as it is elsewhere.
        strategy: how the topic's schemas may follow each other afterwards; None to leave it to the namespace.
    """
    _use_up(admin, topic, schema.version)
    try:
        admin.schemas.add(topic, schema.type, schema.data, schema.properties)
    except AdminConflict:
        # Elsewhere it came when another rule held.
        _add_freely(admin, topic, schema)
        bind(admin, topic, strategy)


def bind(admin: PulsarAdmin, topic: TopicName, strategy: str | None) -> None:
    """Let a topic's schemas follow each other as they did before; also where an attempt ended meanwhile."""
    if strategy is None:
        admin.topic_policies.remove(topic, STRATEGY)
    else:
        admin.topic_policies.set(topic, STRATEGY, strategy)
    admin.topics.remove_property(topic, FREED)


def _use_up(admin: PulsarAdmin, topic: TopicName, number: int) -> None:
    """Use up the numbers of versions that were deleted elsewhere: a deletion takes a number too, also of nothing."""
    while number and not admin.schemas.versions(topic):
        if admin.schemas.delete(topic) >= number - 1:
            return


def _add_freely(admin: PulsarAdmin, topic: TopicName, schema: Schema) -> None:
    admin.topics.set_properties(topic, {FREED: "true"})
    admin.topic_policies.set(topic, STRATEGY, _FREE)
    end = time.monotonic() + _LIMIT
    while True:
        try:
            return admin.schemas.add(topic, schema.type, schema.data, schema.properties)
        except AdminConflict:
            if time.monotonic() > end:
                raise
        time.sleep(_PAUSE)
