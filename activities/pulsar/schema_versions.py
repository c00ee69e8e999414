"""Versions of a topic's schema under the numbers that they have elsewhere: stored messages name them so."""

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
"""Property of a topic whose schemas may follow each other freely for a moment."""

STRATEGY = "schemaCompatibilityStrategy"
"""The policy of a topic that says how they may follow each other."""

_FREE = "ALWAYS_COMPATIBLE"
# Until brokers know a policy of a topic.
_LIMIT = 10.0
_PAUSE = 0.2


def add_version(admin: FencedAdmin, topic: TopicName, schema: Schema, strategy: str | None) -> None:
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


def complete_versions(admin: FencedAdmin, topic: TopicName, wanted: Sequence[Schema]) -> Schema | None:
    """Add the versions of a topic's schema that are missing, with their numbers; harmless when done twice.

    Args:
        admin: of the cluster that gets them.
        topic: a whole one.
        wanted: all that it must have, oldest first.

    Returns:
        The first of its versions that is another, where there is one: then nothing was added.
    """
    there = admin.schemas.versions(topic)
    for one, other in zip(wanted, there, strict=False):
        if (one.version, one.type, one.data) != (other.version, other.type, other.data):
            return other
    missing = wanted[len(there) :]
    if not missing:
        return None
    # An attempt may have ended while versions could follow each other freely.
    freed = FREED in admin.topics.properties(topic)
    strategy = None if freed else admin.topic_policies.read(topic).get(STRATEGY)
    for one in missing:
        add_version(admin, topic, one, strategy)
    if freed:
        bind(admin, topic, None)
    return None


def bind(admin: PulsarAdmin, topic: TopicName, strategy: str | None) -> None:
    """Let a topic's schemas follow each other as they did before; also where an attempt ended meanwhile."""
    if strategy is None:
        admin.topic_policies.remove(topic, STRATEGY)
    else:
        admin.topic_policies.set(topic, STRATEGY, strategy)
    admin.topics.remove_property(topic, FREED)


def _use_up(admin: FencedAdmin, topic: TopicName, number: int) -> None:
    """Use up the numbers of versions that were deleted elsewhere: a deletion takes a number too, also of nothing."""
    while number and not admin.schemas.versions(topic):
        # A late one would make stored messages unreadable: nobody could decode them any more.
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
