"""Rights of roles on segments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.segments import copy_grants
from clients.pulsar.names import TopicName
from models.topic_controller.record import Change, ControlledLayout, Mutation

NAME = TopicName.parse("persistent://acme/shop/orders")
OLD = [f"{NAME}.scalable.{descriptor}" for descriptor in ("0000-7fff-0", "8000-ffff-1")]
MERGED = f"{NAME}.scalable.0000-ffff-2"


def test_rights_on_segments_follow_a_change() -> None:
    """A role that may use an old segment may use the new one in the same way; existing grants are not written again."""
    before = {OLD[0]: {"shop": ["produce", "consume"], "audit": ["consume"]}, OLD[1]: {"audit": ["produce"]}}
    assert _copied(before) == {(MERGED, "shop"): ["consume", "produce"], (MERGED, "audit"): ["consume", "produce"]}
    there = {MERGED: {"shop": ["produce", "consume"], "audit": ["consume"]}}
    assert _copied({**before, **there}) == {(MERGED, "audit"): ["consume", "produce"]}
    assert _copied({str(NAME): {"shop": ["produce"]}}) == {}


def _copied(grants: dict[str, dict[str, list[str]]]) -> dict[tuple[str, str], list[str]]:
    record = ControlledLayout.created(2, {}, 0)
    merge = Mutation(change=Change.MERGE, segments=(0, 1), epoch=0)
    written: dict[tuple[str, str], list[str]] = {}

    def set_policy(namespace: str, path: tuple[str, ...], value: Any) -> None:
        assert (namespace, path[:2]) == ("acme/shop", ("auth_policies", "destination_auth"))
        written[path[2], path[3]] = value

    policies = SimpleNamespace(raw={"auth_policies": {"destination_auth": grants}})

    def read(namespace: str) -> SimpleNamespace:
        assert namespace == "acme/shop"
        return policies

    namespaces = SimpleNamespace(policies=read, set_policy=set_policy)
    task = cast("ControllerTask", SimpleNamespace(name=NAME, admin=SimpleNamespace(namespaces=namespaces)))
    copy_grants(task, merge.old_segments(record), merge.new_segments(record))
    return written
