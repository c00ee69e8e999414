"""Mutants of what is equal, what is deleted, and what comes first in the bookie cluster switch."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_TARGETS = ("tests/unit/bookie_cluster/test_cleanup_targets.py",)
_CLEANING = ("tests/unit/bookie_cluster/test_cleanup.py",)
_LEDGERS = ("tests/unit/bookie_cluster/test_ledgers.py",)
_METADATA = ("tests/unit/clients/test_ledger_metadata.py",)
_BACK = "tests/workflows/bookie_cluster/test_rollback.py"
_GIVEN_UP = "tests/workflows/bookie_cluster/test_given_up.py"
_PATHS = "tests/workflows/bookie_cluster/test_paths.py"
_JUDGING, _MOVING = "activities/bookie_cluster/cleanup.py", "activities/bookie_cluster/ledgers.py"
_CLEANUP = "activities/bookie_cluster/cleanup.py"
_RESTART, _CUTOVER = "workflows/bookie_cluster/cutover_restart.py", "workflows/bookie_cluster/cutover.py"

MUTANTS = (
    Quoted(
        "bookie-cluster/one-damaged-replica-ends-the-cleanup",
        _CLEANUP,
        "                    raise StoreUnreachable(why, ledger_id=ledger_id) from cause\n",
        "                    raise cause.saying(why) from cause\n",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/a-cleanup-that-waits-scans-everything",
        _CLEANUP,
        "        _require_whole(task, lacking_at_first_sight(task))\n",
        "        pass\n",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/originals-go-while-a-bookie-is-away",
        _CLEANUP,
        "    _require_whole(task, facts.lacking)\n",
        "    pass\n",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/originals-go-though-a-replica-is-lost",
        _CLEANUP,
        "                    require_replicas(cluster.bookies, ledger_id, record.metadata)\n",
        "                    pass\n",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/a-ledger-of-a-false-length-is-read-as-a-whole",
        "clients/bookkeeper/compare.py",
        "    if metadata.length <= metadata.last_entry:\n",
        "    if False:\n",
        ("tests/unit/clients/test_bookies.py",),
    ),
    # What is equal, and what moves ------------------------------------------------------------------------------------
    Quoted(
        "bookie-cluster/open-ledgers-count-as-equal",
        _MOVING,
        "if standing is None or not record.closed or not record.same_content(standing):",
        "if standing is None or not record.same_content(standing):",
        _LEDGERS,
    ),
    Quoted(
        "bookie-cluster/other-content-counts-as-equal",
        _MOVING,
        "if standing is None or not record.closed or not record.same_content(standing):",
        "if standing is None or not record.closed:",
        _LEDGERS,
    ),
    Quoted(
        "bookie-cluster/a-changed-copy-counts-as-equal",
        _MOVING,
        "        if self.copies.get(record.ledger_id) == standing.mzxid:",
        "        if record.ledger_id in self.copies:",
        _LEDGERS,
    ),
    Quoted(
        "bookie-cluster/a-changed-original-counts-as-equal",
        _MOVING,
        "        return self.originals.get(record.ledger_id) == record.mzxid",
        "        return record.ledger_id in self.originals",
        _LEDGERS,
    ),
    Quoted(
        "bookie-cluster/ledgers-of-others-move",
        _MOVING,
        "    if input.routing is Routing.RESTART and input.ledgers is LedgerScope.ALL:",
        "    if input.routing is Routing.RESTART:",
        _LEDGERS,
    ),
    Quoted(
        "bookie-cluster/ledgers-of-the-target-move",
        _MOVING,
        " if reference.kind in _PROMOTED_KINDS and reference.cluster in here}",
        " if reference.kind in _PROMOTED_KINDS}",
        _LEDGERS,
    ),
    Quoted(
        "bookie-cluster/last-entries-are-not-compared",
        "clients/bookkeeper/metadata.py",
        "        return self.state, self.last_entry, self.length, self.digest",
        "        return self.state, self.length, self.digest",
        _METADATA,
    ),
    # What a cleanup deletes -------------------------------------------------------------------------------------------
    Quoted(
        "bookie-cluster/a-cleanup-beside-brokers",
        _JUDGING,
        "        if not why and restart and facts.users and not force:",
        "        if False:",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/a-lost-copy-is-enough",
        _JUDGING,
        "return _compared(facts, record) and standing is not None and record.same_content(standing)",
        "return _compared(facts, record)",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/a-copy-that-was-never-compared-is-enough",
        _JUDGING,
        "return _compared(facts, record) and standing is not None and record",
        "return standing is not None and record",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/referred-ledgers-go",
        _JUDGING,
        '    if mentioned and not _stands(facts, record):\n        return f"are referred to, and are not verified',
        '    if False:\n        return f"are referred to, and are not verified',
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/attributed-ledgers-go",
        _JUDGING,
        "    if any(one.cluster in (None, source) for one in mentioned):",
        "    if all(one.cluster in (None, source) for one in mentioned) and mentioned:",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/unattributed-ledgers-go",
        _JUDGING,
        "    if any(one.cluster in (None, source) for one in mentioned):",
        "    if any(one.cluster == source for one in mentioned):",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/compacted-ledgers-go",
        _JUDGING,
        'are not verified there"\n    if record.component in HIDDEN:',
        'are not verified there"\n    if False:',
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/compacted-ledgers-that-failed-go",
        _JUDGING,
        'somebody may write to them"\n    if record.component in HIDDEN:',
        'somebody may write to them"\n    if False:',
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/ledgers-that-differ-by-now-go",
        _JUDGING,
        " and record.ledger_id not in facts.failed",
        "",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/open-ledgers-go",
        _JUDGING,
        '    if not record.closed:\n        return "are open',
        '    if False:\n        return "are open',
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/ledgers-of-others-go-with-force",
        _JUDGING,
        '    if not facts.input.exclusive:\n        return f"are not known',
        '    if False:\n        return f"are not known',
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/the-last-copy-goes",
        _JUDGING,
        "        elif mentioned and (record is None or not _same_or_unfinished(standing, record)):",
        "        elif False:",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/promoted-copies-go",
        _JUDGING,
        "        elif any(one.cluster == facts.input.target.name for one in mentioned):",
        "        elif False:",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/different-ledgers-are-copies",
        _JUDGING,
        "    if standing.ledger_id in facts.failed:\n        return False\n",
        "",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/the-targets-own-ledgers-go",
        _JUDGING,
        "    return record is not None and _same_or_unfinished(standing, record)",
        "    return record is not None",
        _TARGETS,
    ),
    Quoted(
        "bookie-cluster/a-cleanup-before-the-flip",
        _CLEANUP,
        "    _require_active(task, task.input.target)\n",
        "",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/a-cleanup-beside-an-earlier-attempt",
        _CLEANUP,
        "    task.renew()\n    # Until",
        "    # Until",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/copies-go-beside-an-earlier-attempt",
        _CLEANUP,
        "    task.renew()\n    seen",
        "    seen",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/a-late-attempt-deletes",
        _CLEANUP,
        "                note_deleted(task, registry, self._cluster, [record.ledger_id for record in chunk])\n"
        "                progress.note_deleted(before + deleted + len(chunk))\n",
        "",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/a-repeated-step-deletes-more",
        _CLEANUP,
        "            chosen = list(islice(records.values(), max(0, most - before)))",
        "            chosen = list(islice(records.values(), most))",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/references-are-read-before-ledgers-only",
        _CLEANUP,
        "            named = named.plus(later)\n",
        "            pass\n",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/ledgers-of-any-version-go",
        _CLEANUP,
        "        return directory.delete([(record.ledger_id, record.version) for record in records], fence)",
        "        return directory.delete([(record.ledger_id, None) for record in records], fence)",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/copies-go-while-brokers-are-directed-there",
        _CLEANUP,
        "    if directed:",
        "    if False:",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/copies-go-while-brokers-are-there",
        _CLEANUP,
        "for broker, cluster in seen if cluster.url and not cluster.url.overlaps(source.root)]:",
        "for broker, cluster in seen if cluster.url and False]:",
        _CLEANING,
    ),
    Quoted(
        "bookie-cluster/copies-go-while-brokers-say-nothing",
        _CLEANUP,
        "for broker, cluster in seen if cluster.url is None]:",
        "for broker, cluster in seen if False]:",
        _CLEANING,
    ),
    # The order of the steps -------------------------------------------------------------------------------------------
    Quoted(
        "bookie-cluster/ids-are-not-asked-for",
        _RESTART,
        "            await self.require_ids()\n",
        "",
        (f"{_PATHS}::test_ids_behind_at_the_switch",),
    ),
    Quoted(
        "bookie-cluster/ids-of-the-source-are-not-lifted",
        _RESTART,
        "by mistake.\n            await self._lift_source_ids()\n",
        "by mistake.\n            pass\n",
        (f"{_BACK}::test_rollback_in_each_step",),
    ),
    Quoted(
        "bookie-cluster/the-way-back-stops-nobody",
        _RESTART,
        "        await self._stop_brokers(BACK)\n",
        "",
        (f"{_BACK}::test_rollback_in_the_window",),
    ),
    Quoted(
        "bookie-cluster/a-source-that-is-dead-takes-brokers-back",
        _RESTART,
        "            if not found.blockers and (without",
        "            if (without",
        (f"{_GIVEN_UP}::test_a_source_that_is_dead_is_named_before_brokers_stop",),
    ),
    Quoted(
        "bookie-cluster/low-ids-are-accepted-on-the-way-back",
        _RESTART,
        "        require_safe(check, self.input.source)\n",
        "",
        (f"{_BACK}::test_ids_of_the_source_must_be_lifted",),
    ),
    Quoted(
        "bookie-cluster/no-longest-pause",
        _RESTART,
        'deadline("longest pause", self.input.pause_deadline, since=stopped.since):',
        'deadline("longest pause", self.input.pause_deadline * 1_000, since=stopped.since):',
        (f"{_BACK}::test_longest_pause",),
    ),
    Quoted(
        "bookie-cluster/a-broker-that-came-before-the-directive-is-ignored",
        _RESTART,
        "            if directive.alone:\n",
        "            if directive:\n",
        (f"{_BACK}::test_copy_is_repeated_where_a_broker_came",),
    ),
    Quoted(
        "bookie-cluster/a-directive-whose-answer-is-lost-is-not-undone",
        _RESTART,
        "            self.state.stage = max(self.state.stage, CutoverStage.DIRECTED)\n",
        "            pass\n",
        (f"{_BACK}::test_rollback_in_each_step",),
    ),
    Quoted(
        "bookie-cluster/copies-are-removed-for-ever",
        _CUTOVER,
        "        while part and part.left and part.deleted:",
        "        while part and part.left:",
        (f"{_BACK}::test_copies_are_removed_in_parts",),
    ),
    Quoted(
        "bookie-cluster/gives-up-a-target-that-answers",
        "workflows/bookie_cluster/updates.py",
        "            if not (found.target_blockers or found.target_down):",
        "            if False:",
        (f"{_GIVEN_UP}::test_a_target_that_answers_is_not_given_up",),
    ),
    Quoted(
        "bookie-cluster/goes-back-without-being-told-to",
        _RESTART,
        "            if not found.blockers and (without or not found.target_blockers):",
        "            if not found.blockers:",
        (f"{_GIVEN_UP}::test_a_target_that_is_lost_is_given_up",),
    ),
)
