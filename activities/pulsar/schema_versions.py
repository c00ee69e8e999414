"""Copies of a topic's schema versions with the same numbers, because stored messages refer to these numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from activities.lifecycle.context import Deadline
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.admin.late_requests import FencedAdmin
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.names import TopicName

FREED = "pulsar-migrate/schemas-follow-freely"
"""Property of a topic whose schema compatibility check is off for a moment."""

STRATEGY = "schemaCompatibilityStrategy"
"""Name of a topic's policy for schema compatibility."""

_FREE = "ALWAYS_COMPATIBLE"
# Seconds until brokers apply a topic's policy.
_LIMIT = 10.0
_PAUSE = 0.2


def add_version(admin: FencedAdmin, topic: TopicName, schema: Schema, strategy: str | None) -> None:
    """Add the next version of a topic's schema, with its number.

    Args:
        admin: of the cluster that gets it.
        topic: not a single partition.
        schema: the version on the other cluster.
        strategy: the topic's compatibility strategy afterwards; None for that of the namespace.
    """
    _use_up(admin, topic, schema.version)
    try:
        admin.schemas.add(topic, schema.type, schema.data, schema.properties)
    except AdminConflict:
        # On the other cluster it was added under another strategy.
        _add_freely(admin, topic, schema)
        bind(admin, topic, strategy)


def complete_versions(admin: FencedAdmin, topic: TopicName, wanted: Sequence[Schema]) -> Schema | None:
    """Add missing versions of a topic's schema, with their numbers; idempotent.

    Args:
        admin: of the cluster that gets them.
        topic: not a single partition.
        wanted: all versions, oldest first.

    Returns:
        The first existing version that differs, if there is one: then nothing was added.
    """
    existing = admin.schemas.versions(topic)
    for schema, other in zip(wanted, existing, strict=False):
        if (schema.version, schema.type, schema.data) != (other.version, other.type, other.data):
            return other
    missing = wanted[len(existing) :]
    if not missing:
        return None
    # An earlier attempt may have ended while the compatibility check was off.
    freed = FREED in admin.topics.properties(topic)
    strategy = None if freed else admin.topic_policies.read(topic).get(STRATEGY)
    for schema in missing:
        add_version(admin, topic, schema, strategy)
    if freed:
        bind(admin, topic, None)
    return None


def bind(admin: PulsarAdmin, topic: TopicName, strategy: str | None) -> None:
    """Restore a topic's compatibility strategy, also after an attempt that ended while it was off."""
    if strategy is None:
        admin.topic_policies.remove(topic, STRATEGY)
    else:
        admin.topic_policies.set(topic, STRATEGY, strategy)
    admin.topics.remove_property(topic, FREED)


def _use_up(admin: FencedAdmin, topic: TopicName, number: int) -> None:
    """Use up the numbers of versions that were deleted on the other cluster; each deletion takes one."""
    while number and not admin.schemas.versions(topic):
        # A late deletion would remove the schema, and stored messages could not be decoded any more.
        last = admin.or_never(
            connect=lambda admin: admin.schemas.versions(topic), change=lambda admin: admin.schemas.delete(topic)
        )
        if last >= number - 1:
            return


def _add_freely(admin: PulsarAdmin, topic: TopicName, schema: Schema) -> None:
    admin.topics.set_properties(topic, {FREED: "true"})
    admin.topic_policies.set(topic, STRATEGY, _FREE)
    deadline = Deadline(_LIMIT)
    while True:
        try:
            return admin.schemas.add(topic, schema.type, schema.data, schema.properties)
        except AdminConflict:
            if deadline.passed:
                raise
        time.sleep(_PAUSE)
