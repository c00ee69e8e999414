"""Mutants of what all migrations share: claims, the fence, compare-and-set, commands, settings, the coverage table."""

from __future__ import annotations

from tests.mutants.marks import any_version, becomes, drop, swap, without
from tests.mutants.mutant import mutants

_CAS = "tests/unit/clients/test_cas.py"
_OXIA_CLIENT = "tests/integration/clients/test_oxia_client.py"
_LEASHED_COMMAND = "tests/unit/lifecycle/test_leashed_command.py"
_BACKGROUND_TASKS = "tests/unit/metadata_store/test_background_tasks.py"
_SETTINGS = "tests/unit/lifecycle/test_settings.py"
_SECRETS = "tests/unit/lifecycle/test_secrets_stay.py"
_REDACTION = "tests/unit/lifecycle/test_redaction.py"
_NEVER_DOWN = "tests/unit/clients/test_never_down.py"
_SPARK_ENGINE = "tests/integration/lifecycle/test_spark_engine.py"
_COVERAGE = "tests/unit/lifecycle/test_coverage.py"
_DEFECTS = "tests/unit/lifecycle/test_defects.py"
_OPERATIONS_WORKFLOW = "tests/integration/scalable_topic/test_operations_workflow.py"
_NAMESPACES = "tests/integration/topic_controller/test_namespaces.py"
_ROLLBACK = "tests/workflows/blue_green/test_rollback.py"
_STORE_ROLLBACK = "tests/workflows/metadata_store/test_rollback.py"
_HOLD = "tests/workflows/metadata_store/test_hold.py"
_REAL_WAVES = "tests/integration/lifecycle/test_waves.py"
_WAVES = "tests/workflows/lifecycle/test_migration_waves.py"

_GATEWAY = "tests/workflows/gateway/test_gateway.py"

MUTANTS = mutants(
    {
        _CAS: {
            "shared/fence-lets-other-migrations-pass": drop,
            "shared/take-from-another-migration": drop,
            "shared/take-by-a-late-attempt": drop,
            "shared/pace-of-another-run": drop,
            "shared/release-by-a-late-attempt": drop,
            "shared/executor-does-not-check": drop,
            "shared/executor-reads-and-continues": drop,
            "shared/fence-without-claim": becomes("return"),
            "shared/fence-lets-other-runs-pass": without(0),
            "shared/fence-lets-late-attempts-pass": without(1),
            "shared/fence-is-fresh-from-its-answer-on": becomes("time.monotonic() + _CLAIM_EVERY"),
            "shared/guard-of-any-version": becomes("Check(self._path, -1)"),
            "shared/take-sets-any-version": any_version,
            "shared/renew-sets-any-version": any_version,
            "shared/change-sets-any-version": any_version,
            "shared/release-of-any-version": any_version,
            "shared/a-new-run-keeps-what-the-old-one-knew": becomes("{}"),
            "shared/renew-without-a-claim": becomes("self.read()"),
            "shared/newer-run-is-not-newer": becomes("self.epoch >= other.epoch"),
            "shared/newer-epoch-is-not-newer": becomes("self.attempt > other.attempt"),
            "shared/final-conflicts-are-tried-again": becomes("StoreConflict"),
            "shared/throttle-while-clients-are-blocked": without(1),
            "shared/hold-while-clients-are-blocked": without(1),
            "shared/hold-of-a-lost-attempt": becomes("claim is not None and self._paced and bool(claim.held)"),
        },
        "tests/unit/lifecycle/test_encryption.py::test_another_key_of_the_same_id_is_an_error": {
            "shared/a-signal-of-another-key-stops-a-workflow": becomes("raise PayloadUnreadable(why)"),
        },
        "tests/unit/lifecycle/test_times.py::test_times_at_the_ends_of_the_calendar_are_refused": {
            "shared/times-that-utc-does-not-have": drop,
        },
        "tests/unit/lifecycle/test_receipts.py::test_a_start_is_refused_where_facts_differ": {
            "shared/a-receipt-is-not-compared": becomes("list[str]()"),
        },
        f"{_GATEWAY}::test_the_largest_update": {
            "shared/large-updates-end-a-workflow": drop,
        },
        f"{_GATEWAY}::test_a_migration_with_a_long_name": {
            "shared/long-names-are-not-cut": becomes("True"),
        },
        "tests/unit/lifecycle/test_long_names.py::test_summaries": {
            "shared/long-summaries-are-not-cut": swap(
                "within_bytes(one_line(text), MAX_SUMMARY_BYTES)", "one_line(text)"
            ),
        },
        f"{_ROLLBACK}::test_rollback_is_refused_once_all_have_moved": {
            "shared/a-rollback-after-the-commit": drop,
        },
        f"{_HOLD}::test_a_later_order_counts_more_than_a_proceed": {
            "shared/a-proceed-before-a-hold-counts": drop,
        },
        f"{_STORE_ROLLBACK}::test_a_cancellation_does_not_let_the_rollback_overtake_a_step": {
            "shared/rollback-next-to-a-step": swap("cancelled = error", "raise"),
        },
        "tests/workflows/scalable_topic/test_namespace.py::test_a_change_is_not_a_way_around_two_persons": {
            "shared/gates-open-for-one-person": drop,
        },
        "tests/workflows/metadata_store/test_change_windows.py::test_two_persons_widen_windows": {
            "shared/windows-widened-by-one-person": becomes("True"),
        },
        f"{_WAVES}::test_a_rollback_waits_for_a_child_past_its_deadline": {
            "shared/rollback-next-to-a-child": drop,
        },
        f"{_WAVES}::test_a_rollback_waits_for_a_child_that_was_given_up": {
            "shared/rollback-next-to-a-child-that-was-given-up": drop,
        },
        f"{_REAL_WAVES}::test_a_clean_up_after_a_child_that_was_given_up_ends_first": {
            "shared/child-that-was-given-up-and-terminated": drop,
            "shared/run-that-ends-during-a-clean-up": without(1),
        },
        f"{_OXIA_CLIENT}::test_an_answer_of_the_guard_counts_from_the_question_on": {
            "shared/guard-of-oxia-is-fresh-from-its-answer-on": becomes("time.monotonic() + _GUARD_SECONDS"),
        },
        f"{_LEASHED_COMMAND}::test_a_lost_claim_ends_it": {
            "shared/command-without-a-check-of-the-claim": drop,
            "shared/command-continues-without-the-claim": drop,
        },
        f"{_LEASHED_COMMAND}::test_cancellation_ends_the_whole_group": {
            "shared/command-is-not-waited-for": drop,
            "shared/command-is-not-cancelled": becomes("time.sleep(_POLL)"),
            "shared/children-of-a-command-live-on": swap("os.killpg", "os.kill"),
            "shared/command-is-never-killed": becomes("(signal.SIGTERM,)"),
        },
        f"{_LEASHED_COMMAND}::test_a_limit_ends_the_command": {
            "shared/command-without-a-limit": drop,
        },
        f"{_LEASHED_COMMAND}::test_a_late_command_is_not_run": {
            "shared/old-order-is-started": drop,
        },
        f"{_LEASHED_COMMAND}::test_the_command_of_a_frozen_or_dead_worker_ends": {
            "shared/command-outlives-a-frozen-worker": drop,
            "shared/command-outlives-a-dead-worker": becomes("continue"),
        },
        _BACKGROUND_TASKS: {
            "shared/deadline-is-given-up-when-the-store-is-away": becomes("True"),
        },
        _SETTINGS: {
            "shared/common-credentials-instead-of-named-ones": swap("is None", "is False"),
            "shared/credentials-to-any-host": swap("self.hosts and not", "not self.hosts and not"),
            "shared/credentials-in-clear-text": swap("not encrypted and", "encrypted and"),
        },
        _REDACTION: {
            "shared/secrets-in-failures": drop,
            "shared/secrets-in-results": drop,
            "shared/secrets-in-the-log": swap("redacted(super().format(record))", "super().format(record)"),
        },
        _NEVER_DOWN: {
            "shared/plain-after-a-refused-certificate": drop,
        },
        _SECRETS: {
            "shared/children-inherit-credentials": swap("if name in inherited or name.startswith(beginnings)", ""),
            "shared/spark-without-authentication": swap("_missing(master, settings.spark_conf)", "{}"),
        },
        f"{_SPARK_ENGINE}::test_a_session_starts_without_a_fork_and_moves_no_environment": {
            "shared/environment-moves-while-others-read-it": drop,
        },
        _COVERAGE: {
            "coverage/unknown-items-pass": drop,
            "coverage/settings-that-cannot-be-read-pass": drop,
            "coverage/policies-that-cannot-be-read-pass": drop,
            "coverage/questions-are-not-asked": drop,
            "coverage/no-second-check": drop,
            "coverage/refused-features-can-be-accepted": becomes(
                "cell.outcome is Outcome.REFUSED and feature.id not in accepted"
            ),
            "coverage/only-one-level-of-paths": becomes("[]"),
        },
        _DEFECTS: {
            "coverage/untested-releases-pass": becomes("True"),
        },
        f"{_OPERATIONS_WORKFLOW}::test_what_the_cluster_uses_is_looked_at": {
            "coverage/operations-are-not-compared-again": drop,
        },
        f"{_NAMESPACES}::test_namespaces_that_are_refused": {
            "coverage/controllers-are-not-compared": drop,
        },
    }
)
