"""Auto-scale policies: fields that only brokers know survive every change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, cast

import pytest

from activities.scalable_topic.auto_scale import set_or_fall_back, stored_policy
from activities.scalable_topic.cluster import AUTO_SCALE
from clients.pulsar.admin.errors import AdminNotFound, AdminPreconditionFailed
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from models.scalable_topic.auto_scale import AutoScale

_STORED = {
    "enabled": True,
    "minSegments": 2,
    "maxSegments": None,
    "splitMsgRateInThreshold": 5000.0,
    "rebucketCooldownSeconds": 30,
    "ofALaterRelease": {"a": [1, None]},
}


def test_fields_survive() -> None:
    """Unknown fields are compared and written back; null equals a missing field."""
    policy = AutoScalePolicy.model_validate(_STORED)
    body = {name: value for name, value in _STORED.items() if value is not None}
    assert policy.body() == body
    assert AutoScalePolicy.model_validate(body) == policy
    assert AutoScalePolicy.model_validate({**body, "rebucketCooldownSeconds": 31}) != policy
    held = AUTO_SCALE.ours(policy)
    assert held is not None
    assert held.body() == {**body, "enabled": False}


def test_what_operators_can_write_is_set_as_a_whole() -> None:
    """Fields that the input omits are unset; fields that it cannot express stay."""
    now = AutoScalePolicy.model_validate(_STORED)
    wanted = AutoScale(min_segments=4, merge_bytes_rate_out_threshold=10, split_vs_rebucket_min_msg_rate_in_threshold=1)
    fields = {"minSegments": 4, "mergeBytesRateOutThreshold": 10, "splitVsRebucketMinMsgRateInThreshold": 1.0}
    assert stored_policy(wanted, None).body() == fields
    assert stored_policy(wanted, now).body() == {**fields, "ofALaterRelease": {"a": [1, None]}}


class _Brokers:
    """Brokers that store the policy of a topic, unless they refuse it or the topic is gone."""

    def __init__(self, *refused: AutoScalePolicy, gone: bool = False) -> None:
        self.policy: AutoScalePolicy | None = None
        self._refused, self._gone = refused, gone

    @property
    def scalable_topics(self) -> Self:
        """The admin interface for scalable topics."""
        return self

    def auto_scale_policy(self, topic: TopicName) -> AutoScalePolicy | None:
        """Return the policy."""
        if self._gone:
            raise AdminNotFound("not found", method="GET", url=str(topic), status=404)
        return self.policy

    def set_auto_scale_policy(self, topic: TopicName, policy: AutoScalePolicy) -> None:
        """Set the policy."""
        if policy in self._refused:
            raise AdminPreconditionFailed("max < min", method="POST", url=str(topic), status=412)
        self.policy = policy

    def set(self, wanted: AutoScale) -> str:
        """Set a policy as the migration does; return its note."""

        def change(*, change: Callable[[_Brokers], object], **_: object) -> None:
            change(self)

        return set_or_fall_back(cast("Any", self), cast("Any", change), _TOPIC, wanted, lambda: None)


_TOPIC = TopicName("acme", "shop", "orders")
_WANTED = AutoScalePolicy(min_segments=65)
_STILL = AutoScalePolicy(enabled=False)


@pytest.mark.parametrize(
    ("brokers", "expected", "policy"),
    [
        (_Brokers(), "", _WANTED),
        (_Brokers(_WANTED), 'max < min; it has {"enabled": false} instead', _STILL),
        (_Brokers(_WANTED, _STILL), "max < min; it has none", None),
        (_Brokers(gone=True), "topic://acme/shop/orders was deleted", None),
    ],
)
def test_a_policy_that_cannot_be_set_holds_nothing_up(
    brokers: _Brokers, expected: str, policy: AutoScalePolicy | None
) -> None:
    """A refused policy disables auto-scaling, a deleted topic needs none, and a note reports both."""
    note = brokers.set(AutoScale(min_segments=65))
    assert expected in note
    assert bool(expected) == bool(note)
    assert brokers.policy == policy
