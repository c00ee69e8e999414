"""Mutants of copy, catch-up and commit of the metadata store migration."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_STEPS = "tests/integration/metadata_store/test_steps.py"
_CUTOVER, _PRE_COPY = "activities/metadata_store/cutover.py", "activities/metadata_store/pre_copy.py"
_PREPARATION, _WAY_BACK = "activities/metadata_store/preparation.py", "activities/metadata_store/rollback.py"
_REPLICA, _CONVERGENCE = "spark/metadata_store/replica.py", "activities/metadata_store/convergence.py"


_PRECHECK = "activities/metadata_store/precheck.py"
_REFUSALS = "tests/integration/metadata_store/test_refusals.py"
_GUARDS = "tests/integration/metadata_store/test_guards.py"
_OXIA = "tests/integration/clients/test_oxia_client.py"
_BROKERS = "tests/integration/metadata_store/test_late_brokers.py"


def _step(name: str) -> tuple[str, ...]:
    return (f"{_STEPS}::{name}",)


def _broker(name: str) -> tuple[str, ...]:
    return (f"{_BROKERS}::{name}",)


_SETTLING = ("tests/unit/metadata_store/test_settling.py",)

MUTANTS = (
    Quoted(
        "metadata-store/a-store-with-bookies-counts-as-a-configuration-store",
        _PRECHECK,
        "        if not unregistered or registered(reader):\n",
        "        if not unregistered:\n",
        ("tests/unit/metadata_store/test_survey.py",),
    ),
    Quoted(
        "metadata-store/participants-lose-the-time-before-the-flag",
        _PREPARATION,
        "                if time.monotonic() - blocked > patience:",
        "                if time.monotonic() - begun > patience:",
        ("tests/unit/metadata_store/test_preparation.py",),
    ),
    Quoted(
        "metadata-store/a-first-proceed-ends-a-window-that-is-still-written",
        "workflows/metadata_store/window.py",
        "if vouched and refusal == self._state.refused_cleanup == _STILL_WRITTEN:",
        "if vouched and refusal == _STILL_WRITTEN:",
        ("tests/workflows/metadata_store/test_window.py::test_late_writes_keep_the_window_open",),
    ),
    Quoted(
        "metadata-store/a-commit-waits-for-writes-without-an-end",
        _CUTOVER,
        "if unsettled and rounds > _SETTLE_ROUNDS and time.monotonic() > end:",
        "if False:",
        _SETTLING,
    ),
    Quoted(
        "metadata-store/records-of-others-are-not-copied-before-the-commit",
        _CUTOVER,
        "                replica.apply(dirty)\n",
        "                pass\n",
        _SETTLING,
    ),
    Quoted(
        "metadata-store/no-fence-between-reading-and-writing",
        _REPLICA,
        "                before()\n",
        "                pass\n",
        _step("test_the_fence_is_asked_between_reading_and_writing"),
    ),
    Quoted(
        "metadata-store/writes-over-anything",
        _REPLICA,
        "self._writer.put(self._rules.wanted(mine), over=theirs.version if theirs else ABSENT)",
        "self._writer.put(self._rules.wanted(mine), over=None)",
        _step("test_what_was_written_since_it_was_read_stands"),
    ),
    Quoted(
        "metadata-store/late-writes-over-services",
        _REPLICA,
        "            return theirs.version <= commit.target\n",
        "            return True\n",
        _step("test_what_services_wrote_after_the_commit_stands"),
    ),
    Quoted(
        "metadata-store/deleted-copies-come-back",
        _REPLICA,
        "return mine is None or mine.changed > commit.source_zxid",
        "return True",
        _step("test_a_deleted_copy_is_contested"),
    ),
    Quoted(
        "metadata-store/the-commit-does-not-say-where-it-lies",
        _CUTOVER,
        "                settled_zxid=settled.point.source_zxid,\n",
        "",
        _step("test_a_copy_made_before_the_commit_is_not_brought_back"),
    ),
    Quoted(
        "metadata-store/the-commit-does-not-say-what-services-wrote",
        _CUTOVER,
        "settled_target=settled.point.target,",
        "settled_target=1 << 60,",
        _step("test_what_services_wrote_after_the_commit_stands"),
    ),
    Quoted(
        "metadata-store/no-line-after-the-bulk-copy",
        _PRE_COPY,
        "    floor = raise_floor(task, max(bulk.copied.highest, rest.highest))\n    rounds,",
        "    floor = 0\n    rounds,",
        _step("test_no_copied_version_is_given_twice"),
    ),
    Quoted(
        "metadata-store/no-line-at-the-end-of-pre-copy",
        _PRE_COPY,
        "    floor = raise_floor(task, highest, floor)\n    return bulk.result(task, since_zxid=since_zxid",
        "    return bulk.result(task, since_zxid=since_zxid",
        _step("test_no_version_is_given_twice"),
    ),
    Quoted(
        "metadata-store/no-line-offline",
        _PRE_COPY,
        "    floor = raise_floor(task, max(bulk.copied.highest, rest.highest))\n    return",
        "    floor = 0\n    return",
        _step("test_an_offline_copy_gives_no_version_twice"),
    ),
    Quoted(
        "metadata-store/no-line-after-catching-up",
        "activities/metadata_store/catch_up.py",
        "    floor = raise_floor(task, highest, pre.version_floor)\n",
        "    floor = pre.version_floor\n",
        _step("test_no_version_is_given_twice"),
    ),
    Quoted(
        "metadata-store/no-line-in-verify",
        _CUTOVER,
        "        floor = raise_floor(task, max(replica.highest, highest), pre.version_floor)\n",
        "        floor = pre.version_floor\n",
        _step("test_no_version_is_given_twice"),
    ),
    Quoted(
        "metadata-store/no-line-at-the-commit",
        _CUTOVER,
        "            floor = raise_floor(task, replica.highest, floor)\n",
        "",
        _step("test_no_version_is_given_twice"),
    ),
    Quoted(
        "metadata-store/a-scan-finds-nothing-changed",
        "spark/metadata_store/jobs.py",
        "    return {path for one in found for path in one.paths}.union(*gone)",
        "    return set()",
        _step("test_changes_are_found_without_the_watch"),
    ),
    Quoted(
        "metadata-store/a-scan-finds-nothing-deleted",
        "spark/metadata_store/jobs.py",
        "    return {path for one in found for path in one.paths}.union(*gone)",
        "    return {path for one in found for path in one.paths}",
        _step("test_changes_are_found_without_the_watch"),
    ),
    Quoted(
        "metadata-store/a-scan-misses-what-was-set",
        "spark/metadata_store/tasks.py",
        "if max(record.changed, record.children_changed) > since and",
        "if record.children_changed > since and",
        _step("test_changes_are_found_without_the_watch"),
    ),
    Quoted(
        "metadata-store/a-gap-is-not-scanned",
        _CONVERGENCE,
        "watch.fill(feed, jobs.changed_since(task.engine, task.pair, since_zxid, tag=task.tag()))",
        "watch.fill(feed, ())",
        _step("test_changes_are_found_without_the_watch"),
    ),
    Quoted(
        "metadata-store/differences-are-not-read-again",
        _CONVERGENCE,
        "        remaining = frozenset(replica.differences(todo))\n",
        "        remaining = frozenset[bytes]()\n",
        (_STEPS,),
        survives="a write that the server acknowledged and did not do: no store of ours does that",
    ),
    Quoted(
        "metadata-store/verify-compares-nothing",
        _CUTOVER,
        "        different = set(replica.differences(todo))\n",
        "        different = set[bytes]()\n",
        _step("test_what_differs_at_the_end_is_put_right"),
    ),
    Quoted(
        "metadata-store/verify-repairs-nothing",
        _CUTOVER,
        "            converge(task, replica, changes, different)\n",
        "            pass\n",
        _step("test_what_differs_at_the_end_is_put_right"),
    ),
    Quoted(
        "metadata-store/nothing-is-copied-while-writes-are-blocked",
        _CUTOVER,
        "            applied = replica.apply(changes.dirty.paths)\n",
        "            applied = replica.apply(())\n",
        _step("test_what_differs_at_the_end_is_put_right"),
    ),
    Quoted(
        "metadata-store/writes-are-blocked-during-a-scan",
        _PREPARATION,
        "            if gap := not_caught_up(task):\n",
        '            if gap := "":\n',
        _step("test_nothing_is_blocked_before_all_is_caught_up"),
    ),
    Quoted(
        "metadata-store/leftovers-count-as-ready",
        _REPLICA,
        "theirs.version) > mark",
        "theirs.version) > -1",
        _broker("test_a_second_attempt_waits_for_each_broker_again"),
    ),
    Quoted(
        "metadata-store/brokers-are-asked-once",
        "activities/pulsar/able_brokers.py",
        "            blockers = findings.blockers\n",
        "            blockers = findings.blockers[:0]\n",
        _broker("test_a_broker_that_restarts_with_other_settings"),
    ),
    Quoted(
        "metadata-store/addresses-tell-stores-apart",
        "clients/stores.py",
        "    return lead_to_one_ensemble(first, second, auth=access.zookeeper_auth, timeout=access.timeout)\n",
        "    return False\n",
        _broker("test_a_broker_that_restarts_with_other_settings"),
    ),
    Quoted(
        "metadata-store/acls-are-not-read",
        "spark/metadata_store/tasks.py",
        "    return reader.protected(paths) if isinstance(reader, ZooKeeperReader) else []",
        "    return []",
        (f"{_REFUSALS}::test_what_a_copy_would_lose_is_refused",),
    ),
    Quoted(
        "metadata-store/services-follow-an-older-target",
        _PRECHECK,
        "        if self._earlier_target and not _is_store(self._earlier_target, self._input.target_url):",
        "        if False:",
        (f"{_REFUSALS}::test_services_of_a_failed_attempt_must_be_able_to_follow",),
    ),
    Quoted(
        "metadata-store/brokers-of-a-configuration-store-are-unseen",
        _PRECHECK,
        "        if reader.children(CLUSTERS.encode()) and not self._running(reader):",
        "        if False:",
        (f"{_REFUSALS}::test_a_configuration_store_is_refused_live",),
    ),
    Quoted(
        "metadata-store/other-clusters-share-nothing",
        _PRECHECK,
        "        if self._input.ignore_other_clusters:",
        "        if True:",
        (f"{_REFUSALS}::test_a_configuration_store_is_refused_live",),
    ),
    Quoted(
        "metadata-store/transactions-are-looked-for-once",
        _PREPARATION,
        "            require_no_indexed(task.input, task.runtime.access)\n",
        "",
        (f"{_GUARDS}::test_transactions_that_begin_after_the_precheck_block_nothing",),
    ),
    Quoted(
        "metadata-store/indexes-are-not-looked-for-at-the-commit",
        _CUTOVER,
        "            require_no_indexed(task.input, task.runtime.access)\n",
        "",
        (f"{_GUARDS}::test_what_an_index_needs_at_the_commit_ends_it",),
    ),
    Quoted(
        "metadata-store/differences-at-the-commit",
        _CUTOVER,
        "        if not dirty:\n            return _Settled",
        "        if len(dirty) < 50:\n            return _Settled",
        (f"{_GUARDS}::test_nothing_is_known_to_differ_at_the_commit",),
    ),
    Quoted(
        "metadata-store/streams-of-lost-tasks-last",
        "clients/oxia/connection.py",
        "return method(requests, timeout=lifetime, metadata=",
        "return method(requests, metadata=",
        (f"{_OXIA}::test_what_comes_late_on_a_guarded_stream_is_not_applied",),
    ),
    Quoted(
        "metadata-store/a-stream-is-used-to-its-end",
        "clients/oxia/writer.py",
        "            if self._stream.is_old():",
        "            if False:",
        (f"{_OXIA}::test_a_guarded_stream_is_renewed",),
    ),
    Quoted(
        "metadata-store/lost-tasks-are-not-waited-for",
        _PRE_COPY,
        "    if had_tasks:",
        "    if False:",
        (f"{_GUARDS}::test_late_writers_are_waited_for",),
    ),
    Quoted(
        "metadata-store/looks-leave-the-flag",
        _CUTOVER,
        "        flag.rebroadcast()\n",
        "        pass\n",
        (f"{_GUARDS}::test_the_flag_is_repeated_at_each_look",),
    ),
    Quoted(
        "metadata-store/a-round-forgets-the-mark",
        "activities/metadata_store/catch_up.py",
        "return mark if settled else since_zxid,",
        "return since_zxid,",
        _step("test_the_transaction_id_of_a_round_covers_its_changes"),
    ),
    Quoted(
        "metadata-store/late-way-back-clears-the-next-copy",
        _WAY_BACK,
        "        if (held := claim.read()) is not None and not held.claim.is_of(task.attempt):",
        "        if (held := claim.read()) is None:",
        _step("test_a_late_way_back_leaves_the_next_run_alone"),
    ),
    Quoted(
        "metadata-store/the-way-back-keeps-the-copy",
        _WAY_BACK,
        'removed, _ = jobs.clear(task.engine, task.fenced_pair, "target", tag=task.tag())',
        "removed = 0",
        _step("test_a_late_way_back_leaves_the_next_run_alone"),
    ),
    Quoted(
        "metadata-store/the-way-back-clears-what-another-command-uses",
        _WAY_BACK,
        "if claim.claim(None).ours and not (used := _in_use(task)):",
        "if claim.claim(None).ours:",
        (f"{_GUARDS}::test_a_target_that_another_command_migrates_to_is_not_cleared",),
    ),
    Quoted(
        "metadata-store/the-way-back-clears-what-services-use",
        _WAY_BACK,
        "        if services:\n",
        "        if False:\n",
        (f"{_GUARDS}::test_a_target_in_which_services_run_is_not_cleared",),
    ),
    Quoted(
        "metadata-store/bulk-jobs-do-not-read-the-flag",
        "spark/metadata_store/tasks.py",
        "        if source is not None:\n            require_phase(source, phases)\n",
        "",
        (f"{_GUARDS}::test_bulk_jobs_end_when_another_command_moves_the_flag",),
    ),
    Quoted(
        "metadata-store/a-commit-that-leaves-late-services-behind",
        _CUTOVER,
        "    if names:\n        late |=",
        "    if False:\n        late |=",
        (f"{_GUARDS}::test_a_service_that_takes_no_part_and_comes_late_ends_the_commit",),
    ),
    Quoted(
        "metadata-store/a-cleanup-though-a-bookie-is-cut-off",
        "activities/metadata_store/census.py",
        'both stores", absent_bookies(target), _ABSENT)',
        'both stores", (), _ABSENT)',
        (f"{_GUARDS}::test_a_bookie_that_is_registered_nowhere_keeps_the_source",),
    ),
    Quoted(
        "metadata-store/a-bookie-that-is-cut-off-is-unknown-to-nobody",
        "activities/metadata_store/census.py",
        "        for bookie in absent\n",
        "        for bookie in ()\n",
        (f"{_GUARDS}::test_a_bookie_that_is_registered_nowhere_keeps_the_source",),
    ),
)
