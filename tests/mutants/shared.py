"""Mutants of what all migrations share: claims, the fence, compare-and-set, commands, settings, the coverage table."""

from __future__ import annotations

from tests.mutants.marks import any_version, becomes, swap, without
from tests.mutants.mutant import Mutant, noticed_by

_CAS = "tests/unit/clients/test_cas.py"
_OXIA_CLIENT = "tests/integration/clients/test_oxia_client.py"
_LEASHED_COMMAND = "tests/unit/lifecycle/test_leashed_command.py"
_BACKGROUND_TASKS = "tests/unit/metadata_store/test_background_tasks.py"
_SETTINGS = "tests/unit/lifecycle/test_settings.py"
_SPARK_ENGINE = "tests/integration/lifecycle/test_spark_engine.py"
_COVERAGE = "tests/unit/lifecycle/test_coverage.py"
_DEFECTS = "tests/unit/lifecycle/test_defects.py"
_OPERATIONS_WORKFLOW = "tests/integration/scalable_topic/test_operations_workflow.py"
_NAMESPACES = "tests/integration/topic_controller/test_namespaces.py"

MUTANTS = (
    *noticed_by(
        _CAS,
        "shared/fence-lets-other-migrations-pass",
        "shared/take-from-another-migration",
        "shared/take-by-a-late-attempt",
        "shared/pace-of-another-run",
        "shared/release-by-a-late-attempt",
        "shared/executor-does-not-check",
        "shared/executor-reads-and-continues",
    ),
    Mutant("shared/fence-without-claim", _CAS, becomes("return")),
    Mutant("shared/fence-lets-other-runs-pass", _CAS, without(0)),
    Mutant("shared/fence-lets-late-attempts-pass", _CAS, without(1)),
    Mutant("shared/fence-is-fresh-from-its-answer-on", _CAS, becomes("time.monotonic() + _CLAIM_EVERY")),
    Mutant("shared/guard-of-any-version", _CAS, becomes("Check(self._path, -1)")),
    Mutant("shared/take-sets-any-version", _CAS, any_version),
    Mutant("shared/renew-sets-any-version", _CAS, any_version),
    Mutant("shared/change-sets-any-version", _CAS, any_version),
    Mutant("shared/release-of-any-version", _CAS, any_version),
    Mutant("shared/a-new-run-keeps-what-the-old-one-knew", _CAS, becomes("{}")),
    Mutant("shared/renew-without-a-claim", _CAS, becomes("self.read()")),
    Mutant("shared/newer-run-is-not-newer", _CAS, becomes("self.epoch >= other.epoch")),
    Mutant("shared/newer-epoch-is-not-newer", _CAS, becomes("self.attempt > other.attempt")),
    Mutant("shared/final-conflicts-are-tried-again", _CAS, becomes("StoreConflict")),
    Mutant("shared/throttle-while-clients-are-blocked", _CAS, without(1)),
    Mutant(
        "shared/guard-of-oxia-is-fresh-from-its-answer-on",
        f"{_OXIA_CLIENT}::test_an_answer_of_the_guard_counts_from_the_question_on",
        becomes("time.monotonic() + _GUARD_SECONDS"),
    ),
    *noticed_by(
        f"{_LEASHED_COMMAND}::test_a_lost_claim_ends_it",
        "shared/command-without-a-check-of-the-claim",
        "shared/command-continues-without-the-claim",
    ),
    Mutant("shared/command-is-not-waited-for", f"{_LEASHED_COMMAND}::test_cancellation_ends_the_whole_group"),
    Mutant(
        "shared/command-is-not-cancelled",
        f"{_LEASHED_COMMAND}::test_cancellation_ends_the_whole_group",
        becomes("time.sleep(_POLL)"),
    ),
    Mutant(
        "shared/children-of-a-command-live-on",
        f"{_LEASHED_COMMAND}::test_cancellation_ends_the_whole_group",
        swap("os.killpg", "os.kill"),
    ),
    Mutant(
        "shared/command-is-never-killed",
        f"{_LEASHED_COMMAND}::test_cancellation_ends_the_whole_group",
        becomes("(signal.SIGTERM,)"),
    ),
    Mutant("shared/command-without-a-limit", f"{_LEASHED_COMMAND}::test_a_limit_ends_it"),
    Mutant("shared/old-order-is-started", f"{_LEASHED_COMMAND}::test_an_old_order_is_not_begun"),
    Mutant(
        "shared/command-outlives-a-frozen-worker",
        f"{_LEASHED_COMMAND}::test_a_worker_that_freezes_or_dies_takes_it_along",
    ),
    Mutant(
        "shared/command-outlives-a-dead-worker",
        f"{_LEASHED_COMMAND}::test_a_worker_that_freezes_or_dies_takes_it_along",
        becomes("continue"),
    ),
    Mutant("shared/deadline-is-given-up-when-the-store-is-away", _BACKGROUND_TASKS, becomes("True")),
    Mutant("shared/common-credentials-instead-of-named-ones", _SETTINGS, swap("is None", "is False")),
    Mutant(
        "shared/environment-moves-while-others-read-it",
        f"{_SPARK_ENGINE}::test_a_session_starts_without_a_fork_and_moves_no_environment",
    ),
    *noticed_by(
        _COVERAGE,
        "coverage/unknown-items-pass",
        "coverage/settings-that-cannot-be-read-pass",
        "coverage/policies-that-cannot-be-read-pass",
        "coverage/questions-are-not-asked",
        "coverage/no-second-check",
    ),
    Mutant(
        "coverage/refused-features-can-be-accepted",
        _COVERAGE,
        becomes("cell.outcome is Outcome.REFUSED and feature.id not in accepted"),
    ),
    Mutant("coverage/only-one-level-of-paths", _COVERAGE, becomes("[]")),
    Mutant("coverage/untested-releases-pass", _DEFECTS, becomes("True")),
    Mutant(
        "coverage/operations-are-not-compared-again", f"{_OPERATIONS_WORKFLOW}::test_what_the_cluster_uses_is_looked_at"
    ),
    Mutant("coverage/controllers-are-not-compared", f"{_NAMESPACES}::test_namespaces_that_are_refused"),
)
