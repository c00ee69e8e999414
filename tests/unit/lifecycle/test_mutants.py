"""The list of mutants fits the marks in the source, and the script that tries them reports what came of each."""

from __future__ import annotations

import pytest

from tests.mutants.marks import ROOT, Change, Stale, any_version, becomes, drop, marks, swap, unfiltered, without
from tests.mutants.mutant import Mutant
from tests.mutants.table import MUTANTS, chosen
from tests.mutants.working_copy import Run

FEWEST = 40
SOURCE = """
if quiet and alone:
    flip(state.version)
names = [name for name in found if name]
return (
    closed
    and equal
)
"""


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_list_fits_the_source(mutant: Mutant) -> None:
    """The marked line of each mutant can be changed, and its tests are there."""
    assert mutant.applied()
    assert mutant.selection
    for test in mutant.selection:
        file, *names = test.split("::")
        text = (ROOT / file).read_text()
        assert all(f"{name.partition('[')[0]}(" in text or f"class {name}" in text for name in names)


def test_each_mark_is_in_the_list() -> None:
    """Names are unique, each mark has its mutant in the list, and each mutant its mark."""
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(marks()) == sorted(names)


def test_every_migration_has_its_share() -> None:
    """Each migration has at least 40 mutants, those of what both share included."""
    for migration in ("metadata-store", "bookie-cluster"):
        assert len(chosen(f"{migration}/*")) + len(chosen("shared/*")) >= FEWEST


@pytest.mark.parametrize(
    ("change", "line", "old", "new"),
    [
        (drop, 2, "if quiet and alone:", "if False:"),
        (drop, 3, "flip(state.version)", "pass"),
        (drop, 7, "closed and equal", "closed"),
        (without(0), 2, "quiet and alone", "alone"),
        (any_version, 3, "state.version", "-1"),
        (unfiltered, 4, " if name]", "]"),
        (becomes("True"), 2, "quiet and alone", "True"),
        (becomes("return"), 3, "flip(state.version)", "return"),
        (swap("found", "()"), 4, "found", "()"),
    ],
)
def test_kinds_of_changes(change: Change, line: int, old: str, new: str) -> None:
    """Each kind of change changes the marked line and nothing else."""
    usual = swap("found", "found")(SOURCE, 4)
    assert usual.count(old) == 1
    assert change(SOURCE, line) == usual.replace(old, new)


def test_a_list_that_is_stale_is_an_error() -> None:
    """A mutant that is not marked, a line without what changes, and a name that is not in the list are named."""
    with pytest.raises(Stale, match="some/mutant: no line has the comment"):
        Mutant("some/mutant", (), drop).applied()
    marked = MUTANTS[0]
    for change in (swap("no such text", ""), without(9), becomes("no Python at all"), swap("", "")):
        with pytest.raises(Stale, match=marked.name):
            marked._replace(change=change).applied()
    with pytest.raises(Stale, match="no mutant is called 'some/\\*'"):
        chosen("some/*")


def test_only_failed_tests_notice() -> None:
    """A mutant is noticed where a test fails or does not end, and not where pytest could not run any."""
    failed = Run(1, "=== short ===\nFAILED tests/a.py::test_b - assert 1", 1.0)
    assert failed.noticed
    assert failed.by == "tests/a.py::test_b"
    assert Run(-1, "", 60.0).noticed
    assert not any(Run(code, "", 1.0).noticed for code in (0, 2, 3, 4, 5))
