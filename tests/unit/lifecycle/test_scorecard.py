"""The scorecard's sums are those of its rows, and each row names a test that exists."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.support.wheel import ROOT

_MARKS = {"1": 1.0, "½": 0.5, "0": 0.0}
_TABLES = (ROOT / "docs" / "scorecard.md").read_text().split("\n## ")[1:]
_COLUMNS = 5


def _rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]


def _sums(rows: Sequence[Sequence[str]]) -> list[tuple[float, int]]:
    columns = zip(*(row[2 : 2 + _COLUMNS] for row in rows), strict=True)
    marks = [[_MARKS[mark] for mark in column if mark != "–"] for column in columns]
    return [(sum(column), len(column)) for column in marks]


def _number(text: str) -> float:
    whole = text.removesuffix("½")
    return float(whole or 0) + 0.5 * (whole != text)


@pytest.mark.parametrize(("table", "count"), zip(_TABLES, (30, 12), strict=True), ids=["features", "beyond"])
def test_sums(table: str, count: int) -> None:
    """Both sums of each column fit its marks."""
    _, _, *features, total, possible = _rows(table)
    assert [row[0] for row in features] == [str(number) for number in range(1, count + 1)]
    sums = zip(map(_number, total[2 : 2 + _COLUMNS]), map(int, possible[2 : 2 + _COLUMNS]), strict=True)
    assert list(sums) == _sums(features)


@pytest.mark.parametrize("table", _TABLES, ids=["features", "beyond"])
def test_proofs(table: str) -> None:
    """Each feature names a file of tests."""
    proofs = [row[-1] for row in _rows(table)[2:-2]]
    assert [proof for proof in proofs if not re.fullmatch(r"`tests/[\w/]+\.py`", proof)] == []
    assert [proof for proof in proofs if not (ROOT / proof.strip("`")).is_file()] == []
