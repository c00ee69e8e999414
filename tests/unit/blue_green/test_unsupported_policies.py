"""Policies that one release has and the other has not: never compared, and reported if they are set."""

from __future__ import annotations

import pytest

from activities.blue_green.provisioning.differences import differences
from activities.blue_green.provisioning.inventory import NamespaceInventory
from models.blue_green.differences import Difference, DifferenceKind
from models.releases import parse_release
from tests.unit.blue_green.test_differences import NAMES, SPACE, TOPIC, namespace, topic

LOST = DifferenceKind.UNSUPPORTED
KEYS = {"allowed_topic_property_keys_for_metrics": ["team"]}


def told(blue: NamespaceInventory, release: str, green: NamespaceInventory | None = None) -> list[Difference]:
    """Return differences but for those of what is missing."""
    found = differences(blue, green or namespace(topic()), names=NAMES, release=parse_release(release))
    return [one for one in found if one.kind is not DifferenceKind.MISSING]


def test_what_brokers_compute_is_no_policy() -> None:
    """The cluster that may delete a namespace is computed by brokers of 4.0 alone, and never compared."""
    blue = namespace(topic(), clusterThatCanDeleteNamespace="blue")
    assert told(blue, "5.0.1") == told(blue, "4.0.8", namespace(topic(), clusterThatCanDeleteNamespace="green")) == []


@pytest.mark.parametrize("release", ["4.2.4", "5.0.1"])
def test_policies_that_green_knows_are_compared(release: str) -> None:
    """Where green's release has a policy that not every release has, it differs as any other."""
    [one] = told(namespace(topic(), **KEYS), release)
    assert (one.kind, one.green, one.blocks) == (DifferenceKind.DIFFERS, "not set", True)


def test_policies_that_green_does_not_know() -> None:
    """A lost policy is named, and blocks only where data or clients rely on it."""
    blue = namespace(
        topic(policies={"subscriptionExpirationTime": 5, "global/subscriptionExpirationTime": 6}),
        **KEYS,
        is_allow_auto_update_schema_with_replicator=False,
    )
    assert [(one.path, one.kind, one.blue, one.blocks) for one in told(blue, "4.0.8")] == [
        (f"namespace {SPACE}: allowed_topic_property_keys_for_metrics", LOST, '["team"]', False),
        (f"namespace {SPACE}: is_allow_auto_update_schema_with_replicator", LOST, "false", True),
        (f"topic {TOPIC}: policy global/subscriptionExpirationTime", LOST, "6", True),
        (f"topic {TOPIC}: policy subscriptionExpirationTime", LOST, "5", True),
    ]
    assert str(told(namespace(topic(), **KEYS), "4.0.8")[0]) == (
        f"namespace {SPACE}: allowed_topic_property_keys_for_metrics unsupported "
        '(blue: ["team"], green: its release 4.0.8 does not have it)'
    )


def test_policies_that_say_nothing_are_lost_silently() -> None:
    """What is not set, or set to what holds without it, is equal."""
    blue = namespace(
        topic(),
        allowed_topic_property_keys_for_metrics=[],
        is_allow_auto_update_schema_with_replicator=True,
        scalableTopicAutoScalePolicy=None,
    )
    assert told(blue, "4.0.8") == []
