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


def reported(blue: NamespaceInventory, release: str, green: NamespaceInventory | None = None) -> list[Difference]:
    """Return the differences, except for missing things."""
    all_differences = differences(blue, green or namespace(topic()), names=NAMES, release=parse_release(release))
    return [difference for difference in all_differences if difference.kind is not DifferenceKind.MISSING]


def test_a_value_that_brokers_compute_is_not_a_policy() -> None:
    """The cluster that may delete a namespace is computed by brokers of 4.0 alone, and never compared."""
    blue = namespace(topic(), clusterThatCanDeleteNamespace="blue")
    assert (
        reported(blue, "5.0.1")
        == reported(blue, "4.0.8", namespace(topic(), clusterThatCanDeleteNamespace="green"))
        == []
    )


@pytest.mark.parametrize("release", ["4.2.4", "5.0.1"])
def test_policies_that_green_knows_are_compared(release: str) -> None:
    """A policy that only some releases have is compared like any other, if green's release has it."""
    [difference] = reported(namespace(topic(), **KEYS), release)
    assert (difference.kind, difference.green, difference.blocks) == (DifferenceKind.DIFFERS, "not set", True)


def test_policies_that_green_does_not_know() -> None:
    """A lost policy is named, and blocks only where data or clients rely on it."""
    blue = namespace(
        topic(policies={"subscriptionExpirationTime": 5, "global/subscriptionExpirationTime": 6}),
        **KEYS,
        is_allow_auto_update_schema_with_replicator=False,
    )
    assert [(each.path, each.kind, each.blue, each.blocks) for each in reported(blue, "4.0.8")] == [
        (f"namespace {SPACE}: allowed_topic_property_keys_for_metrics", LOST, '["team"]', False),
        (f"namespace {SPACE}: is_allow_auto_update_schema_with_replicator", LOST, "false", True),
        (f"topic {TOPIC}: policy global/subscriptionExpirationTime", LOST, "6", True),
        (f"topic {TOPIC}: policy subscriptionExpirationTime", LOST, "5", True),
    ]
    assert str(reported(namespace(topic(), **KEYS), "4.0.8")[0]) == (
        f"namespace {SPACE}: allowed_topic_property_keys_for_metrics unsupported "
        '(blue: ["team"], green: its release 4.0.8 does not have it)'
    )


def test_policies_without_effect_are_not_reported() -> None:
    """A policy that is not set, or is set to its default, is not reported as lost."""
    blue = namespace(
        topic(),
        allowed_topic_property_keys_for_metrics=[],
        is_allow_auto_update_schema_with_replicator=True,
        scalableTopicAutoScalePolicy=None,
    )
    assert reported(blue, "4.0.8") == []
