"""Lists that are too long for a result: what is named, and what is counted."""

from __future__ import annotations

from models.lifecycle.failures import NAMED, Blocker, FailedItem, FailedItems, count_blockers, first_blockers
from models.lifecycle.report import PrecheckResult

_WHAT = "record(s)"


def _blockers(code: str, count: int) -> list[Blocker]:
    return [Blocker(code=code, cause=f"{number} differs", cure="align it") for number in range(count)]


def test_a_result_names_the_first_blockers_and_counts_the_others() -> None:
    """The result of a precheck stays small enough for Temporal, however many namespaces differ."""
    blockers = _blockers("DIFFERS", 20_000) + _blockers("UNFIT", 3)
    result = PrecheckResult(blockers=tuple(blockers), warnings=tuple(map(str, range(20_000))))
    sent = result.model_dump_json()
    assert len(sent) < 50_000
    read = PrecheckResult.model_validate_json(sent)
    assert (len(read.blockers), count_blockers(read.blockers)) == (NAMED, 20_003)
    assert str(read.blockers[-1]).startswith("[MORE] 19,904 more: DIFFERS 19,901, UNFIT 3. Cure: ")
    assert (len(read.warnings), read.warnings[-1]) == (NAMED, "19,901 more warnings")
    # The workflow's state has it as well, in each of its runs.
    assert PrecheckResult.model_validate_json(read.model_dump_json()) == read


def test_few_blockers_are_all_named() -> None:
    """A list that fits into a result is complete."""
    blockers = _blockers("DIFFERS", NAMED)
    assert first_blockers(blockers) == tuple(blockers)


def test_lists_are_joined_with_their_counts() -> None:
    """An item that both lists name counts once, and those that are not named stay counted."""
    first = FailedItems.of(_WHAT, [FailedItem(path=f"/{number:04}") for number in range(3000)])
    second = FailedItems.of(_WHAT, [FailedItem(path="/0000"), FailedItem(path="/new")])
    joined = first.joined(second)
    assert (joined.count, len(joined.items)) == (3001, NAMED)
    assert joined.joined(FailedItems(what=_WHAT)).count == 3001
    assert second.joined(second) == second
