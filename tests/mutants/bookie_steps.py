"""Mutants of the steps of the bookie cluster switch that stop, direct and start brokers, and that end it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STEPS = ("tests/unit/bookie_cluster/test_broker_steps.py",)
_BROKERS, _DIRECTING = "activities/bookie_cluster/brokers.py", "activities/bookie_cluster/registry.py"

MUTANTS = (
    Mutant(
        "bookie-cluster/a-broker-without-a-known-release",
        "activities/bookie_cluster/precheck_brokers.py",
        "    if seen.url is None or broker.settings is None or not broker.version:",
        "    if seen.url is None or broker.settings is None:",
        ("tests/unit/bookie_cluster/test_precheck_brokers.py",),
    ),
    Mutant(
        "bookie-cluster/a-late-attempt-stops-brokers",
        _BROKERS,
        "        # A late attempt stops here, before it orders anything.\n        registry.claim.renew()\n",
        "",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-late-attempt-starts-brokers",
        _BROKERS,
        "        registry.claim.renew()\n        absences",
        "        absences",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-stop-only-where-brokers-are-registered",
        _BROKERS,
        "        if not controller.by_hand:\n            absence.order()",
        "        if not controller.by_hand and brokers(store):\n            absence.order()",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/not-registered-is-stopped",
        _BROKERS,
        "left = [] if asked is Proof.WAIVED else _unproven(store) or absence.lingering(store)",
        "left = list[str]()",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-registration-without-a-session-is-stopped",
        _BROKERS,
        "_unproven(store) or absence.lingering(store)",
        "absence.lingering(store)",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/each-attempt-counts-its-own-pause",
        "activities/bookie_cluster/absence.py",
        '"since": self.seen.since or _now()}',
        '"since": _now()}',
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-stop-behind-the-longest-pause",
        _BROKERS,
        "            _require_time(task, absence.seen.since)\n            controller",
        "            controller",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-directive-to-brokers-with-other-settings",
        _DIRECTING,
        "            able.require()\n        if mark",
        "        if mark",
        (f"{_STEPS[0]}::test_brokers_that_run_are_asked_again_before_the_directive",),
    ),
    Mutant(
        "bookie-cluster/a-stop-without-a-second-census",
        "activities/bookie_cluster/brokers.py",
        "            require_covered(task.input, task.survey)\n",
        "            pass\n",
        (f"{_STEPS[0]}::test_what_the_cluster_uses_is_asked_before_the_order",),
    ),
    Mutant(
        "bookie-cluster/brokers-that-come-with-the-directive-are-not-asked",
        _DIRECTING,
        "        if able:\n            able.require()\n    return",
        "    return",
        (f"{_STEPS[0]}::test_a_broker_that_comes_with_the_directive_is_asked_after_it",),
    ),
    Mutant(
        "bookie-cluster/a-broker-in-a-restart-ends-the-switch",
        "activities/lifecycle/able_brokers.py",
        "if any(blocker.code != BROKERS_UNKNOWN for blocker in blockers) or time.monotonic() > self._until:",
        "if blockers:",
        (f"{_STEPS[0]}::test_a_broker_in_a_restart_is_waited_for",),
    ),
    Mutant(
        "bookie-cluster/a-directive-though-a-broker-came",
        _DIRECTING,
        "        if mark is not None and not none_since(store, mark):",
        "        if False:",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-broker-that-comes-with-the-directive",
        _DIRECTING,
        "        alone = mark is None or none_since(store, mark)",
        "        alone = True",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-directive-forward-behind-the-one-back",
        _DIRECTING,
        "registry.set_target(task.ends.target.name, origin, unless=turned_back)",
        "registry.set_target(task.ends.target.name, origin)",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-directive-of-a-late-attempt",
        _DIRECTING,
        "        directed = registry.claim.renew().directed\n",
        "        directed = registry.claim.require().directed\n",
        _STEPS,
        survives="the directive's own transaction renews the claim too",
    ),
    Mutant(
        "bookie-cluster/strays-are-not-looked-for-before-the-start",
        _BROKERS,
        '        _refuse_strays(task)\n        controller.ask("start"',
        '        controller.ask("start"',
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/strays-are-not-looked-for-behind-the-start",
        _BROKERS,
        "                _refuse_strays(task)\n                context",
        "                context",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/some-brokers-are-enough",
        _BROKERS,
        "                proof.doubts.extend(_missing(running, absences.values()))\n",
        "                pass\n",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-broker-elsewhere-is-enough",
        _BROKERS,
        "        elif not seen.url.overlaps(target.root):",
        "        elif not seen.text:",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/a-brokers-word-is-enough",
        _BROKERS,
        "        elif (ledger := _written_ledger(task, store, broker)) is None:",
        "        elif (ledger := _written_ledger(task, store, broker) or 0) is None:",
        _STEPS,
    ),
    Mutant(
        "bookie-cluster/the-claim-of-a-later-run-is-released",
        _DIRECTING,
        "        if held is None or not held.claim.is_of(task.attempt):\n            return\n",
        "",
        _STEPS,
    ),
)
