"""Default results of the steps of the migrations to scalable topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from models.lifecycle.waves import Page, WaveItem
from models.scalable_topic.input import KIND, ScalableTopicInput
from models.scalable_topic.namespace_input import KIND as NAMESPACE_KIND
from models.scalable_topic.results import (
    CleanedUp,
    ClientsGone,
    DrainedTopic,
    FlipAnswer,
    FlippedTopic,
    Precheck,
    Released,
    Survey,
    TopicCheck,
    Undone,
)
from tests.workflows.lifecycle import doubles

TOPIC = "persistent://acme/shop/orders"
ACCESS: dict[str, Any] = {"metadata_url": "zk:zk:2181/pulsar", "admin_urls": ["http://broker:8080"]}
PLAN: dict[str, Any] = {**ACCESS, "topic": TOPIC, "hold_before_cutover": False}
REMOVE: dict[str, Any] = {"cleanup": "remove", "cleanup_at_window_end": True}

READY = Precheck(
    warnings=("orders has no schema",),
    parents=3,
    partitioned=True,
    children=("0000-5554-3", "5555-aaa9-4", "aaaa-ffff-5"),
    subscriptions=2,
    backlog=40,
    stored_bytes=5_000,
)
FLIPPED = FlippedTopic(segments=3, registered=2, terminated=3, migrate_seconds=0.5, seconds=0.75)
CHECK = TopicCheck(faults=(), segments=3, subscriptions=2, pruned=0)
CAME = FlipAnswer(refused="1 connections of clients that cannot follow: producer p")
TURNED_OUT = Undone(why="it turned out to be scalable")

ANSWERS: dict[str, Any] = {
    "precheck": READY,
    "recover": Released(),
    "await_clients": ClientsGone(),
    "guard": Released(),
    "flip": FlipAnswer(flipped=FLIPPED),
    "drain": DrainedTopic(seconds=2.0, backlogs={}),
    "verify": CHECK,
    "complete": Released(),
    "undo": Undone(),
    "clean_up": CleanedUp(deleted=1),
    "forget": CleanedUp(),
}
"""Result of each step unless a script has another one: a migration without failures."""

BEFORE_FLIP = ["precheck", "recover", "await_clients", "guard"]
"""The steps that can be undone."""
SCALABLE = [*BEFORE_FLIP, "flip", "drain", "verify", "complete"]
"""All steps up to the grace window."""


class Script(doubles.Script):
    """A script of the steps of the migration of one topic."""

    kind: ClassVar[str] = KIND
    input: ClassVar[dict[str, Any]] = PLAN
    usual: ClassVar[dict[str, Any]] = ANSWERS


TOPICS = tuple(f"acme/shop/orders-{number:03}" for number in range(5))

MANY_PLAN: dict[str, Any] = {
    **ACCESS,
    "topics": ["acme/shop/*"],
    "hold_before_cutover": False,
    "waves": {"canary": 1, "wave_size": 10, "gate": "none", "deadline": "PT48H"},
}

FOUND = Survey(
    warnings=("3 topics have no schema",),
    topics=5,
    namespaces=1,
    subscriptions=10,
    backlog=200,
    stored_bytes=25_000,
)

MANY_ANSWERS: dict[str, Any] = {
    **ANSWERS,
    "survey": FOUND,
    "recover_all": Released(),
    "hold_all": Released(),
    "list_topics": None,
    "record_failures": "/failed of zk:zk:2181/pulsar",
    "release_all": Released(),
    "clean_up_all": CleanedUp(deleted=5),
    "forget_all": CleanedUp(),
}

CHILD = SCALABLE
"""The steps of each topic; the parent has the claims, the policies and the cleanup."""


class NamespaceScript(doubles.Script):
    """A script of the steps of the migration of many topics, and of each topic.

    Args:
        names: names of the topics, in order.
        topics: results of the steps of single topics, by name.
        answers: see `doubles.Script`; steps of topics answer this for all topics.
    """

    kind: ClassVar[str] = NAMESPACE_KIND
    input: ClassVar[dict[str, Any]] = MANY_PLAN
    usual: ClassVar[dict[str, Any]] = MANY_ANSWERS
    unlisted: ClassVar[frozenset[str]] = frozenset({"list_topics", "record_failures"})

    def __init__(
        self, *, names: Sequence[str] = TOPICS, topics: Mapping[str, dict[str, Any]] | None = None, **answers: Any
    ) -> None:
        super().__init__(**answers)
        self._names = names
        self._own = {name: Script(**own) for name, own in (topics or {}).items()}

    async def play(self, call: doubles.Call) -> Any:
        """Record a call, and answer it; list the topics after the cursor."""
        if call.step == "list_topics":
            self.calls.append(call)
            cursor, limit = call.args
            following = [name for name in self._names if name > cursor]
            return Page(items=tuple(WaveItem(name=name) for name in following[:limit]), total=len(self._names))
        own = self._own.get(topic_of(call))
        if own is None or not own.knows(call.step):
            return await super().play(call)
        self.calls.append(call)
        return await own.play(call)

    def steps_of(self, topic: str) -> list[str]:
        """Return the steps of one topic, in the order of their calls."""
        return [call.step for call in self.calls if topic_of(call) == topic]

    @property
    def own_steps(self) -> list[str]:
        """The steps that concern all topics, without those that only read."""
        return [call.step for call in self.calls if not topic_of(call) and call.step not in self.unlisted]

    @property
    def failures(self) -> dict[str, str]:
        """The reasons of topics that stayed regular or have faults, by name."""
        return {
            failed.path: failed.reason
            for call in self.calls
            if call.step == "record_failures"
            for failed in call.args[0]
        }


def topic_of(call: doubles.Call) -> str:
    """Return the `tenant/namespace/topic` of a step; empty for a step that concerns all topics."""
    return call.input.topic.removeprefix("persistent://") if isinstance(call.input, ScalableTopicInput) else ""
