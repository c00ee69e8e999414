"""When a copy takes over versions of the schema."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from activities.scalable_topic.operations.copy_out import copy_out
from activities.scalable_topic.operations.copy_out.proof import Proof
from activities.scalable_topic.operations.copy_out.rounds import Copied
from clients.pulsar.names import TopicName
from models.lifecycle.claim import Attempt
from models.segments.layout import SegmentLayout

SOURCE, TARGET = (TopicName.parse(f"persistent://shop/orders/{name}") for name in ("new", "old"))


def test_a_version_that_comes_during_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on the target when the copy ends: the last messages name it."""
    there, versions = [0], list[int]()

    class Rounds:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self, _tag: str) -> Copied:
            assert versions == [0]
            there.append(1)
            return Copied(6, 0, caught_up=True)

    def copy_schemas(_source: TopicName) -> None:
        versions[:] = there

    target = SimpleNamespace(
        name=TARGET, partitions=0, parts=[TARGET], prepare=_answer(None), copy_schemas=copy_schemas
    )
    for name, double in {
        "ClaimKeeper": _answer(SimpleNamespace(renew=_answer(None))),
        "CopySource": _answer(SimpleNamespace(layout=_answer(SegmentLayout.initial(1, 0)))),
        "CopyRounds": Rounds,
        "prove": _answer(Proof(1, 6, 60, "", ())),
        "_target": _answer(target),
    }.items():
        monkeypatch.setattr(copy_out, name, double)
    engine = SimpleNamespace(width=_answer(1))
    attempt = Attempt("copies", "run", 1, 1, 1)
    task: Any = SimpleNamespace(
        attempt=attempt,
        context=None,
        cluster=SimpleNamespace(store=nullcontext, stores=None),
        input=SimpleNamespace(store=None, admin_urls=(), credentials=""),
        runtime=SimpleNamespace(engine=engine, tag=_answer("tag"), wire_of=_answer(None)),
    )
    copied = copy_out.copy_out(task, SOURCE, TARGET, brokers_url="pulsar://broker:6650")
    assert (copied.caught_up, versions) == (True, [0, 1])


def _answer(value: object) -> Callable[..., Any]:
    return lambda *_args, **_named: value
