"""The order in which topics become scalable, and the pages that waves request."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from activities.scalable_topic.topic_list import in_order, page_of
from models.lifecycle.waves import Page
from models.scalable_topic.namespace_input import ScalableNamespaceInput

_ACCESS: dict[str, Any] = {"cluster": "c", "metadata_url": "zk:zk-1:2181", "admin_urls": ["http://broker-1:8080"]}

PLAN = ScalableNamespaceInput.model_validate(
    {**_ACCESS, "topics": ["t/b/*", "t/*/a*", "t/a/*"], "exclude": ["t/*/*-old"]}
)

letters = st.text("abz-é/", min_size=1, max_size=4)
topics = st.sets(st.tuples(st.sampled_from("tu"), st.sampled_from("abc"), letters).map("/".join), max_size=40)


def _names(page: Page) -> list[str]:
    return [item.name for item in page.items]


def test_order() -> None:
    """Topics are ordered by the first matching pattern, then by name; others stay regular."""
    topics = ["t/a/z", "t/a/abc", "t/b/z", "t/c/a", "t/c/z", "t/b/a", "t/b/a-old", "u/b/a"]
    assert in_order(PLAN, topics) == ["t/b/a", "t/b/z", "t/a/abc", "t/c/a", "t/a/z"]


def test_first_page_counts_all() -> None:
    """Only the first page has the total: later listings lack topics that are scalable by then."""
    names = in_order(PLAN, ["t/b/a", "t/b/b", "t/a/z"])
    first = page_of(PLAN, names, "", 2)
    assert (_names(first), first.total) == (["t/b/a", "t/b/b"], 3)
    second = page_of(PLAN, names, "t/b/b", 2)
    assert (_names(second), second.total) == (["t/a/z"], None)
    assert _names(page_of(PLAN, names, "t/a/z", 2)) == []


def test_what_stays_is_not_looked_at_beyond_a_page() -> None:
    """Scalable topics are left out, and no record beyond the page is read."""
    names = [f"t/a/{number}" for number in range(9)]
    asked: list[str] = []

    def stays(name: str) -> bool:
        asked.append(name)
        return name in ("t/a/1", "t/a/2")

    assert _names(page_of(PLAN, names, "t/a/0", 2, stays=stays)) == ["t/a/3", "t/a/4"]
    assert asked == names[1:5]


@given(topics, st.integers(1, 7))
def test_pages_name_each_topic_once(listed: set[str], limit: int) -> None:
    """The pages contain all topics once, in order, although scalable ones disappear from the list."""
    names = in_order(PLAN, listed)
    seen: list[str] = []
    while page := _names(page_of(PLAN, [name for name in names if name not in seen], seen[-1] if seen else "", limit)):
        assert len(page) <= limit
        seen += page
    assert seen == names


@given(topics, topics, st.data())
def test_topics_that_come_and_go(before: set[str], came: set[str], data: st.DataObject) -> None:
    """New topics after the cursor are included, earlier ones stay regular, and deleted ones are skipped."""
    names = in_order(PLAN, before)
    cursor = data.draw(st.sampled_from(["", *names]))
    after = in_order(PLAN, came)
    following = _names(page_of(PLAN, after, cursor, len(after) + 1))
    assert following == after[len(after) - len(following) :]
    previous = after[: len(after) - len(following)]
    assert in_order(PLAN, {*previous, cursor} - {""}) == [
        *previous,
        *([cursor] if cursor and cursor not in previous else []),
    ]
