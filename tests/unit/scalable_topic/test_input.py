"""Input of migrations to scalable topics: invalid input is refused, and topics have an order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.lifecycle.waves import ErrorBudget, WaveGate
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.namespace_input import ScalableNamespaceInput

_ACCESS: dict[str, Any] = {"cluster": "c", "metadata_url": "zk:zk-1:2181", "admin_urls": ["http://broker-1:8080"]}

parts = st.text("abc*?-_.é", min_size=1, max_size=6)


def _topic(**fields: Any) -> ScalableTopicInput:
    return ScalableTopicInput.model_validate({**_ACCESS, "topic": "persistent://t/n/x", **fields})


def _many(**fields: Any) -> ScalableNamespaceInput:
    return ScalableNamespaceInput.model_validate({**_ACCESS, "topics": ["t/n/*"], **fields})


@pytest.mark.parametrize(
    "topic",
    [
        "t/n/x",
        "persistent://t/n",
        "persistent://t//x",
        "persistent://t/n/",
        "persistent://t/n/x-partition-3",
        "non-persistent://t/n/x",
        "topic://t/n/x",
        "segment://t/n/x/0000-ffff-0",
    ],
)
def test_a_topic_is_a_whole_stored_one(topic: str) -> None:
    """Partitions, other kinds of topics and incomplete names are refused, with the expected form."""
    with pytest.raises(ValidationError, match=r"expected persistent://tenant/namespace/topic"):
        _topic(topic=topic)


@pytest.mark.parametrize("topic", ["persistent://t/n/x", "persistent://t/n/a/b", "persistent://t/n/x-partition-3-a"])
def test_names_that_only_look_like_others(topic: str) -> None:
    """A topic name may contain slashes, and the word `partition`."""
    input = _topic(topic=topic)
    assert input.target_name == topic
    assert input.workflow_id == f"scalable-topic/c/{topic.removeprefix('persistent://')}"


@pytest.mark.parametrize("read", [_topic, _many])
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cleanup_at_window_end": True}, 'cleanup_at_window_end does nothing with "cleanup": "leave"'),
        ({"client_timeout": "P91D"}, "client_timeout"),
        ({"client_timeout": 60}, "has no unit"),
        ({"drain_timeout": "PT0S"}, "drain_timeout"),
        ({"drain_timeout": "P31D"}, "drain_timeout"),
        ({"grace_window": "P91D"}, "grace_window"),
        ({"force": "false"}, "neither true nor false"),
        ({"admin_urls": []}, "admin_urls"),
        ({"metadata_url": "zk-1:2181"}, "metadata_url"),
        (
            {"auto_scale": {"min_segments": 4, "max_segments": 3}},
            r"min_segments \(4\) must not exceed max_segments \(3\)",
        ),
        ({"auto_scale": {"min_segments": 0}}, "min_segments"),
        ({"auto_scale": {"split": 3}}, "auto_scale.split"),
        ({"wait": True}, "wait"),
    ],
)
def test_refused(read: Any, fields: dict[str, Any], why: str) -> None:
    """Input that would fail later for a visible reason is refused, for one topic and for many."""
    with pytest.raises(ValidationError, match=why):
        read(**fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"topics": []}, "topics"),
        ({"topics": ["t/n"]}, "topics"),
        ({"topics": ["persistent://t/n/*"]}, "topics"),
        ({"exclude": ["*"]}, "exclude"),
        ({"waves": {"deadline": "P3D", "batch_size": 2}}, "batch_size must be 1"),
        ({"client_timeout": "P2D"}, "would be given up while it waits"),
        (
            {"waves": {"deadline": "PT2H"}},
            "is not longer than client_timeout and drain_timeout together, 2:00:00",
        ),
        ({"hold_limit": "PT0S"}, "hold_limit"),
        ({"hold_limit": "P91D"}, "hold_limit"),
        ({"topic": "persistent://t/n/x"}, "topic"),
    ],
)
def test_refused_of_many(fields: dict[str, Any], why: str) -> None:
    """Invalid options of the migration of many topics are refused."""
    with pytest.raises(ValidationError, match=why):
        _many(**fields)


def test_what_is_left_out_is_careful() -> None:
    """Defaults are careful: they wait for approval, disconnect no client, delete nothing and start with one topic."""
    single, many = _topic(), _many()
    for input in (single, many):
        assert (input.hold_before_cutover, input.force, input.cleanup, input.dry_run) == (True, False, "leave", False)
        assert input.auto_scale is None
    assert (many.waves.canary, many.waves.gate, many.waves.error_budget) == (1, WaveGate.CANARY, ErrorBudget(items=0))
    assert many.waves.deadline > many.client_timeout + many.drain_timeout
    assert many.hold_limit == timedelta(days=7)


def test_what_is_shown() -> None:
    """Workflow id, target and summary say what is migrated."""
    assert _topic(dry_run=True).summary == "persistent://t/n/x of c becomes scalable (dry run)"
    many = _many(topics=["t/n/*", "u/*/*"])
    assert (many.workflow_id, many.target_name) == ("scalable-namespace/c", "t/n/*, u/*/*")
    assert many.summary == "t/n/*, u/*/* of c become scalable"


def test_a_policy_says_only_what_was_given() -> None:
    """Fields that a policy omits follow the namespace or the brokers."""
    assert AutoScale(enabled=False, min_segments=3).model_dump(exclude_none=True) == {
        "enabled": False,
        "min_segments": 3,
    }


def test_order_and_exclusion() -> None:
    """Topics go by the first pattern that fits; excluded ones and Pulsar's own stay."""
    input = _many(topics=["shop/orders/*", "*/*/audit-*", "shop/*/*"], exclude=["shop/batch/*"])
    ranks = {
        "shop/orders/audit-1": 0,
        "bank/a/audit-1": 1,
        "shop/carts/audit-1": 1,
        "shop/carts/x": 2,
        "shop/carts/a/b": 2,
        "shop/batch/audit-1": None,
        "bank/a/x": None,
        "pulsar/system/audit-1": None,
    }
    assert {name: input.rank(name) for name in ranks} == ranks


@given(st.tuples(parts, parts, parts).map("/".join))
def test_a_name_fits_itself(name: str) -> None:
    """A pattern without `*`, `?` and `[` is a name, and upper and lower case differ."""
    assert _many(topics=[name]).rank(name) == 0
    if not {*name} & {*"*?"}:
        assert _many(topics=[name]).rank(f"{name}a") is None
        assert _many(topics=[name.upper()]).rank(name) == (0 if name == name.upper() else None)
