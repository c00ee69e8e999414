"""Mutants of the metadata store migration: the flag, the copy, the comparison, and the order of the steps."""

from __future__ import annotations

from tests.mutants.marks import any_version, becomes, drop, swap, unfiltered, without, without_last_argument
from tests.mutants.mutant import mutants

_FLAG = "tests/unit/metadata_store/test_flag.py"
_INTEGRATION_FLAG = "tests/integration/metadata_store/test_flag.py"
_SURVEY = "tests/unit/metadata_store/test_survey.py"
_RECREATED = "tests/unit/metadata_store/test_recreated.py"
_PREPARATION = "tests/unit/metadata_store/test_preparation.py"
_WINDOW = "tests/workflows/metadata_store/test_window.py"
_CONVERGENCE = "tests/unit/metadata_store/test_convergence.py"
_STEPS = "tests/integration/metadata_store/test_steps.py"
_LATE_WRITES = "tests/integration/metadata_store/test_late_writes.py"
_LATE_COPIES = "tests/integration/metadata_store/test_late_copies.py"
_LATE_BROKERS = "tests/integration/metadata_store/test_late_brokers.py"
_REFUSALS = "tests/integration/metadata_store/test_refusals.py"
_GUARDS = "tests/integration/metadata_store/test_guards.py"
_COMPARE_BOUNDS = "tests/integration/clients/test_compare_bounds.py"
_OXIA_CLIENT = "tests/integration/clients/test_oxia_client.py"
_SOURCE_WATCH = "tests/unit/lifecycle/test_source_watch.py"
_EQUIVALENCE = "tests/unit/metadata_store/test_equivalence.py"
_ZOOKEEPER_COUNTERS = "tests/unit/clients/test_zookeeper_counters.py"
_ZOOKEEPER_WRITER = "tests/integration/clients/test_zookeeper_writer.py"
_ZOOKEEPER_OPS = "tests/unit/clients/test_zookeeper_ops.py"
_INDEXED = "tests/unit/metadata_store/test_indexed.py"
_BROKERS = "tests/unit/metadata_store/test_brokers.py"
_ROLLBACK = "tests/workflows/metadata_store/test_rollback.py"
_PATHS = "tests/workflows/metadata_store/test_paths.py"
_HOLD = "tests/workflows/metadata_store/test_hold.py"

MUTANTS = mutants(
    {
        _FLAG: {
            "metadata-store/fence-without-claim": drop,
            "metadata-store/flag-of-any-version": swap("state.version)", "-1)"),
            "metadata-store/flag-with-a-claim-of-any-version": any_version,
            "metadata-store/flag-without-the-claim": becomes("self._store.transaction([part])"),
            "metadata-store/flag-over-a-later-run": any_version,
            "metadata-store/fence-without-phase": becomes("not phases"),
            "metadata-store/mark-of-any-version": any_version,
            "metadata-store/mark-of-another-attempt": without(1),
            "metadata-store/release-of-any-version": any_version,
            "metadata-store/a-new-run-knows-the-old-commit": swap(", **_NEW_RUN", ""),
        },
        _INTEGRATION_FLAG: {
            "metadata-store/release-leaves-writes-blocked": drop,
            "metadata-store/a-late-step-advances": drop,
            "metadata-store/a-run-blocks-twice": drop,
            "metadata-store/a-repeated-move-moves-again": drop,
            "metadata-store/unblock-leaves-the-claim": drop,
            "metadata-store/ownership-by-phase": drop,
            "metadata-store/a-foreign-flag-is-moved": without(1),
            "metadata-store/phases-in-any-order": without(0),
            "metadata-store/unblock-takes-from-a-later-run": becomes("False"),
            "metadata-store/expire-of-a-later-run": without(1),
            "metadata-store/expire-leaves-the-attempt": swap('"attempt": claim.attempt + 1, ', ""),
        },
        _SURVEY: {
            "metadata-store/a-store-with-bookies-counts-as-a-configuration-store": without(1),
            "metadata-store/locks-are-sequences": becomes("is_held(path) and (not re.search(b'\\\\d{10}$', path))"),
            "metadata-store/holders-of-sequences-are-unseen": becomes(
                "not is_coordination(path) and not _SEQUENTIAL.fullmatch(path)"
            ),
            "metadata-store/nested-stores-are-copied": becomes("False"),
        },
        _PREPARATION: {
            "metadata-store/participants-lose-the-time-before-the-flag": swap("blocked", "begun"),
        },
        f"{_WINDOW}::test_late_writes_keep_the_window_open": {
            "metadata-store/a-first-proceed-ends-a-window-that-is-still-written": becomes("vouched"),
            "metadata-store/no-check-before-the-watch-ends": becomes(
                "await self._take_census() if self._window.cleanup_is_due else 0"
            ),
            "metadata-store/late-writes-end-the-window": becomes("''"),
        },
        _CONVERGENCE: {
            "metadata-store/a-repeated-check-forgets-what-was-not-deleted": swap(
                "changes.watch.retained - paths | ", ""
            ),
            "metadata-store/a-repeated-check-forgets-copies": drop,
            "metadata-store/a-commit-waits-for-writes-without-an-end": drop,
            "metadata-store/records-of-others-are-not-copied-before-the-commit": drop,
        },
        f"{_STEPS}::test_writes_that_a_terminated_run_left_blocked_are_unblocked": {
            "metadata-store/unblocking-leaves-its-claim": without(1),
        },
        f"{_STEPS}::test_the_fence_is_asked_between_reading_and_writing": {
            "metadata-store/no-fence-between-reading-and-writing": drop,
        },
        f"{_STEPS}::test_records_changed_since_the_read_are_kept": {
            "metadata-store/writes-over-anything": swap("target.version if target else ABSENT", "None"),
        },
        f"{_STEPS}::test_records_written_after_the_commit_are_kept": {
            "metadata-store/late-writes-over-services": becomes("True"),
            "metadata-store/the-commit-does-not-say-what-services-wrote": swap("equal.point.target", "1 << 60"),
        },
        f"{_STEPS}::test_a_repeated_check_reports_contested_records_again": {
            "metadata-store/a-repeated-check-forgets-contested-records": swap("contested |=", "contested ="),
        },
        f"{_STEPS}::test_differences_of_the_bulk_copy_are_not_forgotten": {
            "metadata-store/differences-of-the-bulk-copy-are-forgotten": drop,
            "metadata-store/a-difference-is-not-repaired-at-once": without(1),
            "metadata-store/differences-are-not-read-again": becomes("frozenset[bytes]()"),
        },
        f"{_STEPS}::test_only_late_writes_are_contested": {
            "metadata-store/what-was-not-written-late-is-contested": becomes("True"),
        },
        _RECREATED: {
            "metadata-store/one-mark-for-all-shards": swap("self._target.shard_of(target.path)", "-1"),
        },
        f"{_GUARDS}::test_a_worker_that_takes_over_keeps_the_deadline": {
            "metadata-store/verify-does-not-watch-the-deadline": drop,
            "metadata-store/the-commit-does-not-watch-the-deadline": drop,
        },
        f"{_COMPARE_BOUNDS}::test_whole_trees_in_excess_are_deleted": {
            "metadata-store/excess-parents-stay": drop,
        },
        _ZOOKEEPER_WRITER: {
            "metadata-store/a-node-of-any-version-is-replaced": drop,
            "metadata-store/a-replacement-in-two-requests": drop,
            "metadata-store/a-replacement-deletes-any-version": swap(", record.version)", ")"),
        },
        _LATE_WRITES: {
            "metadata-store/one-late-write-stops-all-others": swap(
                "(StoreConflict, RecordNotWritable)", "StoreConflict"
            ),
            "metadata-store/copies-of-late-writes-are-forgotten": swap("self.watch.late_writes", "{}"),
        },
        f"{_STEPS}::test_late_writes_are_left_to_the_attempt_that_took_over": {
            "metadata-store/a-late-attempt-takes-its-fence-for-a-conflict": drop,
        },
        f"{_STEPS}::test_a_deleted_copy_is_not_created_again": {
            "metadata-store/deleted-copies-are-created-again": becomes("True"),
        },
        f"{_STEPS}::test_a_deletion_after_the_commit_is_not_undone": {
            "metadata-store/the-commit-does-not-say-where-it-lies": drop,
        },
        f"{_STEPS}::test_no_copied_version_is_given_twice": {
            "metadata-store/no-line-after-the-bulk-copy": becomes("0"),
        },
        f"{_STEPS}::test_no_version_is_given_twice": {
            "metadata-store/no-line-at-the-end-of-pre-copy": drop,
            "metadata-store/no-line-at-the-commit": drop,
            "metadata-store/no-line-after-catching-up": becomes("pre.version_floor"),
            "metadata-store/no-line-in-verify": becomes("pre.version_floor"),
        },
        f"{_STEPS}::test_an_offline_copy_gives_no_version_twice": {
            "metadata-store/no-line-offline": becomes("0"),
        },
        f"{_STEPS}::test_changes_are_found_without_the_watch": {
            "metadata-store/a-scan-finds-nothing-changed": becomes("set()"),
            "metadata-store/a-scan-finds-nothing-deleted": swap(".union(*gone)", ""),
            "metadata-store/a-scan-misses-what-was-set": becomes(
                "record.children_changed > since and (not is_coordination(record.path))"
            ),
            "metadata-store/a-gap-is-not-scanned": becomes("watch.fill(feed, ())"),
        },
        f"{_STEPS}::test_a_difference_at_the_end_is_repaired": {
            "metadata-store/verify-repairs-nothing": drop,
            "metadata-store/verify-compares-nothing": becomes("set[bytes]()"),
            "metadata-store/nothing-is-copied-while-writes-are-blocked": becomes("replica.apply(())"),
        },
        f"{_STEPS}::test_nothing_is_blocked_before_all_is_caught_up": {
            "metadata-store/writes-are-blocked-during-a-scan": drop,
        },
        f"{_LATE_BROKERS}::test_a_second_attempt_waits_for_each_broker_again": {
            "metadata-store/leftovers-count-as-ready": swap("mark", "-1"),
        },
        f"{_LATE_BROKERS}::test_a_broker_that_restarts_with_other_settings": {
            "metadata-store/brokers-are-asked-once": becomes("findings.blockers[:0]"),
            "metadata-store/stores-differ-by-address": becomes("False"),
        },
        f"{_REFUSALS}::test_records_that_a_copy_would_lose_are_refused": {
            "metadata-store/acls-are-not-read": becomes("[]"),
        },
        f"{_REFUSALS}::test_services_of_a_failed_attempt_must_be_able_to_follow": {
            "metadata-store/services-follow-an-older-target": drop,
        },
        f"{_REFUSALS}::test_a_configuration_store_is_refused_live": {
            "metadata-store/brokers-of-a-configuration-store-are-unseen": drop,
            "metadata-store/other-clusters-share-nothing": becomes("True"),
        },
        f"{_GUARDS}::test_new_transactions_are_refused_before_writes_are_blocked": {
            "metadata-store/transactions-are-checked-once": drop,
        },
        f"{_GUARDS}::test_records_of_an_index_at_the_commit_fail_it": {
            "metadata-store/indexes-are-not-checked-at-the-commit": drop,
        },
        f"{_GUARDS}::test_nothing_is_known_to_differ_at_the_commit": {
            "metadata-store/differences-at-the-commit": becomes("len(dirty) < 50"),
        },
        f"{_OXIA_CLIENT}::test_late_writes_on_a_guarded_stream_are_not_applied": {
            "metadata-store/streams-of-lost-tasks-last": swap("timeout=lifetime, metadata", "metadata"),
        },
        f"{_OXIA_CLIENT}::test_a_guarded_stream_is_renewed": {
            "metadata-store/a-stream-is-used-to-its-end": drop,
        },
        f"{_GUARDS}::test_late_writers_are_waited_for": {
            "metadata-store/lost-tasks-are-not-waited-for": drop,
        },
        _LATE_COPIES: {
            "metadata-store/lost-copies-keep-their-permits": drop,
            "metadata-store/unblocking-forgets-late-copies": drop,
            "metadata-store/catching-up-does-not-wait-for-lost-copies": swap(", task.only_copies()", ""),
            "metadata-store/copying-does-not-wait-for-lost-copies": swap("task.only_copies()", "task.flag()"),
            "metadata-store/verify-does-not-wait-for-lost-copies": becomes("return _compare_changes(task, pre, begun)"),
            "metadata-store/the-commit-does-not-wait-for-lost-copies": swap("task.only_copies()", "task.flag()"),
            "metadata-store/late-writes-do-not-wait-for-lost-copies": swap("task.only_copies(), ", ""),
            "metadata-store/rollback-leaves-late-copies": drop,
        },
        f"{_GUARDS}::test_the_flag_is_repeated_at_each_check": {
            "metadata-store/checks-do-not-repeat-the-flag": drop,
        },
        f"{_STEPS}::test_the_transaction_id_of_a_round_covers_its_changes": {
            "metadata-store/a-round-forgets-the-mark": becomes("(since_zxid, changed, changes.gap, highest)"),
        },
        f"{_STEPS}::test_a_late_rollback_does_not_change_the_next_copy": {
            "metadata-store/late-rollback-clears-the-next-copy": becomes("(held := claim.read()) is None"),
            "metadata-store/rollback-keeps-the-copy": becomes("removed = 0"),
        },
        f"{_GUARDS}::test_a_target_that_another_command_migrates_to_is_not_cleared": {
            "metadata-store/rollback-clears-what-another-command-uses": without(1),
        },
        f"{_GUARDS}::test_a_target_in_which_services_run_is_not_cleared": {
            "metadata-store/rollback-clears-what-services-use": drop,
        },
        f"{_GUARDS}::test_bulk_jobs_end_when_another_command_moves_the_flag": {
            "metadata-store/bulk-jobs-do-not-read-the-flag": drop,
        },
        f"{_GUARDS}::test_a_late_service_that_does_not_take_part_fails_the_commit": {
            "metadata-store/a-commit-that-ignores-late-services": drop,
        },
        f"{_GUARDS}::test_an_unregistered_bookie_prevents_the_cleanup": {
            "metadata-store/a-cleanup-though-a-bookie-is-cut-off": swap("absent_bookies(target)", "()"),
            "metadata-store/a-bookie-that-is-cut-off-is-not-reported": swap("absent", "()"),
        },
        _SOURCE_WATCH: {
            "metadata-store/a-late-attempt-replaces-the-watch": drop,
            "metadata-store/a-late-comparison-cleans": becomes("path in self._dirty"),
            "metadata-store/another-scan-closes-the-gap": becomes("True"),
            "metadata-store/a-dead-feed-is-no-gap": without(1),
            "metadata-store/a-broken-feed-is-no-gap": becomes("self._missed"),
            "metadata-store/our-own-claim-is-a-change": unfiltered,
        },
        _EQUIVALENCE: {
            "metadata-store/an-ephemeral-is-a-copy": becomes("True"),
            "metadata-store/values-are-not-compared": drop,
            "metadata-store/versions-are-not-compared": drop,
            "metadata-store/counters-may-fall": drop,
            "metadata-store/ephemerals-are-copied": without(0),
        },
        _ZOOKEEPER_COUNTERS: {
            "metadata-store/ledger-ids-are-reused": drop,
        },
        _ZOOKEEPER_OPS: {
            "metadata-store/sets-of-any-version": swap("version)", "-1)"),
        },
        _INDEXED: {
            "metadata-store/transactions-lose-their-indexes": swap("_TRANSACTIONS", "_TRANSACTIONS[:1]"),
            "metadata-store/transactions-leave-oxia": without(1),
            "metadata-store/unknown-topics-have-no-properties": becomes("False"),
        },
        _BROKERS: {
            "metadata-store/segments-listen-to-the-source": drop,
            "metadata-store/configuration-stores-are-chroots": unfiltered,
            "metadata-store/metadata-is-exchanged-by-the-source": swap("_SYNC_TOPICS", "_SYNC_TOPICS[1:]"),
        },
        f"{_WINDOW}::test_nothing_is_removed_while_anything_is_unknown": {
            "metadata-store/removed-while-users-are-unknown": drop,
        },
        f"{_ROLLBACK}::test_blocked_deadline": {
            "metadata-store/no-deadline-while-writes-are-blocked": swap(
                "self.input.blocked_deadline", "self.input.blocked_deadline * 1_000"
            ),
        },
        (f"{_ROLLBACK}::test_rollback_in_the_precheck", f"{_ROLLBACK}::test_failure_of_the_precheck"): {
            "metadata-store/precheck-leaves-writes-blocked": drop,
        },
        f"{_ROLLBACK}::test_failure_in_each_phase": {
            "metadata-store/the-target-is-cleared-before-writes-are-free": becomes(
                "[await self._clear_target(), await self._unblock(cause)]"
            ),
        },
        f"{_ROLLBACK}::test_deadline_when_the_commit_had_happened": {
            "metadata-store/a-commit-that-happened-is-undone": drop,
        },
        f"{_PATHS}::test_blocked_steps_run_where_the_source_is_watched": {
            "metadata-store/blocked-steps-go-to-any-worker": becomes("Call(summary, total=total)"),
        },
        f"{_HOLD}::test_watcher_lost_before_the_cutover": {
            "metadata-store/the-cutover-does-not-wait-for-a-new-watcher": becomes("break"),
        },
        f"{_HOLD}::test_no_deadline_while_a_new_watcher_catches_up": {
            "metadata-store/a-deadline-before-writes-are-blocked": drop,
        },
        f"{_WINDOW}::test_cleanup_is_refused_while_the_source_is_in_use": {
            "metadata-store/a-source-in-use-is-removed": drop,
        },
        f"{_WINDOW}::test_services_of_the_commit_are_known_in_the_window": {
            "metadata-store/a-cleanup-that-knows-no-sessions": without_last_argument,
        },
        f"{_WINDOW}::test_a_failed_cleanup_keeps_the_report": {
            "metadata-store/a-cleanup-without-end": drop,
        },
        f"{_WINDOW}::test_late_writes_raise_an_alarm_and_are_followed": {
            "metadata-store/late-writes-are-not-reported": drop,
        },
    }
)
