"""The table of mutants fits the code, and the script that tries them says what came of each."""

from __future__ import annotations

import pytest

from tests.mutants.lanes import Run
from tests.mutants.mutant import ROOT, Mutant, Stale
from tests.mutants.table import MUTANTS, chosen

FEWEST = 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_tables_fit_the_code(mutant: Mutant) -> None:
    """Each line stands once in its file, the mutant is another program, and its tests are there."""
    assert mutant.applied() != (ROOT / mutant.file).read_text()
    assert mutant.tests
    for test in mutant.tests:
        file, *names = test.split("::")
        text = (ROOT / file).read_text()
        assert all(f"{name.partition('[')[0]}(" in text or f"class {name}" in text for name in names)


def test_every_migration_has_its_share() -> None:
    """Names are unique, and each migration has at least 40 mutants, those of what both share included."""
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    for migration in ("metadata-store", "bookie-cluster"):
        assert len(chosen(f"{migration}/*")) + len(chosen("shared/*")) >= FEWEST


def test_a_table_that_is_stale_is_an_error() -> None:
    """A line that is gone, or stands twice, and a mutant that is no Python, are named with the mutant."""
    stale = Mutant("some/mutant", "tests/mutants/mutant.py", "no such line", "", ())
    with pytest.raises(Stale, match=r"some/mutant: .* has 0 times"):
        stale.applied()
    with pytest.raises(Stale, match="not once"):
        stale._replace(line="import").applied()
    with pytest.raises(Stale, match="no Python"):
        stale._replace(line="class Stale(Exception):", instead="class").applied()
    with pytest.raises(Stale, match="no mutant is called 'some/\\*'"):
        chosen("some/*")


def test_only_failed_tests_notice() -> None:
    """A mutant is noticed where a test fails or does not end, and not where pytest could not run any."""
    failed = Run(1, "=== short ===\nFAILED tests/a.py::test_b - assert 1", 1.0)
    assert failed.noticed
    assert failed.by == "tests/a.py::test_b"
    assert Run(-1, "", 60.0).noticed
    assert not any(Run(code, "", 1.0).noticed for code in (0, 2, 3, 4, 5))
