"""Mutants of the tail, of what executors do, and of the progress that is kept."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TAIL = ("tests/unit/bookie_cluster/test_tail.py",)
_TASKS = ("tests/unit/bookie_cluster/test_tasks.py",)
_PROGRESS = ("tests/unit/bookie_cluster/test_progress.py",)
_RECOVERY = ("tests/unit/clients/test_recovery.py",)
_RECOVERING = "clients/bookkeeper/recovery.py"
_TAILING = "activities/bookie_cluster/tail.py"
_LEDGERS = "activities/bookie_cluster/ledgers.py"

MUTANTS = (
    Mutant(
        "bookie-cluster/no-last-look-at-brokers",
        _TAILING,
        "        alone.require()\n        return TailCopy(",
        "        return TailCopy(",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/no-look-at-brokers-behind-the-copy",
        _TAILING,
        "        alone.require()\n        progress.set_cutover_ledger_id",
        "        progress.set_cutover_ledger_id",
        _TAIL,
        survives="the last look finds the same, later; this one only spares the comparison",
    ),
    Mutant(
        "bookie-cluster/references-are-not-read-again",
        _TAILING,
        "        if all_references(self._store).digest != named.digest:",
        "        if not all_references(self._store):",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/a-late-tail-deletes",
        _TAILING,
        "            return target.delete(found, self.progress.require)",
        "            return target.delete(found)",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/a-late-tail-begins-again",
        _TAILING,
        "                tail.progress.require()\n",
        "                pass\n",
        _TAIL,
        survives="the copy looks at the claim before its first act too",
    ),
    Mutant(
        "bookie-cluster/copies-that-are-referred-to-go",
        _LEDGERS,
        "        and number not in named\n",
        "",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/ledgers-of-others-go",
        _LEDGERS,
        "        and standing.mzxid == mzxid\n",
        "",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/copies-of-living-ledgers-go",
        _LEDGERS,
        "        if number not in source\n        and number not in named",
        "        if number not in named",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/the-tail-does-not-wait-for-brokers",
        _TAILING,
        "        while not none_since(store, self.mark):",
        "        while False:",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/the-mark-of-before-the-last-broker-went-is-kept",
        _TAILING,
        "        while not none_since(store, self.mark):",
        "        while brokers(store):",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/a-broker-that-came-and-went-is-overlooked",
        _TAILING,
        "        if not none_since(self._store, self.mark):",
        "        if brokers(self._store):",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/nothing-but-ids-is-compared",
        _TAILING,
        "not verified.holds(one, sides.target.get(one.ledger_id))",
        "one.ledger_id not in sides.target",
        _TAIL,
    ),
    Mutant(
        "bookie-cluster/recovery-without-a-look-at-the-claim",
        "spark/bookie_cluster/tasks.py",
        "            fence.check(0)\n            outcomes += recover_batch",
        "            outcomes += recover_batch",
        _TASKS,
    ),
    Mutant(
        "bookie-cluster/a-copy-without-a-look-at-the-claim",
        "spark/bookie_cluster/tasks.py",
        "            fence.check(0)\n            left",
        "            left",
        _TASKS,
    ),
    Mutant(
        "bookie-cluster/what-could-not-be-recovered-is-copied",
        "spark/bookie_cluster/tasks.py",
        "            left = set(batch.ledger_ids) - lost",
        "            left = set(batch.ledger_ids)",
        _TASKS,
    ),
    Mutant(
        "bookie-cluster/a-writer-that-goes-on-is-closed",
        _RECOVERING,
        "            if len(write_set & unfenced) >= self._metadata.ack_quorum:",
        "            if False:",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/who-is-silent-is-fenced",
        _RECOVERING,
        "            if isinstance(answer, Refused) and answer.code not in _ABSENT\n",
        "            if isinstance(answer, Refused) and answer.code is None\n",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/who-is-silent-has-no-entry",
        _RECOVERING,
        "        absent = sum(flaw.code in _ABSENT for flaw in flaws.values())",
        "        absent = len(flaws)",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/one-that-lacks-an-entry-is-enough",
        _RECOVERING,
        "        if absent >= self._metadata.write_quorum - self._metadata.ack_quorum + 1:",
        "        if absent >= 1:",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/damaged-entries-are-taken",
        _RECOVERING,
        "            elif flaw := self._flaw(answer[0], entry):",
        "            elif flaw := None:",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/the-end-is-what-was-confirmed",
        _RECOVERING,
        "            yield from self._write_again(last + 1, bodies)\n",
        "            break\n",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/the-end-is-not-written-again",
        _RECOVERING,
        "            yield from self._write_again(last + 1, bodies)\n",
        "            pass\n",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/fewer-than-the-ack-quorum-are-enough",
        _RECOVERING,
        "                if len(set(target.replicas(entry)) - self._silent) < self._metadata.ack_quorum:",
        "                if False:",
        _RECOVERY,
    ),
    Mutant(
        "bookie-cluster/progress-of-a-late-attempt",
        "activities/bookie_cluster/progress.py",
        "            self._registry.put(_node(top, number), chunk)",
        "            self._store.set(_node(top, number), chunk, -1) if standing else "
        "self._store.create(_node(top, number), chunk)",
        _PROGRESS,
    ),
    Mutant(
        "bookie-cluster/a-late-attempt-forgets-failures",
        "activities/bookie_cluster/progress.py",
        "        self.require()\n        self._failures = 0",
        "        self._failures = 0",
        _PROGRESS,
    ),
    Mutant(
        "bookie-cluster/another-scope-keeps-what-was-compared",
        "activities/bookie_cluster/progress.py",
        "            self._clear(VERIFIED)\n",
        "            pass\n",
        _PROGRESS,
    ),
    Mutant(
        "bookie-cluster/deletions-are-counted-anew",
        "activities/bookie_cluster/progress.py",
        'return int(found["ledgers"]) if found["step"] == self._step else 0',
        "return 0",
        _PROGRESS,
    ),
)
