"""Answers of the steps of a blue-green migration without failures."""

from __future__ import annotations

from typing import Any, ClassVar

from models.blue_green.copies import CopyFigures, CopyProof, FinalCopy
from models.blue_green.input import KIND
from models.blue_green.results import (
    BatchCheck,
    Census,
    CleanupStep,
    Completion,
    Drained,
    Flipped,
    Loaded,
    Precheck,
    Provision,
    Quiet,
    Released,
    Survey,
    Undone,
)
from models.lifecycle.waves import Page, WaveItem
from tests.support.blue_green.sides import side
from tests.workflows.lifecycle import doubles

NAMESPACES = ("acme/audit", "acme/bills", "acme/carts")


PLAN: dict[str, Any] = {
    "blue": side("blue"),
    "green_cluster": "green",
    "green": side("green"),
    "waves": {"canary": 1, "wave_size": 10, "parallelism": 1, "gate": "none"},
    "hold_before_cutover": False,
}

READY = Precheck(
    warnings=("topics keep messages",),
    survey=Survey(tenants=1, namespaces=3, topics=12, subscriptions=20, producers=4, consumers=8),
    missing=30,
    differences=("namespace acme/audit is missing",),
)


ANSWERS: dict[str, Any] = {
    "precheck": READY,
    "register": Released(),
    "provision": Provision(created={"namespaces": 3, "topics": 12}),
    "disable_load_shedding": None,
    "list_namespaces": None,
    "record_failures": "/failed of zk:zk-blue:2181/pulsar",
    "load": Loaded(topics=4, producers=2, consumers=3, backlog=10),
    "seed": CopyFigures(topics=2, entries=40, messages=100, size=5_000),
    "catch_up": None,
    "quiesce": Quiet(seconds=1.5),
    "final_copy": FinalCopy(
        seconds=0.5, proof=CopyProof(topics=2, entries=44, messages=110, size=5_500, subscriptions=3)
    ),
    "flip": Flipped(topics=4, seconds=2.0),
    "drain": Drained(seconds=3.0),
    "verify": BatchCheck(topics=4, subscriptions=6, unused=("gone of topic",), unused_count=1),
    "undo": Undone(undone=True),
    "complete": Completion(flagged=True),
    "census": Census(connections=2, opened={"broker-1": 50}),
    "clean_up": CleanupStep(deleted=12, remaining=0),
    "finish": Released(),
    "release": Released(restored=2),
    "undo_terminated_batch": Undone(undone=True),
}
"""What each step answers unless a script says otherwise: a migration without trouble."""

BATCH = ["load", "catch_up", "quiesce", "flip", "drain", "verify"]
"""The steps of one batch, in their order."""
COPYING_BATCH = ["load", "seed", "catch_up", "quiesce", "final_copy", "flip", "drain", "verify"]
"""The same where backlogs are copied."""


class Script(doubles.Script):
    """Steps of one blue-green migration, with scripted answers."""

    kind: ClassVar[str] = KIND
    input: ClassVar[dict[str, Any]] = PLAN
    usual: ClassVar[dict[str, Any]] = ANSWERS
    unlisted: ClassVar[frozenset[str]] = frozenset({"census", "list_namespaces", "record_failures"})

    def __init__(self, *, names: tuple[str, ...] = NAMESPACES, **answers: Any) -> None:
        super().__init__(**answers)
        self._names = names

    async def play(self, call: doubles.Call) -> Any:
        """Record a call, and answer it; namespaces are listed after the cursor."""
        if call.step != "list_namespaces":
            return await super().play(call)
        self.calls.append(call)
        cursor, limit = call.args
        following = [name for name in self._names if name > cursor]
        return Page(items=tuple(WaveItem(name=name) for name in following[:limit]), total=len(self._names))
