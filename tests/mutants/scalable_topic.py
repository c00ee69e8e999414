"""Mutants of scalable topics: the flip, what is withdrawn and completed, and what is cleaned up."""

from __future__ import annotations

from tests.mutants.marks import becomes, drop, swap, without, without_last_argument
from tests.mutants.mutant import Known, mutants

_FORGOTTEN_TYPES = "tests/integration/scalable_topic/test_forgotten_types.py"
_CLUSTER_CHECKS = "tests/unit/scalable_topic/test_cluster_checks.py"
_POLICY_CHECKS = "tests/unit/scalable_topic/test_policy_checks.py"
_TOPIC_CHECKS = "tests/unit/scalable_topic/test_topic_checks.py"
_COPY_OUT_ROUNDS = "tests/unit/scalable_topic/test_copy_out_rounds.py"
_COPY_OUT_TARGET = "tests/unit/scalable_topic/test_copy_out_target.py"
_OPERATIONS = "tests/integration/scalable_topic/test_operations.py"
_WITHDRAWAL = "tests/unit/scalable_topic/test_withdrawal.py"
_LATE_ATTEMPTS = "tests/integration/scalable_topic/test_late_attempts.py"
_OWN_POLICIES = "tests/integration/scalable_topic/test_own_policies.py"
_NEWER_RECORDS = "tests/integration/scalable_topic/test_newer_records.py"
_REFUSED_POLICIES = "tests/integration/scalable_topic/test_refused_policies.py"
_AUTO_SCALE = "tests/unit/scalable_topic/test_auto_scale.py"
_CLIENTS = "tests/unit/scalable_topic/test_clients.py"
_INTEGRATION_CLIENTS = "tests/integration/scalable_topic/test_clients.py"
_FLIP = "tests/integration/scalable_topic/test_flip.py"
_FAULTS_BY_HAND = "tests/integration/scalable_topic/test_faults_by_hand.py"
_LATE_FLIPS = "tests/integration/scalable_topic/test_late_flips.py"
_EARLY_STREAMS = "tests/integration/scalable_topic/test_early_streams.py"
_NAME_TAKEN = "tests/integration/scalable_topic/test_name_taken.py"
_AFTER_THE_FLIP = "tests/integration/scalable_topic/test_after_the_flip.py"
_SCHEMAS = "tests/integration/scalable_topic/test_schemas.py"
_NAMESPACE = "tests/integration/scalable_topic/test_namespace.py"

MUTANTS = mutants(
    {
        f"{_FORGOTTEN_TYPES}::test_a_type_that_is_seen_while_clients_are_waited_for": {
            "scalable-topic/types-are-forgotten-with-an-attempt": becomes("dict(ordered)"),
        },
        f"{_CLUSTER_CHECKS}::test_addresses_that_lead_to_no_broker": {
            "scalable-topic/a-proxy-is-a-broker": drop,
        },
        f"{_POLICY_CHECKS}::test_blockers": {
            "scalable-topic/own-expiry-is-lost": drop,
            "scalable-topic/subscriptions-expire-on-segments": drop,
            "scalable-topic/types-that-are-not-allowed-are-used": drop,
        },
        f"{_TOPIC_CHECKS}::test_segments_of_an_earlier_topic": {
            "scalable-topic/segments-of-an-earlier-topic-are-taken": drop,
        },
        f"{_COPY_OUT_ROUNDS}::test_messages_that_were_deleted_since": {
            "scalable-topic/a-copy-continues-after-deleted-messages": drop,
        },
        f"{_COPY_OUT_ROUNDS}::test_messages_that_readers_do_not_get": {
            "scalable-topic/a-copy-lacks-what-readers-do-not-get": drop,
        },
        f"{_COPY_OUT_TARGET}::test_policies_that_lose_messages": {
            "scalable-topic/what-keeps-a-copy-expires": drop,
        },
        f"{_OPERATIONS}::test_what_keeps_a_regular_topic_is_no_subscription": {
            "scalable-topic/what-keeps-a-regular-topic-is-a-subscription": swap(" - {GRACE}", ""),
        },
        f"{_TOPIC_CHECKS}::test_parts_of_controlled_topics": {
            "scalable-topic/segments-of-controllers-become-scalable": drop,
        },
        f"{_TOPIC_CHECKS}::test_a_copy_that_was_not_ended": {
            "scalable-topic/what-keeps-a-copy-becomes-a-subscription": drop,
        },
        f"{_WITHDRAWAL}::test_a_broker_that_does_not_answer_may_have_it": {
            "scalable-topic/a-frozen-broker-continues": drop,
            "scalable-topic/brokers-that-do-not-answer-have-no-request": becomes("set[str]()"),
        },
        f"{_WITHDRAWAL}::test_a_topic_that_is_scalable_all_the_same_is_not_barred": {
            "scalable-topic/a-topic-that-is-scalable-stays-barred": drop,
        },
        f"{_WITHDRAWAL}::test_a_topic_that_another_run_completes_is_not_barred": {
            "scalable-topic/a-topic-that-is-completed-stays-barred": drop,
        },
        f"{_WITHDRAWAL}::test_only_brokers_that_may_have_the_request_are_waited_for": {
            "scalable-topic/brokers-without-the-request-are-waited-for": becomes("True"),
            "scalable-topic/brokers-with-the-request-are-not-waited-for": drop,
        },
        f"{_WITHDRAWAL}::test_a_request_that_is_carried_out_is_waited_for": {
            "scalable-topic/requests-under-way-are-not-waited-for": drop,
        },
        f"{_WITHDRAWAL}::test_a_request_that_never_ends_stops_no_other_topic": {
            "scalable-topic/a-request-under-way-is-withdrawn-from": drop,
            "scalable-topic/a-lock-of-one-topic-stops-all": becomes("raise"),
        },
        f"{_WITHDRAWAL}::test_segments_go_at_once": {
            "scalable-topic/segments-stay-while-requests-are-waited-for": drop,
        },
        f"{_LATE_ATTEMPTS}::test_a_flip_that_is_cancelled_leaves_no_segments": {
            "scalable-topic/a-cancelled-flip-leaves-segments": drop,
        },
        f"{_OWN_POLICIES}::test_what_changes_after_a_flip_died_is_looked_at": {
            "scalable-topic/after-a-lost-attempt-nothing-is-checked-again": becomes(
                "record.stage is Stage.CLAIMED and (unready := _unready(task, store, topic))"
            ),
        },
        f"{_NEWER_RECORDS}::test_a_record_that_cannot_be_read_keeps_guards_and_lock": {
            "scalable-topic/a-newer-record-is-junk": drop,
        },
        f"{_REFUSED_POLICIES}::test_a_policy_that_brokers_would_refuse_is_a_blocker": {
            "scalable-topic/policies-that-brokers-refuse-are-not-checked": drop,
        },
        f"{_CLUSTER_CHECKS}::test_a_broker_that_is_silent_stops_no_flip": {
            "scalable-topic/a-silent-broker-stops-a-flip": without_last_argument,
        },
        f"{_AUTO_SCALE}::test_a_policy_that_cannot_be_set_holds_nothing_up": {
            "scalable-topic/a-refused-policy-leaves-none": drop,
        },
        f"{_CLIENTS}::test_producers_of_chunks": {
            "scalable-topic/chunks-are-cut": drop,
        },
        f"{_OWN_POLICIES}::test_own_retention_is_a_blocker": {
            "scalable-topic/policies-are-not-checked": drop,
        },
        f"{_OWN_POLICIES}::test_own_retention_keeps_the_regular_topic": {
            "scalable-topic/own-retention-is-deleted": drop,
        },
        f"{_CLIENTS}::test_open_transactions": {
            "scalable-topic/force-ends-open-transactions": becomes(
                "(transactions := open_transactions(topic)) and (not force)"
            ),
        },
        f"{_CLIENTS}::test_producers_that_may_begin_a_transaction": {
            "scalable-topic/producers-may-start-transactions": drop,
        },
        f"{_INTEGRATION_CLIENTS}::test_consumers_that_begin_at_the_end_see_messages_of_the_flip": {
            "scalable-topic/no-segments-before-the-call": drop,
        },
        f"{_FLIP}::test_all_that_a_migration_leaves_out_is_there": {
            "scalable-topic/no-records": drop,
        },
        f"{_FAULTS_BY_HAND}::test_a_subscription_that_comes_before_the_flip_is_recorded": {
            "scalable-topic/no-records-of-late-ones": Known(
                drop, "it comes before the topic is read; none can be made to come between that look and the end"
            ),
        },
        f"{_FAULTS_BY_HAND}::test_regular_topics_that_brokers_did_not_end_are_ended": {
            "scalable-topic/regular-topics-that-take-messages": becomes("0"),
        },
        f"{_FLIP}::test_an_attempt_that_died_after_the_call_is_completed": {
            "scalable-topic/no-check-of-cursors": Known(
                drop, "brokers make cursors with each record; this is for records whose answer was lost on its way"
            ),
        },
        f"{_FLIP}::test_an_empty_record_is_cleared_by_the_next_flip": {
            "scalable-topic/an-empty-record-stays": drop,
        },
        f"{_LATE_FLIPS}::test_late_withdrawals_delete_nothing_of_a_scalable_topic": {
            "scalable-topic/late-deletions-are-not-waited-for": drop,
        },
        _LATE_FLIPS: {
            "scalable-topic/late-requests-open-connections": drop,
        },
        f"{_EARLY_STREAMS}::test_a_consumer_that_was_faster_gets_its_subscription_a_record": {
            "scalable-topic/records-of-consumers-alone-stay": drop,
        },
        f"{_NAME_TAKEN}::test_a_late_removal": {
            "scalable-topic/records-are-removed-late": becomes(
                "[fence(), store.transaction([*_removals(store, path, -1)])]"
            ),
        },
        f"{_FAULTS_BY_HAND}::test_the_next_migration_completes_a_topic_whose_run_was_lost_after_the_call": {
            "scalable-topic/lost-topics-stay-half-finished": drop,
        },
        f"{_LATE_ATTEMPTS}::test_a_guard_of_a_run_that_has_ended_takes_nothing": {
            "scalable-topic/the-cluster-is-taken-for-a-run-that-has-ended": drop,
        },
        f"{_FORGOTTEN_TYPES}::test_an_ordered_subscription_is_waited_for_all_the_same": {
            "scalable-topic/types-are-what-brokers-say-now": becomes("task.read_topic(task.name)"),
        },
        f"{_AFTER_THE_FLIP}::test_a_subscription_that_is_deleted_and_used_again_has_its_record": {
            "scalable-topic/what-is-used-again-stays-deleted": drop,
        },
        f"{_AFTER_THE_FLIP}::test_a_topic_that_brokers_fail_for_stops_no_cleanup": {
            "scalable-topic/one-topic-stops-a-cleanup": becomes("_delete(task, store, name)"),
        },
        f"{_AFTER_THE_FLIP}::test_what_an_attempt_has_cleaned_the_next_one_reports": {
            "scalable-topic/a-cleanup-forgets-what-it-did": becomes("guard.note(deleted=False, kept_reason=why or '')"),
        },
        f"{_SCHEMAS}::test_regular_topics_stay_until_the_window_ends": {
            "scalable-topic/nothing-keeps-a-regular-topic-until-the-window-ends": drop,
        },
        f"{_FAULTS_BY_HAND}::test_a_right_that_is_missing_changes_nothing": {
            "scalable-topic/no-right-is-checked": drop,
        },
        f"{_NAMESPACE}::test_a_topic_whose_name_is_taken_is_reported": {
            "scalable-topic/names-that-are-taken-are-left-out": without(1),
        },
        f"{_AFTER_THE_FLIP}::test_what_no_broker_can_load_is_not_consumed": {
            "scalable-topic/what-cannot-be-loaded-is-consumed": without(1),
        },
        f"{_AFTER_THE_FLIP}::test_a_topic_that_cannot_be_completed_blocks_no_other": {
            "scalable-topic/a-topic-that-brokers-fail-for-blocks-all": without(1),
        },
        f"{_AFTER_THE_FLIP}::test_a_record_that_was_emptied_keeps_the_regular_topic": {
            "scalable-topic/brokers-are-asked-for-what-they-cannot-read": drop,
        },
    }
)
