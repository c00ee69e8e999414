"""Rounds of faults in the controller of a scalable topic: at its steps, and between any two changes of a step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tests.faults.lifecycle.rounds import DURING, FROZEN, INSTANTS, Choice, Round, Span, every
from tests.support.lifecycle.gates import Edge, Gate

PREFIX = "tc_"
"""Begins the names of all steps."""


class Victim(StrEnum):
    """Victims, and how each is hit.

    `broker` is the owner of a segment that is being sealed. The last ones are people: one terminates the workflow and
    starts it again while a step of it continues, and others delete or change what is not theirs.
    """

    WORKER = "worker"
    ZOMBIE = "zombie"
    LOST_ATTEMPT = "lost-attempt"
    TEMPORAL = "temporal"
    BROKER = "broker"
    OTHER_BROKER = "other-broker"
    BOOKIE = "bookie"
    ZOOKEEPER = "zookeeper"
    LEADER = "leader"
    FROZEN_BROKER = "frozen-broker"
    FROZEN_ZOOKEEPER = "frozen-zookeeper"
    FROZEN_LEADER = "frozen-leader"
    FROZEN_TEMPORAL = "frozen-temporal"
    TEMPORAL_CUT = "temporal-cut"
    BROKER_AND_WORKER = "broker+worker"
    BROKERS = "broker+other-broker"
    TEMPORAL_AND_WORKER = "temporal+worker"
    RUN = "run"
    LAYOUT_TOPIC = "layout-topic"
    SEGMENT = "segment"
    RECORD = "record"


PEOPLE = (Victim.RUN, Victim.LAYOUT_TOPIC, Victim.SEGMENT, Victim.RECORD)

_CHANGES = {"prepare": 9, "seal": 2, "commit": 4}
"""Changes of each step: those of `prepare` are of a split with two subscriptions, all others of a merge."""
_OF_A_SPLIT = {f"{PREFIX}prepare-{number}" for number in range(6, 10)}
_OF_A_MERGE = {f"{PREFIX}seal-2", f"{PREFIX}commit-4"}


def _named(*steps: str) -> tuple[str, ...]:
    return tuple(f"{PREFIX}{step}" for step in steps)


MUTATION = _named("prepare", "seal", "commit")
OTHERS = OPEN, SUBSCRIBE, UNSUBSCRIBE, DELETE, TELL, DIRECT, ENSURE, PRUNE = _named(
    "open", "subscribe", "unsubscribe", "delete", "publish_assignments", "publish_controller_urls", "ensure", "prune"
)
_WHOLE = (*MUTATION, *OTHERS)
SINGLE_CHANGES = tuple(f"{PREFIX}{step}-{number}" for step, count in _CHANGES.items() for number in range(1, count + 1))
"""Single changes of steps."""

_ENDS = _, _DELETE = _named("unsubscribe-3", "delete-4")
"""The second cursor of a subscription, or the second segment, is about to be deleted."""

_SERVERS = tuple(
    victim
    for victim in Victim
    if victim not in (Victim.WORKER, Victim.ZOMBIE, Victim.LOST_ATTEMPT, Victim.TEMPORAL, *PEOPLE)
)


@dataclass(frozen=True)
class TopicControllerRound(Round):
    """One fault in the controller of a topic."""

    victim: Victim

    victims: ClassVar[type[StrEnum]] = Victim
    steps: ClassVar[tuple[str, ...]] = (*_WHOLE, *SINGLE_CHANGES, *_ENDS)
    # A broker's session ends after ten seconds: it comes back before, or when it has been missed.
    down: ClassVar[dict[str, Span]] = {
        **{victim: (1.0, 14.0) for victim in Victim if "broker" in victim},
        # Beyond the time after which its followers choose another leader.
        Victim.FROZEN_LEADER: (2.0, 12.0),
        Victim.TEMPORAL_CUT: (3.0, 3.0),
    }
    into: ClassVar[dict[str, float]] = dict(zip(_named("prepare", "seal", "commit"), (0.6, 0.3, 0.2), strict=True))
    ensemble_only: ClassVar[frozenset[str]] = frozenset({"leader", f"{FROZEN}leader"})

    @property
    def gate(self) -> Gate:
        """Return the gate at which the step, or one change of it, is held."""
        return super().gate._replace(step=self.step.removeprefix(PREFIX))

    def is_in(self, *steps: str) -> bool:
        """Return whether the round hits one of these steps, or a change of one."""
        return self.step.rstrip("0123456789").rstrip("-") in steps

    @property
    def merges(self) -> bool:
        """Whether two segments are merged, and not one split."""
        if self.step in _OF_A_MERGE:
            return True
        return self.step not in _OF_A_SPLIT and self._random("merges").randrange(2) == 0

    @property
    def loses_run(self) -> bool:
        """Return whether the run is terminated while an attempt of it is frozen, and another run begins."""
        return self.late and self._random("run").randrange(2) == 0

    @property
    def continues_in_next_change(self) -> bool:
        """Whether there is another change before a late attempt continues."""
        return self._random("next").randrange(2) == 0


def matrix(seed: int) -> list[TopicControllerRound]:
    """Return every victim at every boundary that makes a difference for it."""
    both = [(step, str(edge)) for step in (*MUTATION, OPEN) for edge in Edge]
    before_each = [(step, str(Edge.BEFORE)) for step in SINGLE_CHANGES]
    after_the_fence = [(step, str(Edge.AFTER)) for step in SINGLE_CHANGES]
    ends = [(step, str(Edge.AFTER)) for step in _ENDS]
    servers = [(step, instant) for step in MUTATION for instant in (str(Edge.BEFORE), DURING)]
    late = [(step, instant) for step in _WHOLE for instant in (str(Edge.BEFORE), DURING)]
    layouts = [(f"{PREFIX}{step}-1", str(Edge.AFTER)) for step in ("prepare", "commit")]
    moments: dict[str, Sequence[tuple[str, str]]] = {
        Victim.WORKER: [*before_each, *both, *((step, str(Edge.BEFORE)) for step in OTHERS[1:])],
        Victim.ZOMBIE: [*after_the_fence, *ends, *late],
        Victim.RUN: [*after_the_fence, *both],
        Victim.TEMPORAL: both,
        **dict.fromkeys(_SERVERS, servers),
        Victim.LOST_ATTEMPT: both,
        Victim.LAYOUT_TOPIC: [(MUTATION[2], str(Edge.BEFORE)), (MUTATION[2], str(Edge.AFTER))],
        Victim.SEGMENT: [(step, str(Edge.BEFORE)) for step in MUTATION[1:]],
        Victim.RECORD: layouts,
    }
    return every(TopicControllerRound, moments, seed)


def sample(seed: int) -> list[TopicControllerRound]:
    """Return rounds on one cluster: late workers, two controllers at once, and a worker that dies between changes."""
    return [
        _on_one_zookeeper(Victim.ZOMBIE, f"{PREFIX}seal-1", Edge.AFTER, seed),
        _on_one_zookeeper(Victim.RUN, f"{PREFIX}commit-2", Edge.AFTER, seed),
        _on_one_zookeeper(Victim.WORKER, f"{PREFIX}seal-2", Edge.BEFORE, seed),
        # `test_resets` has the other one.
        _on_one_zookeeper(Victim.ZOMBIE, _DELETE, Edge.AFTER, seed),
    ]


def _on_one_zookeeper(victim: Victim, step: str, instant: Edge, seed: int) -> TopicControllerRound:
    rounds = (TopicControllerRound(victim, step, str(instant), number) for number in itertools.count(seed))
    return next(fault_round for fault_round in rounds if not fault_round.ensemble)


def at_random(seed: int) -> TopicControllerRound:
    """Return a round that the seed decides."""
    choice = random.Random(seed)
    victim = choice.choice([candidate for candidate in Victim if candidate not in PEOPLE or candidate is Victim.RUN])
    step = choice.choice((*MUTATION, *SINGLE_CHANGES))
    instants = tuple(Edge) if step in SINGLE_CHANGES or victim is Victim.LOST_ATTEMPT else INSTANTS
    if victim is Victim.LOST_ATTEMPT:
        step = choice.choice(MUTATION)
    return TopicControllerRound(victim, step, str(choice.choice(instants)), seed)


ROUNDS = Choice(TopicControllerRound, sample, matrix, at_random, first=2)
