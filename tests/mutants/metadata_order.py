"""Mutants of what changed, what is equal, and what comes first in the metadata store migration."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_WATCH = ("tests/unit/lifecycle/test_source_watch.py",)
_RULES = ("tests/unit/metadata_store/test_equivalence.py",)
_OPS = ("tests/unit/clients/test_zookeeper_ops.py",)
_BACK = "tests/workflows/metadata_store/test_rollback.py"
_WINDOW = "tests/workflows/metadata_store/test_window.py"
_HOLD = "tests/workflows/metadata_store/test_hold.py"
_PATHS = "tests/workflows/metadata_store/test_paths.py"
_SURVEY = ("tests/unit/metadata_store/test_survey.py",)
_INDEXED, _INDEX_TESTS = "activities/metadata_store/indexed.py", ("tests/unit/metadata_store/test_indexed.py",)
_ASKED, _BROKER_SETTINGS = "activities/metadata_store/brokers.py", ("tests/unit/metadata_store/test_brokers.py",)
_SOURCE_WATCH, _EQUIVALENCE = "activities/metadata_store/source_watch.py", "spark/metadata_store/equivalence.py"
_WORKFLOW = "workflows/metadata_store/workflow.py"
_WATCHER, _AFTER_COMMIT = "workflows/metadata_store/watcher.py", "workflows/metadata_store/window.py"

MUTANTS = (
    # What changed -----------------------------------------------------------------------------------------------------
    Quoted(
        "metadata-store/a-late-comparison-cleans",
        _SOURCE_WATCH,
        "                if self._dirty.get(path, mark + 1) <= mark:",
        "                if path in self._dirty:",
        _WATCH,
    ),
    Quoted(
        "metadata-store/another-scan-closes-the-gap",
        _SOURCE_WATCH,
        '            if self._feed is feed:\n                self._missed = ""',
        '            self._missed = ""',
        _WATCH,
    ),
    Quoted(
        "metadata-store/a-dead-feed-is-no-gap",
        _SOURCE_WATCH,
        'self._feed, self._missed = None, missed or "the watch of the source could not be set"',
        "self._feed, self._missed = None, missed",
        _WATCH,
    ),
    Quoted(
        "metadata-store/a-late-attempt-replaces-the-watch",
        _SOURCE_WATCH,
        "            if standing and standing.owner.is_newer_than(attempt):",
        "            if False:",
        _WATCH,
    ),
    Quoted(
        "metadata-store/a-broken-feed-is-no-gap",
        _SOURCE_WATCH,
        '            return self._missed or (self._feed.gap if self._feed else None) or ""',
        "            return self._missed",
        _WATCH,
    ),
    Quoted(
        "metadata-store/our-own-claim-is-a-change",
        _SOURCE_WATCH,
        "for path in paths if not is_coordination(path))",
        "for path in paths)",
        _WATCH,
    ),
    # What is equal ----------------------------------------------------------------------------------------------------
    Quoted(
        "metadata-store/values-are-not-compared",
        _EQUIVALENCE,
        "            source.value == target.value\n            and self",
        "            self",
        _RULES,
    ),
    Quoted(
        "metadata-store/versions-are-not-compared",
        _EQUIVALENCE,
        "            and self.source_numbers(source) == self.target_numbers(target)\n",
        "",
        _RULES,
    ),
    Quoted(
        "metadata-store/counters-may-fall",
        _EQUIVALENCE,
        "            and target.count >= self.counter(source)\n",
        "",
        _RULES,
    ),
    Quoted(
        "metadata-store/ephemerals-are-copied",
        _EQUIVALENCE,
        "return not record.owner and not is_coordination(record.path)",
        "return not is_coordination(record.path)",
        _RULES,
    ),
    Quoted(
        "metadata-store/ledger-ids-are-given-again",
        "clients/zookeeper/counters.py",
        "    if record.count > record.version and keeps_count(record.path, record.value):",
        "    if False:",
        ("tests/unit/clients/test_zookeeper_counters.py",),
    ),
    Quoted(
        "metadata-store/sets-of-any-version",
        "clients/zookeeper/ops.py",
        "        yield wire.op_set(path, value if version + 1 == last else filler, version)",
        "        yield wire.op_set(path, value if version + 1 == last else filler, -1)",
        _OPS,
    ),
    # What is refused -------------------------------------------------------------------------------------------------
    Quoted(
        "metadata-store/locks-are-sequences",
        _EQUIVALENCE,
        "return is_held(path) and not _SEQUENTIAL.fullmatch(path)",
        'return is_held(path) and not re.search(rb"\\d{10}$", path)',
        _SURVEY,
    ),
    Quoted(
        "metadata-store/holders-of-sequences-are-unseen",
        _EQUIVALENCE,
        'return path.startswith(b"/") and not is_coordination(path)\n',
        'return path.startswith(b"/") and not is_coordination(path) and not _SEQUENTIAL.fullmatch(path)\n',
        _SURVEY,
    ),
    Quoted(
        "metadata-store/transactions-lose-their-indexes",
        _INDEXED,
        "if used := [parent.decode() for parent in _TRANSACTIONS if reader.children(parent)]:",
        "if used := [parent.decode() for parent in _TRANSACTIONS[:1] if reader.children(parent)]:",
        _INDEX_TESTS,
    ),
    Quoted(
        "metadata-store/transactions-leave-oxia",
        _INDEXED,
        'if to_oxia or input.source_url.scheme == "oxia" or input.mode is Mode.LIVE:',
        "if to_oxia or input.mode is Mode.LIVE:",
        _INDEX_TESTS,
    ),
    Quoted(
        "metadata-store/unknown-topics-have-no-properties",
        _INDEXED,
        "        # A newer form, perhaps.\n        return True",
        "        return False",
        _INDEX_TESTS,
    ),
    Quoted(
        "metadata-store/configuration-stores-are-chroots",
        _ASKED,
        "if same.root == store.root]",
        "if True]",
        _BROKER_SETTINGS,
    ),
    Quoted(
        "metadata-store/metadata-is-exchanged-by-the-source",
        _ASKED,
        "for name in _SYNC_TOPICS if settings.get(name)]",
        "for name in _SYNC_TOPICS[1:] if settings.get(name)]",
        _BROKER_SETTINGS,
    ),
    Quoted(
        "metadata-store/segments-listen-to-the-source",
        _ASKED,
        "    if subscribed and _has_scalable_topics(input, access):",
        "    if False:",
        _BROKER_SETTINGS,
    ),
    Quoted(
        "metadata-store/nested-stores-are-copied",
        "clients/pulsar/roots.py",
        "    return parent not in _BOOKKEEPERS\n",
        "    return False\n",
        _SURVEY,
    ),
    Quoted(
        "metadata-store/nobody-looks-before-the-watch-ends",
        _AFTER_COMMIT,
        "late = await (self._take_census() if self._removal_is_due else self._follow(_LAST_CHECK))",
        "late = await self._take_census() if self._removal_is_due else 0",
        (f"{_WINDOW}::test_late_writes_keep_the_window_open",),
    ),
    Quoted(
        "metadata-store/late-writes-end-the-window",
        _AFTER_COMMIT,
        '        return _STILL_WRITTEN if late else ""',
        '        del late\n        return ""',
        (f"{_WINDOW}::test_late_writes_keep_the_window_open",),
    ),
    Quoted(
        "metadata-store/removed-while-users-are-unknown",
        _AFTER_COMMIT,
        "            if facts.not_known:",
        "            if False:",
        (f"{_WINDOW}::test_nothing_is_removed_while_anything_is_unknown",),
    ),
    # The order of the steps -------------------------------------------------------------------------------------------
    Quoted(
        "metadata-store/no-deadline-while-writes-are-blocked",
        _WORKFLOW,
        "async with self.timers.deadline(_BLOCKED, self.input.blocked_deadline):",
        "async with self.timers.deadline(_BLOCKED, self.input.blocked_deadline * 1_000):",
        (f"{_BACK}::test_blocked_deadline",),
    ),
    Quoted(
        "metadata-store/precheck-leaves-writes-blocked",
        _WORKFLOW,
        "            await self._give_back()\n            raise",
        "            raise",
        (f"{_BACK}::test_rollback_in_the_precheck", f"{_BACK}::test_failure_of_the_precheck"),
    ),
    Quoted(
        "metadata-store/the-target-is-cleared-before-writes-are-free",
        _WORKFLOW,
        "        await self.phases.undo(Phase.FAILED, lambda: self._unblock(cause))",
        "        await self._clear_target()\n        await self._unblock(cause)",
        (f"{_BACK}::test_failure_in_each_phase",),
    ),
    Quoted(
        "metadata-store/a-commit-that-happened-is-undone",
        _WORKFLOW,
        "        if (restored := self.state.restored) and restored.committed:",
        "        if (restored := self.state.restored) and restored.committed and False:",
        (f"{_BACK}::test_deadline_when_the_commit_had_happened",),
    ),
    Quoted(
        "metadata-store/blocked-steps-go-to-any-worker",
        _WATCHER,
        "return Call(summary, queue=state.pre.worker_queue if state.pre else None, once=once, total=total)",
        "return Call(summary, once=once, total=total)",
        (f"{_PATHS}::test_blocked_steps_run_where_the_source_is_watched",),
    ),
    Quoted(
        "metadata-store/the-cutover-does-not-wait-for-a-new-watcher",
        _WORKFLOW,
        "            await self._catch_up_for(timedelta(0))\n",
        "            break\n",
        (f"{_HOLD}::test_watcher_lost_before_the_cutover",),
    ),
    Quoted(
        "metadata-store/a-source-in-use-is-removed",
        _AFTER_COMMIT,
        "            if facts.still_on_source:",
        "            if False:",
        (f"{_WINDOW}::test_cleanup_is_refused_while_the_source_is_in_use",),
    ),
    Quoted(
        "metadata-store/a-cleanup-that-knows-no-sessions",
        _AFTER_COMMIT,
        "self._activities.run(cleanup.clean_source, call, self._state.sessions)",
        "self._activities.run(cleanup.clean_source, call)",
        (f"{_WINDOW}::test_services_of_the_commit_are_known_in_the_window",),
    ),
    Quoted(
        "metadata-store/a-cleanup-without-end",
        _AFTER_COMMIT,
        "            if part.remaining and not part.removed:",
        "            if False:",
        (f"{_WINDOW}::test_a_failed_cleanup_keeps_the_report",),
    ),
    Quoted(
        "metadata-store/late-writes-are-not-told",
        _AFTER_COMMIT,
        "        if services:\n            self._board.alarm(LATE)\n",
        "        if services:\n            pass\n",
        (f"{_WINDOW}::test_late_writes_raise_an_alarm_and_are_followed",),
    ),
)
