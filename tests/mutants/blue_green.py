"""Mutants of the blue-green migration: fences, the order of a flip, what is put back, and what is compared."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TRAPS = "tests/integration/blue_green/test_traps.py"
_CLAIMS = "tests/integration/blue_green/test_claims.py"
_LATE = "tests/integration/blue_green/test_late.py"
_BACKLOGS = "tests/integration/blue_green/test_idle_backlogs.py"
_AGAIN = "tests/integration/blue_green/test_second_start.py"
_MIGRATION = "tests/integration/blue_green/test_migration.py"
_BACK = "tests/integration/blue_green/test_undo.py"
_CLEANUP = "tests/integration/blue_green/test_cleanup.py"
_REOPENED = "tests/integration/blue_green/test_reopened.py"
_FAILBACK = "tests/integration/blue_green/test_failback.py"
_FLIPS = "tests/integration/blue_green/test_flip.py"
_FLIP = "activities/blue_green/flip.py"
_UNDO = "activities/blue_green/undo.py"
_HELD = "activities/lifecycle/held_policies.py"
_RECORDS = "activities/blue_green/records.py"

MUTANTS = (
    Mutant(
        "blue-green/flag-without-fence",
        "clients/pulsar/namespace_flag.py",
        "fence, lambda policies:",
        "lambda: None, lambda policies:",
        (f"{_TRAPS}::test_late_attempt_does_not_flip",),
    ),
    Mutant(
        "blue-green/flip-without-a-look-at-green",
        _FLIP,
        "    _require_green(task, begun)\n",
        "",
        (f"{_TRAPS}::test_nothing_is_flipped_while_green_is_away",),
    ),
    Mutant(
        "blue-green/flip-without-a-look-at-the-limit",
        _FLIP,
        "    since = require_quiet(task, begun)\n",
        "    since = time.monotonic()\n",
        (f"{_TRAPS}::test_limit_that_is_taken_off_before_the_flag",),
    ),
    Mutant(
        "blue-green/flag-long-after-the-last-look",
        _FLIP,
        "            require_seen_quiet(task, quiet_since)\n",
        "",
        (f"{_TRAPS}::test_worker_that_froze_after_its_last_look_does_not_flip",),
    ),
    Mutant(
        "blue-green/check-that-takes-too-long",
        "activities/blue_green/throttle.py",
        "    if (seconds := time.monotonic() - since) > _valid_for(task):\n        raise StoreConflict(",
        "    if (seconds := 0.0) > _valid_for(task):\n        raise StoreConflict(",
        (f"{_TRAPS}::test_a_batch_that_takes_long_to_check_is_not_flipped",),
    ),
    Mutant(
        "blue-green/limit-by-what-is-stored",
        "activities/blue_green/throttle.py",
        "    if rate:\n",
        "    if not rate:\n",
        ("tests/unit/blue_green/test_throttle.py",),
    ),
    Mutant(
        "blue-green/topics-that-stay-open",
        "activities/blue_green/reopened.py",
        "    return has_defect(task.blue_release, _REOPENS)\n",
        "    return False\n",
        (_REOPENED,),
        survives="brokers of 5.0 do not open topics again; with PULSAR_MIGRATE_BLUE=4.0 the test notices it",
    ),
    Mutant(
        "blue-green/flip-without-what-came-late",
        _FLIP,
        "    late = provision_late(task, begun, store)\n",
        "    late = False\n",
        (_LATE,),
    ),
    Mutant(
        "blue-green/flip-without-what-came-behind-the-copy",
        _FLIP,
        "carried = carry_again(task, guards, store, anew=late)\n",
        "carried = carry_again(task, [], store, anew=late)\n",
        (f"{_BACKLOGS}::test_what_comes_behind_a_copy_is_copied_before_the_flag",),
    ),
    Mutant(
        "blue-green/limit-that-stays-after-the-flip",
        _FLIP,
        "    kept = tuple(why for guard in guards if (why := let_go(task, guard)))\n",
        "    kept = ()\n",
        (f"{_TRAPS}::test_writes_are_let_go_after_the_flip",),
    ),
    Mutant(
        "blue-green/no-topic-is-loaded-again",
        "activities/blue_green/drain.py",
        "            self._repair(guard, blocked)\n",
        "            pass\n",
        (f"{_TRAPS}::test_topic_that_was_unloaded_amid_the_flip_is_drained",),
    ),
    Mutant(
        "blue-green/flag-that-a-lost-attempt-took-off",
        "activities/blue_green/drain.py",
        "        end_topics(task, halfway, store)\n",
        "        pass\n",
        (f"{_TRAPS}::test_drain_sets_a_flag_again_that_a_lost_attempt_took_off",),
    ),
    Mutant(
        "blue-green/copy-of-any-run-is-relied-upon",
        "activities/blue_green/drain.py",
        " or known.record.carried_in != guard.require().copied_in:",
        ":",
        (f"{_BACKLOGS}::test_a_copy_that_is_gone_is_not_relied_upon",),
    ),
    Mutant(
        "blue-green/termination-is-not-taken-back",
        _UNDO,
        "                    _unterminate(task, guard, store, topic)\n",
        "                    pass\n",
        (f"{_TRAPS}::test_termination_is_taken_back",),
    ),
    Mutant(
        "blue-green/subscriptions-are-not-made-again",
        _UNDO,
        "                    _restore_subscriptions(task, guard, store, topic, position)\n",
        "                    pass\n",
        (f"{_TRAPS}::test_termination_is_taken_back",),
    ),
    Mutant(
        "blue-green/topics-without-a-way-back-are-not-flipped",
        _UNDO,
        "        end_topics(task, lost, store)\n",
        "        pass\n",
        (f"{_TRAPS}::test_undo_beside_a_sweep",),
        survives="where the flag still stands brokers go on by themselves; only the limit is lost",
    ),
    Mutant(
        "blue-green/limit-of-an-operator-is-overwritten",
        _HELD,
        "        if now == policy.parsed(change.before):\n",
        "        if True:\n",
        (f"{_TRAPS}::test_limit_of_an_operator_stays",),
    ),
    Mutant(
        "blue-green/limit-of-a-run-that-is-gone",
        _HELD,
        "        if noted and value_at(",
        "        if not noted and value_at(",
        (f"{_AGAIN}::test_terminated_while_writes_are_held_back",),
    ),
    Mutant(
        "blue-green/topics-that-brokers-delete",
        "activities/blue_green/quiesce.py",
        "        hold(guard, INACTIVE, throttled_rate(task, guard))\n",
        "        hold(guard, throttled_rate(task, guard))\n",
        (f"{_AGAIN}::test_topics_of_blue_stay_until_they_are_cleaned_up",),
    ),
    Mutant(
        "blue-green/broker-that-was-not-told",
        "activities/blue_green/throttle.py",
        "                _tell_again(topics, busy)\n",
        "",
        (f"{_TRAPS}::test_brokers_are_told_again_of_a_limit_that_does_not_hold",),
    ),
    Mutant(
        "blue-green/what-changed-after-load",
        "activities/blue_green/quiesce.py",
        "    provision_batch(task, waiting, served=True)\n",
        "",
        (f"{_LATE}::test_a_policy_that_is_changed_after_load_ends_the_flip",),
    ),
    Mutant(
        "blue-green/what-has-moved-is-created-anew",
        _RECORDS,
        "    return set(away) if away != begun and not _elsewhere(task, store) else begun\n",
        "    return begun\n",
        (f"{_AGAIN}::test_rolled_back_behind_the_canary",),
    ),
    Mutant(
        "blue-green/address-of-another-cluster",
        "activities/blue_green/cluster.py",
        "    if away := sent_elsewhere(task, store):\n",
        '    if away := "":\n',
        (f"{_CLAIMS}::test_address_of_another_cluster_is_not_replaced",),
    ),
    Mutant(
        "blue-green/record-without-fence",
        "clients/pulsar/json_records.py",
        "        fence()\n        store.set(",
        "        store.set(",
        (f"{_TRAPS}::test_late_attempt_does_not_hold_writes_back",),
    ),
    Mutant(
        "blue-green/cluster-flag-without-fence",
        "clients/pulsar/cluster_flag.py",
        "        fence()\n",
        "",
        (f"{_CLAIMS}::test_late_attempt_does_not_send_all_clients_away",),
    ),
    Mutant(
        "blue-green/batch-that-was-terminated",
        "workflows/lifecycle/wave_children.py",
        "                await self._children.settle(child.items, why)\n",
        "                pass\n",
        (f"{_AGAIN}::test_a_batch_that_is_terminated_lets_writes_go",),
    ),
    Mutant(
        "blue-green/late-step-takes-the-claim",
        "activities/blue_green/cluster.py",
        "        guard = MigrationGuard(task.keeper(store))\n        claim = guard.renew()\n",
        "        guard = MigrationGuard(task.keeper(store))\n        claim = guard.take()\n",
        (_CLAIMS,),
    ),
    Mutant(
        "blue-green/address-of-any-broker",
        "activities/blue_green/precheck_clusters.py",
        '    if owner.rstrip("/") not in registered:\n',
        "    if not owner:\n",
        (f"{_MIGRATION}::test_an_address_of_another_cluster_is_refused",),
    ),
    Mutant(
        "blue-green/flip-that-never-began",
        _RECORDS,
        "or (begun and _is_ended(task, name))",
        "or begun",
        (f"{_BACK}::test_a_flip_that_never_began_is_done_anew",),
    ),
    Mutant(
        "blue-green/undo-of-an-earlier-run",
        _UNDO,
        "if guard.take().flipped_in == task.attempt.run_id]",
        "if guard.take()]",
        (f"{_BACK}::test_what_an_earlier_run_has_moved_stays",),
    ),
    Mutant(
        "blue-green/ends-that-nobody-noted",
        _UNDO,
        "                _note_ends(store, guard, ended)\n",
        "",
        (f"{_BACK}::test_a_second_attempt_restores_subscriptions",),
    ),
    Mutant(
        "blue-green/cleanup-of-what-retention-keeps",
        "activities/blue_green/leftovers.py",
        "use or retained(rules, topic, info) or",
        "use or",
        (f"{_CLEANUP}::test_messages_that_retention_keeps",),
    ),
    Mutant(
        "blue-green/failback-deletes-what-retention-keeps",
        "activities/blue_green/way_back.py",
        "    if refused := [(topic, one.refusal) for topic, one in ended.items() if one.refusal]:\n",
        "    if refused := [(topic, one.refusal) for topic, one in ended.items() if one.needed_by]:\n",
        (f"{_FAILBACK}::test_what_retention_keeps_is_deleted_only_when_asked",),
    ),
    Mutant(
        "blue-green/cursors-of-brokers-count-as-subscriptions",
        "clients/pulsar/admin/topics.py",
        "name in (COMPACTION, DEDUPLICATION)",
        "name == COMPACTION",
        ("tests/unit/blue_green/test_leftovers.py",),
    ),
    Mutant(
        "blue-green/deletion-of-what-another-cluster-lacks",
        "activities/blue_green/leftovers.py",
        "for remote in _unreplicated(info)",
        "for remote in ()",
        ("tests/unit/blue_green/test_leftovers.py",),
    ),
    Mutant(
        "blue-green/deletion-that-may-arrive-late",
        "activities/blue_green/grace.py",
        "            change=lambda admin: admin.topics.delete(topic),\n",
        "            change=lambda _: task.blue.topics.delete(topic),\n",
        ("tests/unit/blue_green/test_late_requests.py",),
    ),
    Mutant(
        "blue-green/writes-released-before-topics-are-ended",
        _FLIP,
        "        if not left:\n            return count, reopened\n",
        "        if not left or over:\n            return count, reopened\n",
        (f"{_FLIPS}::test_writes_are_held_back_until_topics_are_ended",),
    ),
    Mutant(
        "blue-green/flag-that-a-silent-broker-does-not-see",
        _FLIP,
        "        require_answers(task)\n",
        "        pass\n",
        (f"{_FLIPS}::test_a_broker_that_does_not_answer_keeps_no_writes_back",),
    ),
    Mutant(
        "blue-green/rollback-that-waits-for-a-silent-broker",
        _UNDO,
        "migrated=False, silent=silent)",
        "migrated=False)",
        (f"{_FLIPS}::test_a_broker_that_does_not_answer_keeps_no_writes_back",),
    ),
    Mutant(
        "blue-green/quiet-before-bookies-have-confirmed",
        "activities/blue_green/throttle.py",
        "            same = 0 if busy else same\n",
        "            busy = []\n",
        ("tests/unit/blue_green/test_throttle.py",),
    ),
    Mutant(
        "blue-green/clients-create-topics-while-the-flag-is-off",
        _FLIP,
        "    hold(guard, AUTO_CREATION)\n",
        "",
        (f"{_FLIPS}::test_no_client_creates_a_topic_while_the_flag_is_off",),
    ),
    Mutant(
        "blue-green/topics-that-came-after-the-flip",
        "activities/blue_green/verify.py",
        "(entries := entries_of(blue))",
        "(entries := 0)",
        (f"{_FLIPS}::test_what_comes_to_blue_after_the_flip_is_a_fault",),
    ),
    Mutant(
        "blue-green/load-shedding-amid-what-was-not-drained",
        "activities/blue_green/cluster.py",
        "        if not undrained:\n            restore_settings(task, guard)\n",
        "        restore_settings(task, guard)\n",
        (f"{_FLIPS}::test_what_was_not_drained_is_watched",),
    ),
    Mutant(
        "blue-green/stranded-topics-are-not-seen",
        "activities/blue_green/grace.py",
        "if record.stage is Stage.FLIPPED]",
        "if record.stage is Stage.CLAIMED]",
        (f"{_FLIPS}::test_what_was_not_drained_is_watched",),
    ),
    Mutant(
        "blue-green/skip-of-what-is-in-use",
        "activities/blue_green/drain.py",
        "        if self._clients(topic).consumers.get(name) != 0 or time.monotonic() - since < _IDLE_FOR:\n",
        "        if time.monotonic() - since < _IDLE_FOR:\n",
        (f"{_FLIPS}::test_a_subscription_in_use_is_not_skipped",),
    ),
    Mutant(
        "blue-green/skip-of-what-is-in-use-at-the-flag",
        _FLIP,
        "        note_consumers(task, begun, store)\n",
        "        pass\n",
        (f"{_FLIPS}::test_a_subscription_in_use_is_not_skipped",),
    ),
    Mutant(
        "blue-green/parts-of-the-list-that-counts-are-overwritten",
        "activities/blue_green/saved_clients.py",
        "_SLOTS[bool(head and",
        "_SLOTS[bool(not head and",
        ("tests/unit/blue_green/test_saved_clients.py",),
    ),
    Mutant(
        "blue-green/sweep-that-is-too-slow-for-the-timeout",
        "activities/blue_green/precheck_clusters.py",
        "    if 2 * sweep >= limit:\n",
        "    if sweep > limit:\n",
        ("tests/unit/blue_green/test_sweep.py",),
    ),
    Mutant(
        "blue-green/cleanup-of-partitions",
        "activities/blue_green/leftovers.py",
        "retention(topic.whole)",
        "retention(topic)",
        (f"{_CLEANUP}::test_messages_that_nothing_keeps",),
    ),
)
