"""Records of migrations to scalable topics in the metadata store: their paths, owners and fields."""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.lifecycle.claim import CLAIM, Attempt, Changed, Claim
from models.scalable_topic.claims import TOPICS, GuardedNamespace, Stage, TopicClaim, is_ours, topic_record

ME = Attempt("scalable-topic/c/t/n/x", "run-1", 1_000, 5, 1)

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def _claim(workflow_id: str) -> Claim:
    return Claim(workflow_id=workflow_id, run_id="run-1")


@given(names)
def test_each_topic_has_a_record_of_its_own(topic: str) -> None:
    """The record of any topic is one node, whose name is the name of the topic."""
    path = topic_record(f"t/n/{topic}")
    assert path.startswith(f"{TOPICS}/")
    last = path.removeprefix(f"{TOPICS}/")
    assert "/" not in last
    assert unquote(last) == f"t/n/{topic}"


def test_records_are_not_below_the_claim() -> None:
    """No record is below the claim, which is deleted without children."""
    assert topic_record("t/n/a/b") == "/pulsar/migration-coordinator/pulsar-migrate-topics/t%2Fn%2Fa%2Fb"
    assert not TOPICS.startswith(f"{CLAIM}/")


@pytest.mark.parametrize(
    ("workflow_id", "ours"),
    [
        ("scalable-topic/c/t/n/x", True),
        ("scalable-namespace/c", True),
        ("scalable-operation/c", True),
        ("scalable-topics/c", False),
        ("blue-green/scalable-topic/c", False),
        ("metadata-store/c", False),
    ],
)
def test_whose_a_claim_is(workflow_id: str, ours: bool) -> None:
    """Only records of migrations and operations on topics are cleaned up by each other."""
    assert is_ours(_claim(workflow_id)) is ours


def test_how_far_a_topic_is() -> None:
    """Once a broker may have got a request, a topic is not just released."""
    stages = {stage: TopicClaim(workflow_id="w", run_id="r", stage=stage).begun for stage in Stage}
    assert [stage for stage, begun in stages.items() if not begun] == [Stage.CLAIMED]
    assert not TopicClaim.model_validate_json(_claim("w").encode()).begun


def test_what_was_before_survives() -> None:
    """A setting that was missing before differs from an unchanged one, also in records of newer versions."""
    held = GuardedNamespace(workflow_id="w", run_id="r", retention=Changed(before=None, ours={"size": -1}))
    stored = json.loads(held.encode()) | {"later": [1, 2]}
    read = GuardedNamespace.model_validate(stored)
    assert (read.retention, read.auto_scale) == (Changed(before=None, ours={"size": -1}), None)
    assert json.loads(read.changed(auto_scale=Changed(before=3, ours=4)))["later"] == [1, 2]


def test_an_older_attempt_knows_a_newer_one() -> None:
    """Attempts of one run are ordered by the activity, and then by their number."""
    claim = TopicClaim(workflow_id=ME.workflow_id, run_id=ME.run_id, started_ms=1_000, epoch=5, attempt=1)
    assert claim.is_of(ME)
    assert not claim.is_newer_than(ME)
    assert claim.is_newer_than(ME._replace(epoch=4, attempt=9))
    assert not claim.is_newer_than(ME._replace(attempt=2))
