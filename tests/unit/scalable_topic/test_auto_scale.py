"""Auto-scale policies: what brokers know and we do not survives whatever is set."""

from __future__ import annotations

from activities.scalable_topic.auto_scale import stored_policy
from activities.scalable_topic.guards import AUTO_SCALE
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
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
    """Fields that we do not name are compared, and written back as they are; null says the same as nothing."""
    policy = AutoScalePolicy.model_validate(_STORED)
    body = {name: value for name, value in _STORED.items() if value is not None}
    assert policy.body() == body
    assert AutoScalePolicy.model_validate(body) == policy
    assert AutoScalePolicy.model_validate({**body, "rebucketCooldownSeconds": 31}) != policy
    held = AUTO_SCALE.ours(policy)
    assert held is not None
    assert held.body() == {**body, "enabled": False}


def test_what_operators_can_write_is_set_as_a_whole() -> None:
    """What an input leaves out is unset; fields that it cannot name stay."""
    now = AutoScalePolicy.model_validate(_STORED)
    wanted = AutoScale(min_segments=4, merge_bytes_rate_out_threshold=10, split_vs_rebucket_min_msg_rate_in_threshold=1)
    fields = {"minSegments": 4, "mergeBytesRateOutThreshold": 10, "splitVsRebucketMinMsgRateInThreshold": 1.0}
    assert stored_policy(wanted, None).body() == fields
    assert stored_policy(wanted, now).body() == {**fields, "ofALaterRelease": {"a": [1, None]}}
