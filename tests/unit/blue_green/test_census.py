"""The census of the grace window; both clusters are doubles here."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green import grace
from activities.blue_green.context import BlueGreenTask
from activities.blue_green.namespace_redirect import urls_of
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.admin.errors import AdminUnreachable
from clients.pulsar.names import TopicName
from models.blue_green.claims import NamespaceClaim, Stage
from models.blue_green.input import BlueGreenInput
from models.blue_green.results import Census
from tests.support.blue_green.sides import side


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


def census(
    monkeypatch: pytest.MonkeyPatch, blue: list[str], green: list[str] | None, partitions: int, on_green: int = 0
) -> Census:
    """Return the census of one namespace that has moved.

    Args:
        monkeypatch: replaces the records and flags in blue's store.
        blue: names of blue's topics.
        green: names of green's topics; None if green does not answer.
        partitions: how many partitions the metadata of blue's topics say.
        on_green: how many those of green's topics say.
    """

    def names(_: str) -> list[str]:
        return [f"persistent://acme/ord/{name}" for name in blue]

    def green_names(namespace: str) -> list[str]:
        if green is None:
            raise AdminUnreachable("refused", method="GET", url=namespace)
        return [f"persistent://acme/ord/{name}" for name in green]

    def count(_: TopicName) -> int:
        return partitions

    def green_count(_: TopicName) -> int:
        return on_green

    def moved(_: object) -> dict[str, NamespaceClaim]:
        return {"acme/ord": NamespaceClaim.model_construct(stage=Stage.MOVED)}

    def flagged(*_: object) -> bool:
        return True

    def flag(_: str) -> ClusterMigration:
        return ClusterMigration(migrated=True, migrated_cluster_url=urls_of(input.green))

    input = BlueGreenInput.model_validate(
        {"cluster": "b", "blue": side("blue"), "green_cluster": "g", "green": side("green")}
    )
    monkeypatch.setattr(grace, "records", moved)
    monkeypatch.setattr(grace, "read_flag", flagged)
    blue_admin = SimpleNamespace(
        topics=SimpleNamespace(names=names, partitions=count), clusters=SimpleNamespace(migration=flag)
    )
    task = SimpleNamespace(
        input=input,
        blue=SimpleNamespace(store=lambda: nullcontext(None), admin=blue_admin, brokers=lambda: ()),
        green=SimpleNamespace(admin=SimpleNamespace(topics=SimpleNamespace(names=green_names, partitions=green_count))),
    )
    return grace.census(cast("BlueGreenTask", task))


_TWO = ["t-partition-0", "t-partition-1"]
_THREE = [*_TWO, "t-partition-2"]


@pytest.mark.parametrize(
    ("blue", "green", "partitions", "named"),
    [
        (_TWO, _THREE, 2, True),
        (_THREE, _THREE, 3, False),
        # A partition that is not listed, and that clients still find.
        (_TWO, _THREE, 3, False),
        (_TWO, ["t-partition-0"], 2, False),
        # A new topic of green, which no client knows from blue.
        (["u"], _THREE, 0, False),
        # Topics with such names, and without a partitioned topic.
        (_TWO, _THREE, 0, False),
        (_TWO, None, 2, False),
    ],
)
def test_partitions_that_clients_of_blue_do_not_find(
    monkeypatch: pytest.MonkeyPatch, blue: list[str], green: list[str] | None, partitions: int, *, named: bool
) -> None:
    """A topic with more partitions on green than blue's metadata say is named; the rest needs no green."""
    result = census(monkeypatch, blue, green, partitions)
    assert result.more_partitions == ("persistent://acme/ord/t has 3 partitions on g, and 2 on b",) * named
    assert (result.topics, result.drift) == (len(blue), ())


@pytest.mark.parametrize(
    ("green", "partitions", "named"),
    [
        (_TWO, 2, True),
        # A partition that is not listed, and that clients still find.
        (_TWO, 3, False),
        # A topic that clients have deleted on green.
        ([], 0, False),
        (None, 2, False),
    ],
)
def test_partitions_that_green_lacks(
    monkeypatch: pytest.MonkeyPatch, green: list[str] | None, partitions: int, *, named: bool
) -> None:
    """A topic with fewer partitions on green is named: clients that start with blue's address do not find the rest."""
    result = census(monkeypatch, _THREE, green, 3, partitions)
    assert result.fewer_partitions == ("persistent://acme/ord/t has 2 partitions on g, and 3 on b",) * named
    assert (result.more_partitions, result.drift) == ((), ())
