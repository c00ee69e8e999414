"""Names of topics and cursors, as people write them, in paths of the admin interface and in nodes' paths."""

from __future__ import annotations

from urllib.parse import quote_plus, unquote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.pulsar.names import (
    CursorName,
    SegmentName,
    TopicName,
    cursor_name,
    encoded,
    encoded_twice,
    recordable,
    stored_topic,
)

ANY = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("acme/eu/orders", "persistent://acme/eu/orders"),
        ("persistent://acme/eu/orders", "persistent://acme/eu/orders"),
        ("non-persistent://acme/eu/orders", "non-persistent://acme/eu/orders"),
    ],
)
def test_topics_are_named_as_by_clients(text: str, full: str) -> None:
    """Short names are of the namespace `public/default`, and a full name is read as it is written."""
    assert str(TopicName.parse(text)) == full


@pytest.mark.parametrize("text", ["", "acme/orders", "persistent://orders", "acme//orders", "topic://a/b/c", "/a/b"])
def test_a_name_without_a_topic_is_refused(text: str) -> None:
    """The error names the form of a topic name."""
    with pytest.raises(ValueError, match="expected persistent://tenant/namespace/topic"):
        TopicName.parse(text)


def test_partitions_have_names_of_their_own() -> None:
    """A partition knows its number, and a whole topic none."""
    whole = TopicName("acme", "eu", "orders")
    assert whole.partition is None
    assert str(whole.of_partition(12)) == "persistent://acme/eu/orders-partition-12"
    assert whole.of_partition(12).partition == 12


@pytest.mark.parametrize(
    "topic",
    [
        "events-partition-20230101120000",
        "x-partition-2147483648",
        "x-partition-00",
        "x-partition-01",
        "x-partition--1",
        "x-partition-+1",
        "x-partition-1\n",
        "x-partition-",
        "x-partition-²",
        "x-partition-1-DLQ",
    ],
)
def test_names_that_brokers_do_not_take_for_partitions(topic: str) -> None:
    """A number that `Integer.parseInt` does not read, or that brokers write otherwise, is part of a whole name."""
    name = TopicName("acme", "eu", topic)
    assert (name.partition, name.whole) == (None, name)


@pytest.mark.parametrize(
    ("topic", "number", "whole"),
    [
        ("x-partition-0", 0, "x"),
        ("x-partition-2147483647", 2**31 - 1, "x"),
        ("x-partition-1-partition-2", 2, "x-partition-1"),
        ("x\n-partition-3", 3, "x\n"),
        # `Integer.parseInt` reads the digits of every script.
        ("x-partition-1٢", 12, "x"),
        ("-partition-1", 1, "-partition-1"),
    ],
)
def test_names_that_brokers_take_for_partitions(topic: str, number: int, whole: str) -> None:
    """The last number counts, up to the largest of Java's int."""
    name = TopicName("acme", "eu", topic)
    assert (name.partition, name.whole.topic) == (number, whole)
    assert TopicName.parse(str(name.whole)) == name.whole


@given(topic=st.text(st.characters(codec="utf-8"), min_size=1))
def test_segments_are_named_by_their_topic(topic: str) -> None:
    """Names of segments are read as they are written, whatever the topic is called, and have nodes of their own."""
    name = SegmentName(TopicName("acme", "eu", topic), "0000-7fff-12")
    assert stored_topic(str(name)) == name
    *_, encoded_topic, descriptor = name.managed_ledger_path.split("/")
    assert (unquote_plus(encoded_topic), descriptor) == (topic, "0000-7fff-12")
    assert stored_topic("persistent://acme/eu/orders-partition-1") == TopicName("acme", "eu", "orders-partition-1")
    with pytest.raises(ValueError, match="names no segment"):
        stored_topic("segment://0000-7fff-12")


@given(topic=ANY)
def test_paths_keep_every_name(topic: str) -> None:
    """Nothing in a name ends a part of a path; what brokers decode once or twice is the name again."""
    name = TopicName("acme", "eu", topic)
    assert name.rest_path.split("/")[:3] == ["persistent", "acme", "eu"]
    assert unquote(name.rest_path.split("/")[3]) == topic
    assert unquote(unquote(encoded_twice(topic))) == topic
    assert name.schema_path == f"acme/eu/{encoded(encoded(topic))}"


@given(topic=ANY, cursor=st.text(st.characters(codec="utf-8"), min_size=1))
def test_nodes_of_cursors_name_them(topic: str, cursor: str) -> None:
    """The path of a cursor's node yields topic and cursor, whatever their names."""
    path = f"/managed-ledgers/acme/eu/persistent/{quote_plus(topic)}/{quote_plus(cursor)}"
    assert cursor_name(path) == CursorName(TopicName("acme", "eu", topic), cursor)


def test_other_nodes_name_no_cursor() -> None:
    """Nodes of topics, and of anything that is not persistent, are none of a cursor."""
    for path in ("acme/eu/persistent/topic", "acme/eu/segment/topic/cursor", "acme/eu/persistent/topic/cursor/more"):
        assert cursor_name(f"/managed-ledgers/{path}") is None


@pytest.mark.parametrize(
    "name", ["a/b", "a;b", "a{b", "}", "${app}", "a\tb", "\x7f", "a%20b", "per%cent", "50%25", ".", ".."]
)
def test_subscriptions_that_brokers_cannot_record(name: str) -> None:
    """Their names are cut, decoded again, or failed over on their way to new segments."""
    assert not recordable(name)


@pytest.mark.parametrize("name", ["\N{GRINNING FACE}", "a\x85", "\ue000", "\uffff"])
def test_subscriptions_that_the_metadata_store_refuses(name: str) -> None:
    """Brokers answer 500 for their records, indefinitely."""
    assert not recordable(name)


@pytest.mark.parametrize(("name", "number"), [("x-partition-0", 0), ("x-partition-12", 12), ("x-partition-00", None)])
def test_a_partition_has_no_zero_before_its_number(name: str, number: int | None) -> None:
    """As brokers read it: what has one is an ordinary topic."""
    topic = TopicName.parse(f"acme/eu/{name}")
    assert topic.partition == number
    assert topic.whole.topic == ("x" if number is not None else name)


@pytest.mark.parametrize(
    "name", ["a", "a b", "a+b", "a%b", "100%", "%", "app:eu", "a..b", "a\\b", "日", "a~b*[c]|d^e`"]
)
def test_subscriptions_that_brokers_record(name: str) -> None:
    """Most odd names are taken as they are."""
    assert recordable(name)
