"""What of blue's policies green's release has; the rest is reported, and left out of the comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from activities.blue_green.deltas import Delta, as_text, not_carried
from activities.blue_green.inventory import NamespaceInventory
from activities.pulsar.topic_inventory import TopicInventory
from clients.pulsar.admin.namespaces import Policies
from models.releases import PolicyField, Release


def carried(blue: NamespaceInventory, release: Release) -> NamespaceInventory:
    """Return a namespace of blue without the policies that green's release does not have.

    Args:
        blue: as it is on blue.
        release: of green's brokers.
    """
    raw = {name: value for name, value in blue.policies.raw.items() if not release.lacked_namespace_policy(name)}
    topics = {name: _carried_topic(topic, release) for name, topic in blue.topics.items()}
    return replace(blue, policies=Policies.of(raw), topics=topics)


def lost_policies(blue: NamespaceInventory, release: Release) -> Iterator[Delta]:
    """Return the policies of a namespace and its topics that are set and do not exist in green's release.

    Args:
        blue: as it is on blue.
        release: of green's brokers.
    """
    for name, value in sorted(blue.policies.raw.items()):
        if (field := release.lacked_namespace_policy(name)) and _is_set(field, value):
            path = f"namespace {blue.name}: {name}"
            yield not_carried(path, as_text(value), release, relied_on=field.relied_on)
    for topic in blue.topics.values():
        for name, value in sorted((topic.policies or {}).items()):
            if (field := _lacked_topic_policy(name, release)) and _is_set(field, value):
                path = f"topic {topic.name}: policy {name}"
                delta = not_carried(path, as_text(value), release, relied_on=field.relied_on)
                yield delta._replace(topic=topic.name)


def _carried_topic(topic: TopicInventory, release: Release) -> TopicInventory:
    if not topic.policies:
        return topic
    known = {name: value for name, value in topic.policies.items() if not _lacked_topic_policy(name, release)}
    return replace(topic, policies=known)


def _lacked_topic_policy(name: str, release: Release) -> PolicyField | None:
    return release.lacked_topic_policy(name.rpartition("/")[2])


def _is_set(field: PolicyField, value: object) -> bool:
    return value is not None and value not in field.unset
