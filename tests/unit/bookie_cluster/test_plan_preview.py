"""The plan of a bookie cluster migration in sentences, and its estimates."""

from __future__ import annotations

from activities.bookie_cluster.precheck import estimate, plan_preview
from models.bookie_cluster.input import Routing
from models.bookie_cluster.results import IdCheck, LedgerSurvey
from tests.support.bookie_cluster.records import input

SURVEY = LedgerSurvey(
    ledgers=1_020,
    unsealed=20,
    entry_bytes=200_000_000,
    kinds={"managed-ledger": 1_020},
    references=990,
    dangling=(),
    dangling_count=0,
    largest_ensemble=2,
)
SAFE = IdCheck(highest=41, next_id=42, cure=0)
TOO_LOW = IdCheck(highest=41, next_id=12, cure=1)


def text(ids: IdCheck | None = SAFE, routing: Routing = Routing.RESTART, **more: object) -> str:
    """Return all sentences of a plan."""
    return "\n".join(plan_preview(input(routing, **more), SURVEY, ids))


def test_restart_names_its_phases_in_order() -> None:
    """A switch by restart says what it copies, who stops brokers, how long that may take, and when it commits."""
    phases = [sentence.partition(":")[0] for sentence in plan_preview(input(), SURVEY, SAFE)]
    said = text(broker_control="webhook")

    assert phases == ["REGISTER", "BUILD", "SWITCH", "SWITCH", "PROMOTE", "ROLLBACK_WINDOW", "CLEANUP"]
    assert "copy 1,000 closed ledgers with 200.0 MB" in said
    assert "the webhook of the settings has all brokers stopped" in said
    assert "recover the open ledgers (20 now)" in said
    assert "after 1:00:00 without a commit brokers start on a again" in said


def test_attribution_leaves_data() -> None:
    """The plan for attribution says that topics' data stay, and does not ask to stop brokers."""
    said = text(routing=Routing.ATTRIBUTION)

    assert "topics' data stay in a" in said
    assert "stop" not in said


def test_node_of_the_generator_is_named() -> None:
    """If ids are advanced, the plan names the node that is created and the next id."""
    said = text(TOO_LOW, advance_ids=True)

    assert "/ledgersB/idgen-long/HOB-0000000001" in said
    assert "4,294,967,296" in said
    assert "HOB" not in text(SAFE, advance_ids=True)


def test_skipped_check_is_announced() -> None:
    """The plan of a switch that skips the check of ids says that messages can be lost."""
    assert "LAB ONLY" in text(TOO_LOW, skip_idgen_precheck=True)


def test_cleanup_says_what_is_deleted_and_when() -> None:
    """The last sentence says whether ledgers are deleted, who decides it, and at most how many."""
    assert "stay as they are" in text()
    assert "by `cleanup` at most 7 of the ledgers of a" in text(cleanup="remove", max_deletions=7)
    assert "at the window's end the ledgers of a" in text(cleanup="remove", cleanup_at_window_end=True)


def test_estimates_follow_throttle_and_full_verify() -> None:
    """A throttle makes the copy longer and not the pause; a full compare makes the pause longer."""
    usual = estimate(input(), SURVEY, remaining=1_000, left_bytes=200_000_000, inspection_seconds=0.5)
    throttled = estimate(input(throttle=2), SURVEY, remaining=1_000, left_bytes=200_000_000, inspection_seconds=0.5)
    verified = estimate(
        input(full_verify=True), SURVEY, remaining=1_000, left_bytes=200_000_000, inspection_seconds=0.5
    )

    assert throttled.copy_seconds > usual.copy_seconds
    assert throttled.pause_seconds == usual.pause_seconds
    assert verified.pause_seconds > usual.pause_seconds
    assert "2 MB/s" in throttled.basis


def test_attribution_has_no_pause() -> None:
    """With routing `attribution` brokers are never stopped."""
    assert (
        estimate(input(Routing.ATTRIBUTION), SURVEY, remaining=1, left_bytes=1, inspection_seconds=9.0).pause_seconds
        == 0
    )
