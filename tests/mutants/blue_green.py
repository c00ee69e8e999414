"""Mutants of the blue-green migration: fences, the order of a flip, restored policies, comparisons and rejections."""

from __future__ import annotations

from tests.mutants.marks import becomes, drop, swap, without, without_last_argument
from tests.mutants.mutant import Known, mutants

_TRAPS = "tests/integration/blue_green/test_traps.py"
_THROTTLE = "tests/unit/blue_green/test_throttle.py"
_REOPENED = "tests/integration/blue_green/test_reopened.py"
_TOPIC_USE = "tests/unit/blue_green/test_topic_use.py"
_COPY_CHECKS = "tests/unit/blue_green/test_copy_checks.py"
_EXPIRATION = "tests/unit/blue_green/test_expiration.py"
_DRAIN = "tests/unit/blue_green/test_drain.py"
_LOAD = "tests/unit/blue_green/test_load.py"
_FIT = "tests/unit/blue_green/test_fit.py"
_DIFFERENCES = "tests/unit/blue_green/test_differences.py"
_SETTINGS = "tests/unit/blue_green/test_settings.py"
_LATE_SUBSCRIPTIONS = "tests/unit/blue_green/test_late_subscriptions.py"
_LATE = "tests/integration/blue_green/test_late.py"
_IDLE_BACKLOGS = "tests/integration/blue_green/test_idle_backlogs.py"
_UNDRAINABLE = "tests/unit/blue_green/test_undrainable.py"
_SECOND_START = "tests/integration/blue_green/test_second_start.py"
_CLAIMS = "tests/integration/blue_green/test_claims.py"
_MIGRATION = "tests/integration/blue_green/test_migration.py"
_UNDO = "tests/integration/blue_green/test_undo.py"
_CLEANUP = "tests/integration/blue_green/test_cleanup.py"
_FAILBACK = "tests/integration/blue_green/test_failback.py"
_ADOPTED_COPIES = "tests/unit/blue_green/test_adopted_copies.py"
_COPIED_CURSORS = "tests/unit/blue_green/test_copied_cursors.py"
_FINAL_COPY = "tests/unit/blue_green/test_final_copy.py"
_UNIT_FLIP = "tests/unit/blue_green/test_flip.py"
_UNIT_UNDO = "tests/unit/blue_green/test_undo.py"
_FAILBACK_DELETIONS = "tests/unit/blue_green/test_failback_deletions.py"
_LEFTOVERS = "tests/unit/blue_green/test_leftovers.py"
_LATE_REQUESTS = "tests/unit/blue_green/test_late_requests.py"
_FLIP = "tests/integration/blue_green/test_flip.py"
_SAVED_CLIENTS = "tests/unit/blue_green/test_saved_clients.py"
_SWEEP = "tests/unit/blue_green/test_sweep.py"
_STORES = "tests/unit/blue_green/test_stores.py"
_CLIENT_VERSIONS = "tests/unit/blue_green/test_client_versions.py"
_CUT_MESSAGES = "tests/unit/blue_green/test_cut_messages.py"
_INTEGRATION_TOPIC_USE = "tests/integration/blue_green/test_topic_use.py"
_NAMES = "tests/unit/blue_green/test_names.py"
_DYNAMIC_SETTINGS = "tests/unit/blue_green/test_dynamic_settings.py"
_RELEASE = "tests/unit/blue_green/test_release.py"
_FROZEN_FLAGS = "tests/unit/blue_green/test_frozen_flags.py"
_COMPLETION = "tests/unit/blue_green/test_completion.py"
_INTEGRATION_FROZEN_FLAGS = "tests/integration/blue_green/test_frozen_flags.py"

MUTANTS = mutants(
    {
        f"{_TRAPS}::test_late_attempt_does_not_flip": {
            "blue-green/flag-without-fence": swap("fence", "lambda: None"),
        },
        f"{_TRAPS}::test_nothing_is_flipped_while_green_is_away": {
            "blue-green/flip-without-a-check-of-green": drop,
        },
        f"{_TRAPS}::test_limit_that_is_taken_off_before_the_flag": {
            "blue-green/flip-without-a-check-of-the-limit": becomes("time.monotonic()"),
        },
        f"{_TRAPS}::test_worker_that_froze_after_its_last_check_does_not_flip": {
            "blue-green/flag-long-after-the-last-check": drop,
        },
        f"{_TRAPS}::test_a_batch_that_takes_long_to_check_is_not_flipped": {
            "blue-green/check-that-takes-too-long": swap("time.monotonic() - since", "0.0"),
        },
        _RELEASE: {
            "blue-green/green-is-given-up-if-blue-fails": swap("is None", "is task"),
            "blue-green/record-of-deletions-is-deleted-early": drop,
        },
        _DYNAMIC_SETTINGS: {
            "blue-green/settings-of-a-late-attempt": becomes("read_dynamic_settings(store)"),
        },
        _FROZEN_FLAGS: {
            "blue-green/decision-before-a-late-change": drop,
            "blue-green/flag-of-green-by-a-late-rollback": becomes("ClusterMigration(migrated=False)"),
        },
        f"{_INTEGRATION_FROZEN_FLAGS}::test_a_run_that_was_terminated_changes_no_flag_in_the_next": {
            "blue-green/flag-of-a-run-that-was-terminated": drop,
        },
        f"{_INTEGRATION_FROZEN_FLAGS}::test_a_redirect_is_not_restored_after_clients_came": {
            "blue-green/redirect-by-a-late-rollback": swap(
                "rewrite_flag(green_store, guard.namespace, guard.require)", "read_flag(green_store, guard.namespace)"
            ),
        },
        f"{_INTEGRATION_FROZEN_FLAGS}::test_the_flag_of_the_cluster_is_not_set_over_what_stays": {
            "blue-green/flag-of-the-cluster-by-a-late-attempt": becomes("ClusterMigration(migrated=False)"),
            "blue-green/flag-of-the-cluster-by-a-terminated-run": drop,
        },
        _THROTTLE: {
            "blue-green/limit-by-what-is-stored": becomes("not rate"),
            "blue-green/quiet-before-bookies-have-confirmed": becomes("busy = []"),
        },
        _REOPENED: {
            "blue-green/topics-that-stay-open": Known(
                becomes("False"),
                "brokers of 5.0 do not open topics again; with PULSAR_MIGRATE_BLUE=4.0 the test notices it",
            ),
        },
        _TOPIC_USE: {
            "blue-green/subscriptions-that-expire-pass": swap("0 < minutes * 60 <= unused", "minutes < 0"),
            "blue-green/chunks-that-are-too-far-back": swap("chunks", "not chunks"),
            "blue-green/unfinished-messages": without(0),
            "blue-green/chunks-that-came-since-the-precheck": drop,
            "blue-green/transactions-since-the-precheck": drop,
            "blue-green/old-clients-since-the-precheck": drop,
            "blue-green/replicators-that-are-down": swap("stats", "TopicStats()"),
            "blue-green/backlog-of-replication-at-the-flag": becomes("drained or stats"),
            "blue-green/copy-of-what-is-replicated": swap("IdleSubscriptions.COPY", "IdleSubscriptions.SKIP"),
        },
        _EXPIRATION: {
            "blue-green/consumer-next-to-those-of-clients": becomes("True"),
            "blue-green/late-attempt-connects-to-subscriptions": drop,
            "blue-green/subscriptions-of-what-is-not-drained": becomes("[]"),
            "blue-green/subscriptions-that-are-drained": becomes("True"),
            "blue-green/subscriptions-expire-since-their-creation": drop,
        },
        _COPY_CHECKS: {
            "blue-green/copy-that-green-refuses": drop,
            "blue-green/green-drops-what-is-copied": becomes("name not in blue"),
        },
        _DRAIN: {
            "blue-green/backlog-that-green-gave-up-is-skipped": drop,
            "blue-green/messages-that-green-gives-up-pass": becomes("self._abandoned()"),
        },
        _LOAD: {
            "blue-green/load-without-what-precheck-asked": drop,
            "blue-green/topics-of-green-are-deleted-before-the-refusal": drop,
        },
        _FIT: {
            "blue-green/settings-of-green-are-asked-once": drop,
            "blue-green/types-of-subscriptions": becomes("False"),
            "blue-green/topics-that-green-deletes-pass": becomes("False"),
            "blue-green/limits-of-a-namespace-of-green-pass": drop,
            "blue-green/limits-of-a-topic-of-green-pass": becomes("self"),
        },
        _DIFFERENCES: {
            "blue-green/policies-of-green-alone-pass": swap("value", "not value"),
            "blue-green/settings-of-green-pass": becomes("True"),
        },
        _SETTINGS: {
            "blue-green/settings-of-silent-brokers-pass": becomes("False"),
            "blue-green/settings-that-topics-use-pass": becomes("False"),
        },
        _LATE: {
            "blue-green/flip-without-what-came-late": drop,
        },
        f"{_IDLE_BACKLOGS}::test_a_deleted_topic_does_not_end_the_copy_of_others": {
            "blue-green/backlogs-of-deleted-topics": swap("topic in there", "True"),
        },
        f"{_IDLE_BACKLOGS}::test_the_next_run_relies_upon_the_copies_of_a_flip": {
            "blue-green/record-of-a-flip-is-deleted": swap("record.stage is Stage.FLIPPED", "False"),
        },
        f"{_LATE}::test_a_late_subscription_gets_its_position_in_the_copy": {
            "blue-green/late-subscriptions-get-the-whole-copy": drop,
        },
        _LATE_SUBSCRIPTIONS: {
            "blue-green/copies-for-subscriptions-without-one": swap("last is None", "True"),
            "blue-green/skip-of-what-came-late": swap("now.consumers", "noted.consumers"),
            "blue-green/late-topics-of-an-earlier-run": swap("topic.subscriptions", "True"),
            "blue-green/drained-subscriptions-count-as-deleted": swap("read_flag(store, namespace)", "False"),
            "blue-green/subscriptions-of-an-ended-topic-count-as-deleted": swap("info.marked", "False"),
            "blue-green/topics-with-deletions-are-compared": swap("topic.is_incomplete", "True"),
        },
        f"{_IDLE_BACKLOGS}::test_messages_after_a_copy_are_copied_before_the_flag": {
            "blue-green/flip-without-what-came-after-the-copy": swap("guards", "[]"),
        },
        f"{_TRAPS}::test_publish_limits_are_lifted_after_the_flip": {
            "blue-green/limit-that-stays-after-the-flip": becomes("()"),
        },
        f"{_TRAPS}::test_topic_that_was_unloaded_during_the_flip_is_drained": {
            "blue-green/no-topic-is-loaded-again": drop,
        },
        _UNDRAINABLE: {
            "blue-green/undrainable-replication-is-left": becomes(
                "info is not None and any((not name.startswith('pulsar.') for name in info.cursors))"
            ),
            "blue-green/undrainable-replication-is-not-wrong": swap(
                "needed_by(blue)", "[name for name in blue.cursors if name == 'orders']"
            ),
            "blue-green/flag-taken-off-without-a-limit": drop,
            "blue-green/drain-without-an-end": becomes("True"),
            "blue-green/topic-that-a-client-terminated-holds-writes": becomes("info is None or info.migrated"),
        },
        f"{_TRAPS}::test_drain_sets_a_flag_again_that_a_lost_attempt_took_off": {
            "blue-green/flag-that-a-lost-attempt-took-off": drop,
        },
        f"{_IDLE_BACKLOGS}::test_a_deleted_copy_is_not_used": {
            "blue-green/copy-of-any-run-is-relied-upon": without(2),
        },
        f"{_TRAPS}::test_termination_is_undone": {
            "blue-green/termination-is-not-taken-back": drop,
            "blue-green/subscriptions-are-not-made-again": drop,
        },
        f"{_TRAPS}::test_undo_during_a_sweep": {
            "blue-green/topics-that-cannot-be-undone-are-not-flipped": Known(
                becomes("''"), "if the flag is still set, brokers continue by themselves; only the limit is lost"
            ),
        },
        f"{_TRAPS}::test_limit_of_an_operator_stays": {
            "blue-green/limit-of-an-operator-is-overwritten": becomes("True"),
        },
        f"{_SECOND_START}::test_terminated_while_writes_are_held_back": {
            "blue-green/limit-of-a-run-that-is-gone": swap("noted ", "not noted "),
        },
        f"{_SECOND_START}::test_topics_of_blue_stay_until_they_are_cleaned_up": {
            "blue-green/topics-that-brokers-delete": becomes("override_policies(guard, throttled_rate(task, guard))"),
        },
        f"{_TRAPS}::test_a_limit_without_effect_is_set_again": {
            "blue-green/broker-that-missed-the-limit": drop,
        },
        f"{_LATE}::test_a_policy_that_is_changed_after_load_ends_the_flip": {
            "blue-green/what-changed-after-load": drop,
        },
        f"{_SECOND_START}::test_rolled_back_after_the_canary": {
            "blue-green/what-has-moved-is-created-again": becomes("started"),
        },
        f"{_CLAIMS}::test_address_of_another_cluster_is_not_replaced": {
            "blue-green/address-of-another-cluster": drop,
        },
        f"{_TRAPS}::test_late_attempt_does_not_hold_writes_back": {
            "blue-green/record-without-fence": drop,
        },
        f"{_CLAIMS}::test_late_attempt_does_not_redirect_all_clients": {
            "blue-green/cluster-flag-without-fence": drop,
        },
        f"{_SECOND_START}::test_a_batch_that_is_terminated_releases_writes": {
            "blue-green/batch-that-was-terminated": drop,
        },
        _CLAIMS: {
            "blue-green/late-step-takes-the-claim": becomes("guard.take()"),
        },
        f"{_MIGRATION}::test_an_address_of_another_cluster_is_refused": {
            "blue-green/address-of-any-broker": becomes("not owner"),
        },
        f"{_UNDO}::test_a_flip_that_never_began_is_repeated": {
            "blue-green/flip-that-never-started": becomes("read_flag(store, name) or started"),
        },
        f"{_SECOND_START}::test_a_topic_that_was_deleted_after_its_move": {
            "blue-green/topics-that-were-deleted-after-their-move": swap("flipped or str(topic) in saved", "True"),
        },
        f"{_UNDO}::test_a_namespace_that_is_deleted_after_its_flip": {
            "blue-green/flag-of-a-deleted-namespace": swap("_exists(task, guard)", "True"),
        },
        f"{_UNDO}::test_namespaces_of_an_earlier_run_stay": {
            "blue-green/undo-of-an-earlier-run": swap(".flipped_in == task.attempt.run_id", ""),
        },
        f"{_UNDO}::test_subscriptions_are_restored_after_a_lost_attempt": {
            "blue-green/ends-that-were-not-recorded": drop,
            "blue-green/undo-that-a-terminated-run-left": drop,
        },
        f"{_CLEANUP}::test_messages_that_retention_keeps": {
            "blue-green/cleanup-of-what-retention-keeps": without(1),
        },
        f"{_FAILBACK}::test_retained_messages_are_deleted_only_on_request": {
            "blue-green/failback-deletes-what-retention-keeps": swap("topic.refusal]", "topic.needed_by]"),
        },
        _LEFTOVERS: {
            "blue-green/stored-position-that-may-be-old": swap(
                '_cursor(info, name).get("cursorsLedgerId") == -1', "True"
            ),
            "blue-green/topic-whose-end-is-unknown": swap("info.terminated_position is None", "False"),
            "blue-green/cursors-of-brokers-count-as-subscriptions": swap(
                "in (COMPACTION, DEDUPLICATION)", "== COMPACTION"
            ),
            "blue-green/deletion-of-what-another-cluster-lacks": swap("_unreplicated(info)", "()"),
            "blue-green/deletion-of-compacted-tables": becomes("False"),
            "blue-green/failback-deletes-copies-that-blue-lacks": without(0),
            "blue-green/failback-deletes-what-came-after-the-end": without(1),
            "blue-green/failback-deletes-messages-next-to-copies": becomes("return True"),
        },
        _ADOPTED_COPIES: {
            "blue-green/rollback-closes-producers-of-clients": without(2),
            "blue-green/copies-that-drain-relied-upon-are-given-up": without(2),
        },
        _COPIED_CURSORS: {
            "blue-green/acknowledgements-of-a-late-attempt": drop,
        },
        _FINAL_COPY: {
            "blue-green/half-finished-copy-is-relied-upon": drop,
            "blue-green/half-finished-copy-is-not-repeated": drop,
            "blue-green/copy-of-what-was-terminated": swap(" or has_begun_flip(task, guard, store)", ""),
        },
        _COMPLETION: {
            "blue-green/flag-of-the-cluster-over-what-came-last": becomes("True"),
        },
        _UNIT_FLIP: {
            "blue-green/flip-that-starts-again": swap(
                "(read_flag(store, guard.namespace) or has_terminated_topics(task, guard.namespace))",
                "read_flag(store, guard.namespace)",
            ),
        },
        _UNIT_UNDO: {
            "blue-green/undo-counts-what-clients-terminated": swap(" and info.migrated", ""),
            "blue-green/undo-of-skipped-backlogs": becomes("False"),
        },
        _FAILBACK_DELETIONS: {
            "blue-green/failback-creates-before-late-deletions": drop,
            "blue-green/failback-deletes-without-a-note": drop,
        },
        _LATE_REQUESTS: {
            "blue-green/deletion-that-may-arrive-late": swap(
                "admin: admin.topics.delete", "_: task.blue.admin.topics.delete"
            ),
        },
        f"{_FLIP}::test_writes_are_held_back_until_topics_are_ended": {
            "blue-green/writes-released-before-topics-are-ended": becomes("not pending or over"),
        },
        f"{_FLIP}::test_a_broker_that_does_not_answer_does_not_block_writes": {
            "blue-green/flag-that-a-silent-broker-does-not-see": drop,
            "blue-green/rollback-that-waits-for-a-silent-broker": without_last_argument,
        },
        f"{_FLIP}::test_no_client_creates_a_topic_while_the_flag_is_off": {
            "blue-green/clients-create-topics-while-the-flag-is-off": drop,
        },
        f"{_FLIP}::test_a_new_topic_on_blue_after_the_flip_is_a_fault": {
            "blue-green/topics-that-came-after-the-flip": swap("entries_of(blue)", "0"),
        },
        f"{_FLIP}::test_undrained_topics_are_watched": {
            "blue-green/load-shedding-while-topics-drain": becomes("True"),
            "blue-green/undrainable-topics-are-not-seen": swap("Stage.FLIPPED", "Stage.CLAIMED"),
        },
        f"{_FLIP}::test_a_subscription_in_use_is_not_skipped": {
            "blue-green/skip-of-what-is-in-use": without(0),
            "blue-green/skip-of-what-is-in-use-at-the-flag": drop,
        },
        _SAVED_CLIENTS: {
            "blue-green/parts-of-the-list-that-counts-are-overwritten": swap("head ", "not head "),
        },
        _SWEEP: {
            "blue-green/sweep-that-is-too-slow-for-the-timeout": becomes("sweep > limit"),
        },
        f"{_CLEANUP}::test_messages_that_nothing_keeps": {
            "blue-green/cleanup-of-partitions": swap("topic.whole", "topic"),
        },
        _STORES: {
            "blue-green/configuration-store-of-both": becomes("not shared"),
            "blue-green/configuration-store-apart": becomes("('', '')"),
        },
        _CLIENT_VERSIONS: {
            "blue-green/java-clients-without-a-lookup": swap("2", "0"),
            "blue-green/brokers-that-want-both-addresses": drop,
        },
        (_CUT_MESSAGES, f"{_INTEGRATION_TOPIC_USE}::test_a_message_that_the_flip_would_cut_in_two"): {
            "blue-green/message-that-is-cut-in-two": without_last_argument,
        },
        _CUT_MESSAGES: {
            "blue-green/chunks-that-are-not-confirmed": becomes("check()"),
            "blue-green/chunk-of-a-topic-that-was-loaded-again": swap(
                "stats.publishers", "stats.publishers or not stats.msg_in_counter"
            ),
        },
        _NAMES: {
            "blue-green/flag-of-the-cluster-over-what-stays": becomes("topics_of(task.blue.admin, namespace)"),
            "blue-green/flag-that-ends-health-checks": without(1),
            "blue-green/pattern-that-excludes-nothing": swap("input.exclude", "input.namespaces"),
        },
        "tests/unit/blue_green/test_other_clusters.py": {
            "blue-green/cluster-without-an-address": drop,
        },
        "tests/unit/blue_green/test_recheck.py": {
            "blue-green/settings-are-compared-once": drop,
            "blue-green/topics-that-clients-terminated-pass": drop,
        },
    }
)
