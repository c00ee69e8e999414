"""Operations on scalable topics: refused input, and the topics that a report names."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from models.lifecycle.failures import NAMED
from models.scalable_topic.operation_input import Operation, ScalableOperationInput
from models.scalable_topic.operation_state import OperationOutcome, TopicOutcome, Verdict

_CLUSTER = {"cluster": "prod", "metadata_url": "zk:zk-1:2181", "admin_urls": ["http://broker-1:8080"]}


def _input(operation: str, *topics: str, **more: object) -> ScalableOperationInput:
    return ScalableOperationInput.model_validate({**_CLUSTER, "operation": operation, "topics": topics, **more})


@pytest.mark.parametrize(
    ("operation", "topics", "more", "cause"),
    [
        ("split", ["orders"], {}, "is not a topic or pattern"),
        ("split", ["persistent://a/b/c-partition-1"], {}, "is not a topic or pattern"),
        ("split", ["a/b/c", "a/b/d"], {"segment": 1}, "segment ids need a single topic"),
        ("merge", ["a/b/*"], {"segments": [1, 2]}, "segment ids need a single topic"),
        ("merge", ["a/b/c"], {"segments": [1, 1]}, "contains the same id twice"),
        ("merge", ["a/b/c"], {"segment": 1}, "segment is an option of split, not of merge"),
        ("merge", ["a/b/c"], {"buckets": 2}, "buckets is an option of rebucket, not of merge"),
        ("rebucket", ["a/b/c"], {}, "needs the number of entry buckets"),
        ("rebucket", ["a/b/c"], {"buckets": 0}, "greater than or equal to 1"),
        ("rebucket", ["a/b/c"], {"buckets": 2, "segments": [1, 2]}, "segments is an option of merge"),
        ("set_auto_scale", ["a/b/c"], {}, "needs the policy"),
        ("set_auto_scale", ["a/b/c"], {"auto_scale": {"min_segments": 3, "max_segments": 2}}, "must not exceed"),
        ("clear_empty", ["a/b/c"], {"fix": True}, "fix is an option of audit"),
        ("copy", ["a/b/*"], {"copy_to": "a/b/all"}, "several topics cannot be copied to one"),
        ("copy", ["a/b/c"], {"copy_to": "all"}, "is not the full name of a persistent topic"),
        ("tidy", ["a/b/c"], {}, "operation"),
    ],
)
def test_wrong_input_is_refused(operation: str, topics: list[str], more: dict[str, Any], cause: str) -> None:
    """Each fault is named before anything is asked of a cluster."""
    with pytest.raises(ValidationError, match=cause):
        _input(operation, *topics, **more)


def test_names_of_topics() -> None:
    """Names with and without a domain are equal; the name of a copy contains the name of its topic."""
    topics = _input("copy", "topic://a/b/c", "persistent://a/b/c", "a/b/c*").topics
    assert topics == ("a/b/c", "a/b/c", "a/b/c*")
    assert _input("copy", "a/b/c").copy_of("a/b/c") == "persistent://a/b/c-regular"
    assert _input("copy", "a/b/c", copy_to="persistent://x/y/z").copy_of("a/b/c") == "persistent://x/y/z"


def test_only_what_changes_something_needs_the_cluster() -> None:
    """Reading operations run next to a migration."""
    needed: dict[Operation, dict[str, object]] = {
        Operation.SET_AUTO_SCALE: {"auto_scale": {"enabled": True}},
        Operation.REBUCKET: {"buckets": 2},
    }
    changing = {operation for operation in Operation if _input(operation, "a/b/c", **needed.get(operation, {})).changes}
    assert set(Operation) - changing == {Operation.AUDIT}
    assert _input("audit", "a/b/c", fix=True).changes


def test_report_of_many_topics() -> None:
    """Each topic is counted, and a hundred of each kind are named, changed ones first."""
    verdicts = [Verdict.FAILED, Verdict.FOUND, Verdict.UNCHANGED, Verdict.CHANGED] * 150
    each = [
        TopicOutcome(topic=f"a/b/{number}", verdict=verdict, description=verdict, registered=1, seconds=number / 1000)
        for number, verdict in enumerate(verdicts)
    ]
    outcome = OperationOutcome.of(each)
    assert (outcome.topics, outcome.changed, outcome.with_findings, outcome.unchanged, outcome.failed) == (
        600,
        150,
        150,
        150,
        150,
    )
    assert (outcome.registered, outcome.longest_seconds) == (600, 0.599)
    assert len(outcome.outcomes) == len(outcome.failures) == NAMED
    assert {outcome.rpartition(": ")[2] for outcome in outcome.outcomes} == {"changed"}
    assert OperationOutcome.of([]) == OperationOutcome()
