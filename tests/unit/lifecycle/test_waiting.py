"""Messages of tests whose wait times out."""

from __future__ import annotations

import pytest

from tests.support.waiting import wait_until_equal


def test_a_value_that_stays_another_is_shown_with_the_expected_one() -> None:
    """A wait for a value fails with the expected value and the last actual one."""
    with pytest.raises(AssertionError, match=r"within 0 s: the count\nexpected: 3\nactual:   2"):
        wait_until_equal("the count", lambda: 2, 3, 0)


def test_a_wait_for_a_value_ends_when_the_value_is_equal() -> None:
    """A wait for a value asks again until the answer equals the expected one."""
    answers = iter([1, 2, 3])
    wait_until_equal("the count", lambda: next(answers), 3, 60)
    assert list(answers) == []
