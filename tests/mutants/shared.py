"""Mutants of what both migrations use: claims, the fence, compare-and-set, commands, versions, failures."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CAS = ("tests/unit/clients/test_cas.py",)
_LEASH = "tests/unit/lifecycle/test_leashed_command.py"
_BACKGROUND = ("tests/unit/metadata_store/test_background_tasks.py",)
_CLAIMS, _FENCE = "clients/cas/claims.py", "spark/fence.py"
_SPARK = "tests/integration/lifecycle/test_spark_engine.py"
_COMMAND, _LEASHING = "activities/bookie_cluster/broker_control.py", "activities/bookie_cluster/command_leash.py"

MUTANTS = (
    Mutant(
        "shared/fence-without-claim",
        _CLAIMS,
        "    if claim is None:\n        # No claim is no permission",
        "    if claim is None:\n        return\n        # No claim is no permission",
        _CAS,
    ),
    Mutant(
        "shared/fence-lets-other-migrations-pass",
        _CLAIMS,
        '    if claim.workflow_id != me.workflow_id:\n        message = f"{what} is held',
        '    if False:\n        message = f"{what} is held',
        _CAS,
    ),
    Mutant(
        "shared/fence-lets-other-runs-pass",
        _CLAIMS,
        "if not claim.is_of(me) or claim.is_newer_than(me):",
        "if claim.is_newer_than(me):",
        _CAS,
    ),
    Mutant(
        "shared/fence-lets-late-attempts-pass",
        _CLAIMS,
        "if not claim.is_of(me) or claim.is_newer_than(me):",
        "if not claim.is_of(me):",
        _CAS,
    ),
    Mutant(
        "shared/fence-is-fresh-from-its-answer-on",
        _FENCE,
        "self._due = asked + _CLAIM_EVERY",
        "self._due = time.monotonic() + _CLAIM_EVERY",
        _CAS,
    ),
    Mutant(
        "shared/guard-of-oxia-is-fresh-from-its-answer-on",
        "clients/oxia/writer.py",
        "self._guarded_until = asked + _GUARD_SECONDS",
        "self._guarded_until = time.monotonic() + _GUARD_SECONDS",
        ("tests/integration/clients/test_oxia_client.py::test_an_answer_of_the_guard_counts_from_the_question_on",),
    ),
    Mutant(
        "shared/guard-of-any-version",
        _CLAIMS,
        "return Check(self._path, self._required().version)",
        "return Check(self._path, self._required() and -1)",
        _CAS,
    ),
    Mutant(
        "shared/take-sets-any-version",
        _CLAIMS,
        "        elif new != old:\n            self._store.set(self._path, new.encode(), found.version)",
        "        elif new != old:\n            self._store.set(self._path, new.encode(), -1)",
        _CAS,
    ),
    Mutant(
        "shared/renew-sets-any-version",
        _CLAIMS,
        "        new = self.successor(old).model_copy(update=fields)\n        if new != old:\n"
        "            self._store.set(self._path, new.encode(), version)",
        "        new = self.successor(old).model_copy(update=fields)\n        if new != old:\n"
        "            self._store.set(self._path, new.encode(), -1)",
        _CAS,
    ),
    Mutant(
        "shared/change-sets-any-version",
        _CLAIMS,
        "        if new != found.claim:\n            self._store.set(self._path, new.encode(), found.version)",
        "        if new != found.claim:\n            self._store.set(self._path, new.encode(), -1)",
        _CAS,
    ),
    Mutant(
        "shared/release-of-any-version",
        _CLAIMS,
        "            self._store.delete(self._path, found.version)",
        "            self._store.delete(self._path, -1)",
        _CAS,
    ),
    Mutant(
        "shared/take-from-another-migration",
        _CLAIMS,
        "        if claim.workflow_id != self.me.workflow_id:\n            message = held_by",
        "        if False:\n            message = held_by",
        _CAS,
    ),
    Mutant(
        "shared/take-by-a-late-attempt",
        _CLAIMS,
        '        if claim.is_newer_than(self.me):\n            raise Superseded(f"{self.me} was',
        '        if False:\n            raise Superseded(f"{self.me} was',
        _CAS,
    ),
    Mutant(
        "shared/a-new-run-keeps-what-the-old-one-knew",
        _CLAIMS,
        "kept = {} if claim.run_id == me.run_id else fields",
        "kept = {}",
        _CAS,
    ),
    Mutant(
        "shared/renew-without-a-claim",
        _CLAIMS,
        "        old, version = self._required()\n        new =",
        "        old, version = self.read()\n        new =",
        _CAS,
    ),
    Mutant(
        "shared/pace-of-another-run",
        _CLAIMS,
        "        if not found.claim.is_of(self.me):\n            return None\n",
        "",
        _CAS,
    ),
    Mutant(
        "shared/release-by-a-late-attempt",
        _CLAIMS,
        "            self.admit(found.claim)\n            self._store.delete",
        "            self._store.delete",
        _CAS,
    ),
    Mutant(
        "shared/newer-run-is-not-newer",
        "models/lifecycle/claim.py",
        "return self.started_ms >= other.started_ms",
        "return self.epoch >= other.epoch",
        _CAS,
    ),
    Mutant(
        "shared/newer-epoch-is-not-newer",
        "models/lifecycle/claim.py",
        "return (self.epoch, self.attempt) > (other.epoch, other.attempt)",
        "return self.attempt > other.attempt",
        _CAS,
    ),
    Mutant(
        "shared/final-conflicts-are-tried-again",
        "clients/cas/store.py",
        "        except VersionConflict as error:\n            tries",
        "        except StoreConflict as error:\n            tries",
        _CAS,
    ),
    Mutant(
        "shared/executor-does-not-look",
        _FENCE,
        "        if now >= self._due:\n            self.look()",
        "        if now >= self._due and size < 0:\n            self.look()",
        _CAS,
    ),
    Mutant(
        "shared/executor-reads-and-goes-on",
        _FENCE,
        "        require_newest(claim, self._attempt, self._what)\n",
        "",
        _CAS,
    ),
    Mutant(
        "shared/throttle-while-somebody-is-blocked",
        _FENCE,
        "if claim and self._paced else None",
        "if claim else None",
        _CAS,
    ),
    Mutant(
        "shared/command-without-a-look-at-the-claim",
        _COMMAND,
        "    require()\n    context.check()",
        "    context.check()",
        (f"{_LEASH}::test_a_lost_claim_ends_it",),
    ),
    Mutant(
        "shared/command-goes-on-without-the-claim",
        _COMMAND,
        "            with suppress(RetryableError):\n                require()",
        "            with suppress(RetryableError):\n                pass",
        (f"{_LEASH}::test_a_lost_claim_ends_it",),
    ),
    Mutant(
        "shared/command-is-not-cancelled",
        _COMMAND,
        "        context.pause(_POLL)",
        "        time.sleep(_POLL)",
        (f"{_LEASH}::test_cancellation_ends_the_whole_group",),
    ),
    Mutant(
        "shared/command-is-not-waited-for",
        _COMMAND,
        "            holder.join()\n            process.wait()\n",
        "            holder.join()\n",
        (f"{_LEASH}::test_cancellation_ends_the_whole_group",),
    ),
    Mutant(
        "shared/command-without-a-limit",
        _COMMAND,
        "        if now - begun > limit:",
        "        if now < begun:",
        (f"{_LEASH}::test_a_limit_ends_it",),
    ),
    Mutant(
        "shared/old-order-is-begun",
        _LEASHING,
        "    if not 0 <= time.time() - issued < LEASH:",
        "    if not 0 <= time.time() - issued:",
        (f"{_LEASH}::test_an_old_order_is_not_begun",),
    ),
    Mutant(
        "shared/command-outlives-a-frozen-worker",
        _LEASHING,
        "        elif time.time() - heard > LEASH:",
        "        elif time.time() < heard:",
        (f"{_LEASH}::test_a_worker_that_freezes_or_dies_takes_it_along",),
    ),
    Mutant(
        "shared/command-outlives-a-dead-worker",
        _LEASHING,
        "            if not os.read(0, 4096):\n                return _end(child)",
        "            if not os.read(0, 4096):\n                continue",
        (f"{_LEASH}::test_a_worker_that_freezes_or_dies_takes_it_along",),
    ),
    Mutant(
        "shared/children-of-a-command-live-on",
        _LEASHING,
        "            os.killpg(child.pid, number)",
        "            os.kill(child.pid, number)",
        (f"{_LEASH}::test_cancellation_ends_the_whole_group",),
    ),
    Mutant(
        "shared/command-is-never-killed",
        _LEASHING,
        "    for number in (signal.SIGTERM, signal.SIGKILL):",
        "    for number in (signal.SIGTERM,):",
        (f"{_LEASH}::test_cancellation_ends_the_whole_group",),
    ),
    Mutant(
        "shared/deadline-is-given-up-when-the-store-is-away",
        "activities/metadata_store/background_tasks.py",
        '            _log.warning("%s: %s", name, error)\n            return False',
        '            _log.warning("%s: %s", name, error)\n            return True',
        _BACKGROUND,
    ),
    Mutant(
        "shared/common-credentials-stand-in",
        "models/settings.py",
        "if (found := self.credentials.get(name)) is None:",
        "if (found := self.credentials.get(name) or self) is None:",
        ("tests/unit/lifecycle/test_settings.py",),
    ),
    Mutant(
        "shared/environment-moves-while-others-read-it",
        "spark/environment.py",
        "        os.environ.setdefault(name, value)\n",
        "        pass\n",
        (f"{_SPARK}::test_a_session_starts_without_a_fork_and_moves_no_environment",),
    ),
)
