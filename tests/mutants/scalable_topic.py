"""Mutants of the migration to scalable topics: what brokers leave out, fences, and what is deleted."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = "tests/integration/scalable_topic"
_ALL = f"{_TESTS}/test_flip.py::test_all_that_a_migration_leaves_out_is_there"
_DIED = f"{_TESTS}/test_flip.py::test_an_attempt_that_died_behind_the_call_is_completed"
_LATE = f"{_TESTS}/test_late_flips.py"
_HAND = f"{_TESTS}/test_faults_by_hand.py"
_AFTER = f"{_TESTS}/test_after_the_flip.py"
_FLIP = "activities/scalable_topic/flip.py"

_UNIT = "tests/unit/scalable_topic"

MUTANTS = (
    Mutant(
        "scalable-topic/a-frozen-broker-goes-on",
        "activities/scalable_topic/withdrawal.py",
        "        bar_creation(self.store, name, self.guard.require)\n",
        "",
        (f"{_UNIT}/test_withdrawal.py::test_a_broker_that_does_not_answer_may_have_it",),
    ),
    Mutant(
        "scalable-topic/brokers-that-do-not-answer-have-no-request",
        "activities/scalable_topic/withdrawal.py",
        "        silent = {*asked} - ({*answered} & {*self.answering()}) if asked else set[str]()\n",
        "        silent = set[str]()\n",
        (f"{_UNIT}/test_withdrawal.py::test_a_broker_that_does_not_answer_may_have_it",),
    ),
    Mutant(
        "scalable-topic/requests-under-way-are-not-waited-for",
        "activities/scalable_topic/withdrawal.py",
        "        self._await_creation(name)\n",
        "",
        (f"{_UNIT}/test_withdrawal.py::test_a_request_that_is_carried_out_is_waited_for",),
    ),
    Mutant(
        "scalable-topic/segments-stay-while-requests-are-waited-for",
        "activities/scalable_topic/withdrawal.py",
        "        self._take_back(name, partitions)\n        return True\n",
        "        return True\n",
        (f"{_UNIT}/test_withdrawal.py::test_segments_go_at_once",),
    ),
    Mutant(
        "scalable-topic/a-cancelled-flip-leaves-segments",
        _FLIP,
        "            self._stop(name, partitions)\n            raise\n",
        "            raise\n",
        (f"{_TESTS}/test_late_attempts.py::test_a_flip_that_is_cancelled_leaves_no_segments",),
    ),
    Mutant(
        "scalable-topic/after-a-lost-attempt-nothing-is-asked-again",
        _FLIP,
        "        if regular and (unready := _unready(task, store, topic)) and flip.withdrawn():\n",
        "        if record.stage is Stage.CLAIMED and (unready := _unready(task, store, topic)):\n",
        (f"{_TESTS}/test_own_policies.py::test_what_changes_after_a_flip_died_is_looked_at",),
    ),
    Mutant(
        "scalable-topic/a-newer-record-is-junk",
        "activities/scalable_topic/cluster.py",
        "    if state is RecordState.BROKEN:\n        raise TopicRefused(unreadable(name, state))\n",
        "",
        (f"{_TESTS}/test_newer_records.py::test_a_record_that_cannot_be_read_keeps_guards_and_lock",),
    ),
    Mutant(
        "scalable-topic/policies-that-brokers-refuse-are-not-asked-for",
        "activities/scalable_topic/precheck.py",
        "    check_auto_scale(task, task.input.auto_scale, findings, [task.name.namespace_path])\n",
        "",
        (f"{_TESTS}/test_refused_policies.py::test_a_policy_that_brokers_would_refuse_is_a_blocker",),
    ),
    Mutant(
        "scalable-topic/a-refused-policy-leaves-none",
        "activities/scalable_topic/auto_scale.py",
        "            set_auto_scale(admin, change, topic, _STILL, fence)\n",
        "            pass\n",
        (f"{_UNIT}/test_auto_scale.py::test_a_policy_that_cannot_be_set_holds_nothing_up",),
    ),
    Mutant(
        "scalable-topic/chunks-are-cut",
        "activities/scalable_topic/clients.py",
        "    if producers := chunking_producers(topic):\n",
        "    if producers := []:\n",
        (f"{_UNIT}/test_clients.py::test_producers_of_chunks",),
    ),
    Mutant(
        "scalable-topic/policies-are-not-asked",
        "activities/scalable_topic/readiness.py",
        "    check_policies(findings, topic, namespace, broker, remove=cleans_up(options))\n",
        "",
        (f"{_TESTS}/test_own_policies.py::test_own_retention_is_a_blocker",),
    ),
    Mutant(
        "scalable-topic/own-retention-is-deleted",
        "activities/scalable_topic/cleanup.py",
        "    if own_retention(task.admin, name):\n        return False\n",
        "",
        (f"{_TESTS}/test_own_policies.py::test_own_retention_keeps_the_regular_topic",),
    ),
    Mutant(
        "scalable-topic/force-ends-open-transactions",
        "activities/scalable_topic/clients.py",
        "    if transactions := open_transactions(topic):\n",
        "    if (transactions := open_transactions(topic)) and not force:\n",
        (f"{_UNIT}/test_clients.py::test_open_transactions",),
    ),
    Mutant(
        "scalable-topic/producers-may-begin-transactions",
        "activities/scalable_topic/clients.py",
        "    elif producers := transactional_producers(topic):\n",
        "    elif producers := []:\n",
        (f"{_UNIT}/test_clients.py::test_producers_that_may_begin_a_transaction",),
    ),
    Mutant(
        "scalable-topic/no-segments-before-the-call",
        _FLIP,
        "            make_children(self.change, name, partitions, subscriptions, self.guard.require, each=self.each)\n",
        "",
        (f"{_TESTS}/test_clients.py::test_consumers_that_begin_at_the_end_see_what_is_sent_amid_the_flip",),
    ),
    Mutant("scalable-topic/no-records", _FLIP, "        self._register(topic.name, known)\n", "", (_ALL,)),
    Mutant(
        "scalable-topic/no-records-of-late-ones",
        _FLIP,
        "        self._register(topic.name, late)\n",
        "",
        (f"{_HAND}::test_a_subscription_that_comes_before_the_flip_is_recorded",),
        survives="it comes before the topic is read; none can be made to come between that look and the end",
    ),
    Mutant(
        "scalable-topic/regular-topics-that-take-messages",
        _FLIP,
        "ended = sum(self.each(before, self._terminated))",
        "ended = 0",
        (f"{_HAND}::test_regular_topics_that_brokers_did_not_end_are_ended",),
    ),
    Mutant(
        "scalable-topic/no-look-at-cursors",
        _FLIP,
        "        self.each(layout.active, lambda segment: self._require_places(topic.name, segment, registered))\n",
        "",
        (_DIED,),
        survives="brokers make cursors with each record; this is for records whose answer was lost on its way",
    ),
    Mutant(
        "scalable-topic/an-empty-record-stays",
        _FLIP,
        "                clear_empty(self.store, name, self.guard.check)\n",
        "                pass\n",
        (f"{_TESTS}/test_flip.py::test_an_empty_record_is_cleared_by_whoever_flips",),
    ),
    Mutant(
        "scalable-topic/late-deletions-are-not-waited-for",
        _FLIP,
        "        if self.stage is Stage.WITHDRAWING:\n",
        "        if False:\n",
        (f"{_LATE}::test_late_withdrawals_delete_nothing_of_a_scalable_topic",),
    ),
    Mutant(
        "scalable-topic/late-requests-open-connections",
        "clients/pulsar/admin/late_requests.py",
        "            transport.seal()\n",
        "",
        (_LATE,),
    ),
    Mutant(
        "scalable-topic/records-of-consumers-alone-stay",
        "clients/pulsar/scalable_records.py",
        "        if not node.value:\n            removals",
        "        if False:\n            removals",
        (f"{_TESTS}/test_early_streams.py::test_a_consumer_that_was_faster_gets_its_subscription_a_record",),
    ),
    Mutant(
        "scalable-topic/records-are-removed-late",
        "clients/pulsar/scalable_records.py",
        "        store.transaction([fence(), *parts])\n",
        "        fence()\n        store.transaction([*_removals(store, path, -1)])\n",
        (f"{_TESTS}/test_name_taken.py::test_a_late_removal",),
    ),
    Mutant(
        "scalable-topic/lost-topics-stay-halves",
        "activities/scalable_topic/cluster.py",
        "    yield from _finish_topics(task, store, half)\n",
        "",
        (f"{_HAND}::test_the_next_migration_completes_a_topic_whose_run_was_lost_behind_the_call",),
    ),
    Mutant(
        "scalable-topic/the-cluster-is-taken-for-a-run-that-has-ended",
        "activities/scalable_topic/context.py",
        "        if not self._owners.is_open(claim, store.url):\n            if found is None:",
        "        if False:\n            if found is None:",
        (f"{_TESTS}/test_late_attempts.py::test_a_guard_of_a_run_that_has_ended_takes_nothing",),
    ),
    Mutant(
        "scalable-topic/types-are-what-brokers-say-now",
        "activities/scalable_topic/clients.py",
        "        topic = with_types(task.read_topic(task.name), seen)\n",
        "        topic = task.read_topic(task.name)\n",
        (f"{_TESTS}/test_forgotten_types.py::test_an_ordered_subscription_is_waited_for_all_the_same",),
    ),
    Mutant(
        "scalable-topic/what-is-used-again-stays-deleted",
        "activities/scalable_topic/recording.py",
        "    found += [_on_segments(name, ordered=name in recorded) for name in sorted(used)]\n",
        "    pass\n",
        (f"{_AFTER}::test_a_subscription_that_is_deleted_and_used_again_has_its_record",),
    ),
    Mutant(
        "scalable-topic/one-topic-stops-a-cleanup",
        "activities/scalable_topic/cleanup.py",
        '        why = patiently(task, f"delete {name}", lambda: _delete(task, store, name))\n',
        "        why = _delete(task, store, name)\n",
        (f"{_AFTER}::test_a_topic_that_brokers_fail_for_stops_no_cleanup",),
    ),
    Mutant(
        "scalable-topic/a-cleanup-forgets-what-it-did",
        "activities/scalable_topic/cleanup.py",
        '    guard.note(cleaned=True, deleted=gone or why == "", kept=why or "")\n',
        '    guard.note(deleted=False, kept=why or "")\n',
        (f"{_AFTER}::test_what_an_attempt_has_cleaned_the_next_one_reports",),
    ),
    Mutant(
        "scalable-topic/nothing-keeps-a-regular-topic-until-the-window-ends",
        "activities/scalable_topic/one_topic.py",
        "                told += keep_for_grace(task, guard, task.name)\n",
        "",
        (f"{_TESTS}/test_schemas.py::test_regular_topics_stay_until_the_window_ends",),
    ),
    Mutant(
        "scalable-topic/no-right-is-asked-for",
        "activities/scalable_topic/precheck.py",
        "    check_rights(task.admin, findings, [task.name.namespace_path])\n",
        "",
        (f"{_HAND}::test_a_right_that_is_missing_changes_nothing",),
    ),
    Mutant(
        "scalable-topic/names-that-are-taken-are-left-out",
        "activities/scalable_topic/many_topics.py",
        "    return listed[name] and has_become(store, read_scalable(store, topic), topic)\n",
        "    return listed[name]\n",
        (f"{_TESTS}/test_namespace.py::test_a_topic_whose_name_is_taken_is_reported",),
    ),
    Mutant(
        "scalable-topic/what-cannot-be-loaded-is-consumed",
        "activities/scalable_topic/drain.py",
        "_find(task, types))) or _unloadable(topic):\n",
        "_find(task, types))):\n",
        (f"{_AFTER}::test_what_no_broker_can_load_is_not_consumed",),
    ),
    Mutant(
        "scalable-topic/a-topic-that-brokers-fail-for-blocks-all",
        "activities/scalable_topic/cluster.py",
        "            if isinstance(error, AdminUnreachable) and not isinstance(error, AdminServerError):\n",
        "            if isinstance(error, AdminUnreachable):\n",
        (f"{_AFTER}::test_a_topic_that_cannot_be_completed_blocks_no_other",),
    ),
    Mutant(
        "scalable-topic/brokers-are-asked-for-what-they-cannot-read",
        "activities/scalable_topic/cleanup.py",
        "    if record.state in (RecordState.EMPTY, RecordState.BROKEN):\n",
        "    if False:\n",
        (f"{_AFTER}::test_a_record_that_somebody_has_emptied_keeps_the_regular_topic",),
    ),
)
