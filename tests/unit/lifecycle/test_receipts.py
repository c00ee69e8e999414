"""Receipts of plans: what they bind a start to, and what they refuse."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from activities.lifecycle.precheck import Findings
from activities.pulsar.fingerprint import check_receipt, names_fact
from cli.app import run
from cli.documents import read_document
from models.lifecycle.receipt import Receipt
from models.metadata_store.input import MetadataStoreInput
from process.exit_codes import ExitCode
from worker.catalog import KINDS

PLAN: dict[str, Any] = {
    "cluster": "prod",
    "source": "zk:zk-1:2181",
    "target": "oxia://oxia:6648/default",
    "throttle": 20,
}
FACTS = {"pulsar-migrate": "0.2.0", "broker b-1": "Pulsar 5.0.1", "broker b-2": "Pulsar 5.0.1"}


def receipt(**changed: Any) -> Receipt:
    """Return a receipt of the plan."""
    values: dict[str, Any] = {
        "kind": "metadata-store",
        "cluster": "prod",
        "planned_at": datetime.now(UTC),
        "input": MetadataStoreInput.model_validate(PLAN).as_json(),
        "facts": FACTS,
        "counts": {"survey.records": 417},
        "warnings": ("a warning",),
    }
    return Receipt.of(**{**values, **changed})


def bound(given: Receipt, **changed: Any) -> MetadataStoreInput:
    """Return an input with a receipt."""
    return MetadataStoreInput.model_validate({**PLAN, "receipt": given.model_dump(mode="json"), **changed})


def blockers(input: MetadataStoreInput, facts: dict[str, str]) -> list[str]:
    """Return the blockers of a precheck that finds these facts."""
    findings = Findings()
    check_receipt(findings, input, facts)
    return [str(blocker) for blocker in findings.blockers]


def test_a_start_is_refused_where_facts_differ() -> None:
    """Each fact that changed, came or went is named with its old and new value, and nothing else is."""
    input = bound(receipt())
    assert blockers(input, FACTS) == []
    now = {"pulsar-migrate": "0.3.0", "broker b-1": "Pulsar 5.0.1", "broker b-3": "Pulsar 5.0.1"}
    [blocker] = blockers(input, now)
    assert blocker.startswith("[RECEIPT_DRIFT] 3 facts differ from the receipt of ")
    assert (
        "broker b-2: Pulsar 5.0.1 → nothing, broker b-3: nothing → Pulsar 5.0.1, pulsar-migrate: 0.2.0 → 0.3.0"
        in blocker
    )


def test_other_names_are_another_fact() -> None:
    """A namespace that takes the place of another one is noticed, also where not all are named."""
    assert names_fact(["b/c", "a/b"]) == names_fact(["a/b", "b/c"])
    assert names_fact(["a/b", "b/c"]).startswith("2 (a/b, b/c; sum ")
    many = [f"a/{number:03}" for number in range(100)]
    assert names_fact(many) != names_fact([*many[:-1], "a/other"])
    assert len(names_fact(many)) < 100


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("scalable-topic", {"topic": "persistent://a/b/c"}),
        ("scalable-namespace", {"topics": ["a/b/*"]}),
        ("scalable-operation", {"topics": ["a/b/*"], "operation": "audit"}),
    ],
)
def test_kinds_that_share_requirements_have_their_own_receipts(kind: str, own: dict[str, Any]) -> None:
    """A receipt of each kind of migration to scalable topics binds its own start, and none of the others."""
    plan = {"cluster": "prod", "metadata_url": "zk:zk-1:2181", "admin_urls": ["http://b-1:8080"], **own}
    of_plan = receipt(kind=kind, input=plan).model_dump(mode="json")
    assert KINDS[kind].input.model_validate({**plan, "receipt": of_plan}).receipt is not None
    of_others = receipt(kind="scalable", input=plan).model_dump(mode="json")
    with pytest.raises(ValidationError, match=f"the receipt is of the kind scalable, and this is {kind}"):
        KINDS[kind].input.model_validate({**plan, "receipt": of_others})


def test_an_old_receipt_is_refused() -> None:
    """`receipt_max_age` limits the age; without it any age is accepted."""
    old = receipt(planned_at=datetime.now(UTC) - timedelta(hours=3))
    assert blockers(bound(old), FACTS) == []
    assert blockers(bound(old, receipt_max_age="4h"), FACTS) == []
    [blocker] = blockers(bound(old, receipt_max_age="2h"), FACTS)
    assert blocker.startswith("[RECEIPT_TOO_OLD]")


@pytest.mark.parametrize(
    ("given", "changed", "named"),
    [
        (receipt(kind="bookie-cluster"), {}, "the receipt is of the kind bookie-cluster, and this is metadata-store"),
        (receipt(cluster="staging"), {}, "the receipt is of the cluster staging, and this is prod"),
        (receipt(), {"throttle": 50}, "the input differs from the receipt: throttle: 20.0 → 50.0; plan again"),
        (receipt(), {"mode": "offline"}, 'mode: "live" → "offline"'),
    ],
)
def test_a_receipt_of_something_else_is_refused(given: Receipt, changed: dict[str, Any], named: str) -> None:
    """A receipt of another kind, cluster or input cannot start a migration, whichever way it is started."""
    with pytest.raises(ValidationError, match=named.replace(".", r"\.")):
        bound(given, **changed)


@pytest.mark.parametrize("name", ["dry_run", "receipt_max_age"])
def test_fields_of_the_start_are_not_of_the_plan(name: str) -> None:
    """Whether it is a dry run, and how old the receipt may be, do not differ from a plan."""
    assert bound(receipt(), **{name: {"dry_run": True, "receipt_max_age": "1h"}[name]}).receipt is not None


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": "staging"},
        {"facts": {**FACTS, "broker b-1": "Pulsar 5.0.2"}},
        {"planned_at": "2030-01-01T00:00:00Z"},
        {"warnings": []},
        {"counts": {"survey.records": 1}},
        {"sha256": "0" * 64},
    ],
)
def test_a_changed_receipt_is_refused(change: dict[str, Any]) -> None:
    """The sum of a receipt shows each change by hand."""
    with pytest.raises(ValidationError, match="it was changed after the dry run wrote it"):
        Receipt.model_validate({**receipt().model_dump(mode="json"), **change})


@given(
    counts=st.dictionaries(st.from_regex(r"[a-z_.]{1,20}", fullmatch=True), st.floats(0, 1e18), max_size=4),
    facts=st.dictionaries(st.from_regex(r"[a-z:0-9. ]{1,20}", fullmatch=True), st.text(max_size=20), max_size=4),
)
def test_a_receipt_survives_its_file(counts: dict[str, float], facts: dict[str, str]) -> None:
    """A receipt that was written as JSON and read again keeps its sum, also after a second round."""
    first = receipt(counts=counts, facts=facts)
    second = Receipt.model_validate(json.loads(first.model_dump_json(indent=2)))
    assert Receipt.model_validate_json(second.model_dump_json()) == second
    assert second.sha256 == first.sha256


def test_a_receipt_is_checked_before_temporal_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`start --receipt` refuses a file that is not this plan's receipt in one line, with a cure."""
    plan, file = tmp_path / "plan.yaml", tmp_path / "receipt.json"
    plan.write_text(json.dumps({"kind": "metadata-store", **PLAN}))
    for text, named in (
        (receipt(cluster="staging").model_dump_json(), "the receipt is of the cluster staging, and this is prod"),
        (receipt().model_dump_json().replace("5.0.1", "5.0.2"), "it was changed after the dry run wrote it"),
        ("{}", "receipt.sha256: this field is needed"),
        ("", "it has no named values"),
    ):
        file.write_text(text)
        assert run(["start", str(plan), "--receipt", str(file)]) == ExitCode.USAGE
        [line] = capsys.readouterr().err.splitlines()
        assert named in line
        assert "cure: " in line


def test_the_file_of_a_receipt_is_a_document() -> None:
    """The reader of plans reads receipts, with the same values as JSON."""
    text = receipt().model_dump_json(indent=2)
    assert read_document(text, "receipt.json").values == json.loads(text)
