"""Connections that were opened between two looks at blue."""

from __future__ import annotations

from models.blue_green.results import Census


def test_each_broker_counts_by_itself() -> None:
    """A broker that was restarted hides nothing that was opened to it, or to another one."""
    before = Census(opened={"a": 900, "b": 40})
    assert before.opened_since(before) == 0
    assert Census(opened={"a": 3, "b": 45}).opened_since(before) == 3 + 5


def test_a_broker_that_came_or_went() -> None:
    """A new broker counts from 0, and one that is gone does not count."""
    before = Census(opened={"a": 900})
    assert Census(opened={"b": 2}).opened_since(before) == 2
    assert Census().opened_since(before) == 0
