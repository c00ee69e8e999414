"""Mutants of the coverage table's census: what is unknown, unread or refused must stop a precheck."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = ("tests/unit/lifecycle/test_coverage.py",)
_CENSUS, _CHECKS = "activities/pulsar/feature_census.py", "activities/pulsar/coverage.py"

MUTANTS = (
    Mutant(
        "coverage/unknown-items-pass",
        _CENSUS,
        "            self._unknown.add(item)\n        self._keep(item, where)",
        "            pass\n        self._keep(item, where)",
        _TESTS,
    ),
    Mutant(
        "coverage/settings-that-cannot-be-read-pass",
        _CENSUS,
        '                self._silent.append(f"{broker.name} ({broker.why})")\n',
        "",
        _TESTS,
    ),
    Mutant(
        "coverage/policies-that-cannot-be-read-pass",
        _CENSUS,
        '        item = f"{_UNREAD}:{name}"\n        self._unknown.add(item)',
        '        item = f"{_UNREAD}:{name}"',
        _TESTS,
    ),
    Mutant(
        "coverage/refused-features-can-be-accepted",
        _CENSUS,
        "if cell.outcome is Outcome.REFUSED:",
        "if cell.outcome is Outcome.REFUSED and feature.id not in accepted:",
        _TESTS,
    ),
    Mutant(
        "coverage/questions-are-not-asked",
        _CENSUS,
        "elif feature.id not in accepted:",
        "elif feature.id in accepted:",
        _TESTS,
    ),
    Mutant(
        "coverage/only-one-level-of-paths",
        _CENSUS,
        "paths += [path for parent in _DEEP for path in reader.children(parent)]",
        "paths += []",
        _TESTS,
    ),
    Mutant(
        "coverage/no-second-look",
        _CHECKS,
        "    look(census)\n    # A broker",
        "    # A broker",
        _TESTS,
    ),
    Mutant(
        "coverage/untested-releases-pass",
        "activities/pulsar/releases.py",
        "    if accepted.untested_versions:\n",
        "    if True:\n",
        ("tests/unit/lifecycle/test_defects.py",),
    ),
    Mutant(
        "coverage/operations-are-not-compared-again",
        "activities/scalable_topic/operations/run.py",
        "        require_covered(task.input, lambda census: task.survey(census, namespaces))\n",
        "",
        ("tests/integration/scalable_topic/test_operations_workflow.py::test_what_the_cluster_uses_is_looked_at",),
    ),
    Mutant(
        "coverage/controllers-are-not-compared",
        "activities/topic_controller/topic.py",
        "    _check_cluster(task, findings)\n",
        "",
        ("tests/integration/topic_controller/test_namespaces.py::test_namespaces_that_are_refused",),
    ),
)
