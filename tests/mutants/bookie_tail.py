"""Mutants of the tail, of what executors do, and of the progress that is kept."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_TAIL = ("tests/unit/bookie_cluster/test_tail.py",)
_TASKS = ("tests/unit/bookie_cluster/test_tasks.py",)
_PROGRESS = ("tests/unit/bookie_cluster/test_progress.py",)
_RECOVERY = ("tests/unit/clients/test_recovery.py",)
_RECOVERING = "clients/bookkeeper/recovery.py"
_TAILING = "activities/bookie_cluster/tail.py"
_COMPARISON = "activities/bookie_cluster/ledger_comparison.py"
_BOOKIES = ("tests/unit/clients/test_bookies.py",)
_POOL, _COPYING = "clients/bookkeeper/pool.py", "clients/bookkeeper/batch_copy.py"
_LEDGERS = "activities/bookie_cluster/ledgers.py"

MUTANTS = (
    # Which bookies are asked, and for what ----------------------------------------------------------------------------
    Quoted(
        "bookie-cluster/another-bookie-answers-for-a-lost-one",
        _POOL,
        '        reason = "is not registered; start it, or wait until its ledgers were replicated"\n',
        '        host, _, port = bookie_id.rpartition(":")\n'
        "        if host and port.isdigit():\n"
        "            return host, int(port)\n"
        '        reason = "is not registered; start it, or wait until its ledgers were replicated"\n',
        _BOOKIES,
    ),
    Quoted(
        "bookie-cluster/a-registration-counts-after-its-end",
        _POOL,
        "        self._look_up()\n        bookie = self._known.get(bookie_id)\n",
        "        if bookie_id not in self._known:\n            self._look_up()\n"
        "        bookie = self._known.get(bookie_id)\n",
        _BOOKIES,
    ),
    Quoted(
        "bookie-cluster/batches-of-a-bookie-that-refuses-them",
        _POOL,
        "        return code != wire_v2.BAD_REQUEST",
        "        return True",
        _BOOKIES,
    ),
    Quoted(
        "bookie-cluster/batches-of-a-bookie-that-ends-the-connection",
        _POOL,
        "            return False\n        return code",
        "            return True\n        return code",
        _BOOKIES,
    ),
    Quoted(
        "bookie-cluster/an-id-that-is-written-again-is-deleted",
        _COPYING,
        "        if outcome.transient:\n",
        "        if False:\n",
        ("tests/integration/clients/test_bookkeeper_copy.py::test_entries_on_a_dead_bookie_are_one_ledgers_trouble",),
    ),
    Quoted(
        "bookie-cluster/a-deleted-id-is-created-again",
        "clients/bookkeeper/ledgers.py",
        "        if again := sorted(self._deleted.intersection(ledger for ledger, _ in items)):",
        "        if again := sorted(set[int]()):",
        ("tests/integration/clients/test_ledger_directory.py::test_an_id_that_was_deleted_is_not_created_again",),
    ),
    Quoted(
        "bookie-cluster/a-late-deletion-without-a-permit",
        "clients/bookkeeper/ledgers.py",
        "            errors = change_each(link, changes, permit)",
        "            errors = change_each(link, changes)",
        ("tests/integration/clients/test_ledger_directory.py::test_a_deletion_on_its_way_is_refused_after_a_takeover",),
    ),
    Quoted(
        "bookie-cluster/a-tail-leaves-permits-of-earlier-attempts",
        _TAILING,
        "        task.stop_earlier_deletions()\n",
        "",
        _TAIL,
    ),
    # What cannot be decoded -------------------------------------------------------------------------------------------
    Quoted(
        "bookie-cluster/a-ledger-that-cannot-be-decoded-counts-as-lost",
        _COMPARISON,
        "        require_decodable(source, target, named)\n",
        "",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/any-ledger-that-cannot-be-decoded-stops-all",
        _LEDGERS,
        "    return sorted({why for number, why in broken if number in ids or number in source})",
        "    return sorted({why for number, why in broken})",
        ("tests/unit/bookie_cluster/test_ledgers.py",),
    ),
    Quoted(
        "bookie-cluster/a-damaged-topic-counts-as-a-parent",
        "clients/pulsar/references.py",
        '        if path.count("/") < _DEPTHS[record.path.startswith(_SCHEMAS)]:',
        "        if True:",
        ("tests/unit/clients/test_pulsar_formats.py",),
    ),
    Quoted(
        "bookie-cluster/no-last-look-at-brokers",
        _TAILING,
        "        no_brokers.require()\n        return TailCopy(",
        "        return TailCopy(",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/no-look-at-brokers-behind-the-copy",
        _TAILING,
        "        no_brokers.require()\n        progress.set_cutover_ledger_id",
        "        progress.set_cutover_ledger_id",
        _TAIL,
        survives="the last look finds the same, later; this one only spares the comparison",
    ),
    Quoted(
        "bookie-cluster/references-are-not-read-again",
        _TAILING,
        "        if self._stores.references().digest != named.digest:",
        "        if not self._stores.references():",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/a-late-tail-deletes",
        _TAILING,
        "            return target.delete(seen.orphans, self.progress.require)",
        "            return target.delete(seen.orphans)",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/a-late-tail-begins-again",
        _TAILING,
        "                tail.progress.require()\n",
        "                pass\n",
        _TAIL,
        survives="the copy looks at the claim before its first act too",
    ),
    Quoted(
        "bookie-cluster/copies-that-are-referred-to-go",
        _LEDGERS,
        "        and number not in named\n",
        "",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/ledgers-of-others-go",
        _LEDGERS,
        "        and standing.mzxid == mzxid\n",
        "",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/copies-of-living-ledgers-go",
        _LEDGERS,
        "        if number not in source\n        and number not in named",
        "        if number not in named",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/the-tail-does-not-wait-for-brokers",
        _TAILING,
        "        while not self._none_since():",
        "        while False:",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/the-mark-of-before-the-last-broker-went-is-kept",
        _TAILING,
        "        while not self._none_since():",
        "        while stores.brokers():",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/a-broker-that-came-and-went-is-overlooked",
        _TAILING,
        "        if not self._none_since():",
        "        if self._stores.brokers():",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/nothing-but-ids-is-compared",
        _COMPARISON,
        "not verified.holds(ledger, target.get(ledger.ledger_id))",
        "ledger.ledger_id not in target",
        _TAIL,
    ),
    Quoted(
        "bookie-cluster/recovery-without-a-look-at-the-claim",
        "spark/bookie_cluster/tasks.py",
        "            fence.check(0)\n            outcomes += recover_batch",
        "            outcomes += recover_batch",
        _TASKS,
    ),
    Quoted(
        "bookie-cluster/a-copy-without-a-look-at-the-claim",
        "spark/bookie_cluster/tasks.py",
        "            fence.check(0)\n            left",
        "            left",
        _TASKS,
    ),
    Quoted(
        "bookie-cluster/what-could-not-be-recovered-is-copied",
        "spark/bookie_cluster/tasks.py",
        "            left = set(batch.ledger_ids) - lost",
        "            left = set(batch.ledger_ids)",
        _TASKS,
    ),
    Quoted(
        "bookie-cluster/a-writer-that-goes-on-is-closed",
        _RECOVERING,
        "            if len(write_set & unfenced) >= self._metadata.ack_quorum:",
        "            if False:",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/who-is-silent-is-fenced",
        _RECOVERING,
        "            if isinstance(answer, Refused) and answer.code not in _ABSENT\n",
        "            if isinstance(answer, Refused) and answer.code is None\n",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/who-is-silent-has-no-entry",
        _RECOVERING,
        "        absent = sum(flaw.code in _ABSENT for flaw in flaws.values())",
        "        absent = len(flaws)",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/one-that-lacks-an-entry-is-enough",
        _RECOVERING,
        "        if absent >= self._metadata.write_quorum - self._metadata.ack_quorum + 1:",
        "        if absent >= 1:",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/damaged-entries-are-taken",
        _RECOVERING,
        "            elif flaw := self._flaw(answer[0], entry):",
        "            elif flaw := None:",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/the-end-is-what-was-confirmed",
        _RECOVERING,
        "            yield from self._write_again(last + 1, bodies)\n",
        "            break\n",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/the-end-is-not-written-again",
        _RECOVERING,
        "            yield from self._write_again(last + 1, bodies)\n",
        "            pass\n",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/fewer-than-the-ack-quorum-are-enough",
        _RECOVERING,
        "                if len(set(target.replicas(entry)) - self._silent) < self._metadata.ack_quorum:",
        "                if False:",
        _RECOVERY,
    ),
    Quoted(
        "bookie-cluster/progress-of-a-late-attempt",
        "activities/bookie_cluster/progress.py",
        "            self._registry.put(_node(top, number), chunk)",
        "            self._store.set(_node(top, number), chunk, -1) if standing else "
        "self._store.create(_node(top, number), chunk)",
        _PROGRESS,
    ),
    Quoted(
        "bookie-cluster/a-late-attempt-forgets-failures",
        "activities/bookie_cluster/progress.py",
        "        self.require()\n        self._failures = 0",
        "        self._failures = 0",
        _PROGRESS,
    ),
    Quoted(
        "bookie-cluster/another-scope-keeps-what-was-compared",
        "activities/bookie_cluster/progress.py",
        "            self._clear(VERIFIED)\n",
        "            pass\n",
        _PROGRESS,
    ),
    Quoted(
        "bookie-cluster/deletions-are-counted-anew",
        "activities/bookie_cluster/progress.py",
        'return int(found["ledgers"]) if found["step"] == self._step else 0',
        "return 0",
        _PROGRESS,
    ),
)
