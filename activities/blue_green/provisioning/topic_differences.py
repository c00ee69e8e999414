"""How a topic on green differs from blue's, and the calls that would make it equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from activities.blue_green.provisioning.deltas import Change, Delta, as_text, differs, extra, missing, policy_of_green
from activities.blue_green.provisioning.translation import translated_topic_policies
from activities.pulsar.schema_versions import FREED, STRATEGY, add_version, bind
from activities.pulsar.topic_inventory import SubscriptionInventory, TopicInventory
from clients.pulsar.admin.late_requests import FencedAdmin
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.admin.topic_policies import GLOBAL
from clients.pulsar.names import TopicName
from models.blue_green.differences import Difference, DifferenceKind

PARTITION = "partition"
"""What is created where green has fewer partitions than blue."""


def topic_deltas(blue: TopicInventory, green: TopicInventory | None, names: Mapping[str, str]) -> list[Delta]:
    """Return the differences of a whole topic, with the changes that remove them, in the order of creation."""
    if not blue.lasting:
        return []
    if green is not None:
        deltas = [*_shape(blue, green), *_content(blue, green, names)]
    else:
        create = _creation(blue)
        summary = f"{blue.partitions or 'no'} partitions, {len(blue.subscriptions)} subscriptions"
        empty = TopicInventory(blue.name, blue.partitions, {}, {})
        inside = _content(blue, empty, names) if create else ()
        deltas = [
            missing(f"topic {blue.name}", summary, "topic", create),
            *(delta._replace(implied=True) for delta in inside),
        ]
    return [delta._replace(topic=blue.name) for delta in deltas]


def _shape(blue: TopicInventory, green: TopicInventory) -> Iterator[Delta]:
    path, name, count = f"topic {blue.name}", blue.name, blue.partitions
    if green.partitions != count:
        grow: Change = lambda admin: admin.topics.grow(name, count)  # noqa: E731
        grows = 0 < green.partitions < count
        yield differs(f"{path}: partitions", (str(count), str(green.partitions)), PARTITION, grow if grows else None)
    for partition in green.unloadable:
        yield differs(f"{path}: {partition.name.topic}", ("is there", f"cannot be loaded: {partition.load_error}"))
    absent = green.partitions - len(green.parts)
    if green.persistent and absent > 0:
        yield missing(
            f"{path}: partitions of {green.partitions}",
            f"{absent} not created",
            "partition",
            lambda admin: admin.topics.create_missed_partitions(name),
        )
    if green.has_messages:
        backlogs = ", ".join(
            f"{subscription.name} {subscription.backlog}" for subscription in green.subscriptions.values()
        )
        yield Delta(
            Difference(path=path, kind=DifferenceKind.GREEN_HAS_MESSAGES, green=f"backlogs: {backlogs or 'none'}")
        )


def _content(blue: TopicInventory, green: TopicInventory, names: Mapping[str, str]) -> Iterator[Delta]:
    yield from _property_deltas(blue, green)
    yield from schema_deltas(blue, green)
    if blue.policies is not None and green.policies is not None:
        wanted = translated_topic_policies(blue.policies, names)
        yield from _policy_deltas(blue.name, wanted, green.policies)
    if blue.persistent:
        yield from _subscription_deltas(blue, green)


def _property_deltas(blue: TopicInventory, green: TopicInventory) -> Iterator[Delta]:
    # Unknown where the topic cannot be loaded.
    if blue.properties is None or green.properties is None:
        return
    name, there = blue.name, green.properties
    for key, value in sorted(blue.properties.items()):
        if there.get(key) == value:
            continue
        path, change = f"topic {name}: property {key}", _set_property(name, key, value)
        if key in there:
            yield differs(path, (value, there[key]), "topic property", change)
        else:
            yield missing(path, value, "topic property", change)
    for key in sorted(there.keys() - blue.properties.keys() - {FREED}):
        yield extra(f"topic {name}: property {key}", there[key])


def _policy_deltas(name: TopicName, wanted: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[Delta]:
    for policy, value in sorted(wanted.items()):
        if there.get(policy) == value:
            continue
        path, change = f"topic {name}: policy {policy}", _set_policy(name, policy, value)
        if policy in there:
            yield differs(path, (as_text(value), as_text(there[policy])), "topic policy", change)
        else:
            yield missing(path, as_text(value), "topic policy", change)
    for policy in sorted(there.keys() - wanted.keys()):
        value = there[policy]
        yield policy_of_green(f"topic {name}: policy {policy}", policy.removeprefix(GLOBAL), value, as_text(value))


def _subscription_deltas(blue: TopicInventory, green: TopicInventory) -> Iterator[Delta]:
    wanted = {subscription.name: subscription for subscription in blue.durable}
    there = {subscription.name: subscription for subscription in green.durable}
    for name, subscription in sorted(wanted.items()):
        yield from _subscription(blue.name, subscription, there.get(name), green)
    # A subscription is gone from blue as soon as its consumers have moved.
    if not blue.unloadable:
        yield from (extra(f"topic {blue.name}: subscription {name}") for name in sorted(there.keys() - wanted.keys()))


def _subscription(
    topic: TopicName, blue: SubscriptionInventory, green: SubscriptionInventory | None, on: TopicInventory
) -> Iterator[Delta]:
    path = f"topic {topic}: subscription {blue.name}"
    if green is None:
        yield missing(path, f"{blue.type}, backlog {blue.backlog}", "subscription", _subscribing(blue, [topic]))
        return
    bare = [
        partition.name for partition in on.parts if partition.stats is not None and partition.name not in green.parts
    ]
    if bare:
        where = f"{path} on {', '.join(partition.topic for partition in bare)}"
        yield missing(where, blue.type, "subscription", _subscribing(blue, bare))
    if green.replicated != blue.replicated:
        yield differs(
            f"{path} replicated",
            (str(blue.replicated), str(green.replicated)),
            "subscription setting",
            lambda admin: admin.subscriptions.set_replicated(topic, blue.name, replicated=blue.replicated),
        )
    if lacking := {key: value for key, value in blue.properties.items() if green.properties.get(key) != value}:
        both = {**green.properties, **blue.properties}
        yield differs(
            f"{path} properties",
            (as_text(lacking), as_text(dict(green.properties))),
            "subscription setting",
            lambda admin: admin.subscriptions.set_properties(topic, blue.name, both),
        )
    if more := green.properties.keys() - blue.properties.keys():
        yield extra(f"{path} properties", ", ".join(sorted(more)))


def _creation(topic: TopicInventory) -> Change | None:
    name, count = topic.name, topic.partitions
    if count:
        return lambda admin: admin.topics.create_partitioned(name, count)
    if name.partition is not None:
        # Brokers create no topic that would be a partition of nothing; some exist from older releases.
        return None
    properties = dict(topic.properties or {})
    return lambda admin: admin.topics.create(name, properties)


def _subscribing(subscription: SubscriptionInventory, topics: list[TopicName]) -> Change:
    def subscribe(admin: FencedAdmin) -> None:
        for topic in topics:
            # A late one would come back after its clients have deleted it, and keep all messages.
            admin.or_never(
                connect=lambda admin, topic=topic: admin.subscriptions.names(topic),
                change=lambda admin, topic=topic: admin.subscriptions.create(
                    topic, subscription.name, replicated=subscription.replicated, properties=subscription.properties
                ),
            )

    return subscribe


def _set_property(topic: TopicName, key: str, value: str) -> Change:
    return lambda admin: admin.topics.set_properties(topic, {key: value})


def _set_policy(topic: TopicName, policy: str, value: Any) -> Change:
    return lambda admin: admin.topic_policies.set(topic, policy, value)


# Schemas, in the same versions on both sides: stored messages and clients name them by number -------------------------


def schema_deltas(blue: TopicInventory, green: TopicInventory) -> Iterator[Delta]:
    """Yield the differences of the versions of a topic's schema, with the changes that remove them."""
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
        if _schema_content(of_blue) != _schema_content(of_green):
            # Versions stay indefinitely: nothing but the deletion of the topic makes room for others.
            yield differs(f"{path} version {of_blue.version}", (_text(of_blue), _text(of_green)))
            return
    for schema in there[len(wanted) :]:
        yield extra(f"{path} version {schema.version}", _text(schema))
    strategy = (blue.policies or {}).get(STRATEGY)
    for schema in wanted[len(there) :]:
        yield missing(
            f"{path} version {schema.version}", _text(schema), "schema version", _addition(name, schema, strategy)
        )


def _schema_content(schema: Schema) -> tuple[object, ...]:
    return schema.version, schema.type, schema.data, schema.properties


def _text(schema: Schema) -> str:
    return f"version {schema.version}, {schema.type} {schema.data}".strip()


def _addition(topic: TopicName, schema: Schema, strategy: str | None) -> Change:
    def add(admin: FencedAdmin) -> None:
        add_version(admin, topic, schema, strategy)

    return add
