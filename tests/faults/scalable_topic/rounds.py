"""Rounds of faults in the migrations of regular topics to scalable ones, of one and of many."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tests.faults.lifecycle.rounds import CUT, DURING, FROZEN, INSTANTS, SILENT, SLOW, Choice, Round, Span, every
from tests.support.lifecycle.gates import Edge, Gate

PREFIX = "st_"
"""Prefix of the names of all steps; other migrations have some of these names too."""


class Victim(StrEnum):
    """Victims of a fault, and how they are hit.

    `broker` is the leader of the topic: its controller, or its owner as long as it has none.
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
    FOLLOWER = "follower"
    FROZEN_BROKER = "frozen-broker"
    FROZEN_BOOKIE = "frozen-bookie"
    FROZEN_ZOOKEEPER = "frozen-zookeeper"
    FROZEN_LEADER = "frozen-leader"
    FROZEN_TEMPORAL = "frozen-temporal"
    TEMPORAL_CUT = "temporal-cut"
    TEMPORAL_SILENT = "temporal-silent"
    TEMPORAL_SLOW = "temporal-slow"
    BROKER_AND_WORKER = "broker+worker"
    BROKERS = "broker+other-broker"
    LEADER_AND_WORKER = "leader+worker"
    TEMPORAL_AND_WORKER = "temporal+worker"

    @property
    def of_temporal(self) -> bool:
        """Whether it is the network to Temporal that is hit."""
        return self.value.endswith((CUT, SILENT, SLOW))


def _named(*steps: str) -> tuple[str, ...]:
    return tuple(f"{PREFIX}{step}" for step in steps)


_SHARED = _named("await_clients", "guard", "flip", "drain", "verify", "complete")
"""Steps of a topic, also if it is one of many."""
_OF_ONE = _named("recover", "forget")
_OF_MANY = _named("recover_all", "hold_all", "list_topics", "release_all", "forget_all")
_FORWARD = (*_SHARED, *_OF_ONE, *_OF_MANY)
UNDO = f"{PREFIX}undo"
RELEASE_ALL = f"{PREFIX}release_all"
CLEAN_UP = _named("clean_up", "clean_up_all")
RECORD_FAILURES = f"{PREFIX}record_failures"

_BEFORE_THE_FLIP = _named("recover", "await_clients", "guard", "recover_all", "hold_all")
"""Steps up to which a rollback leaves all topics regular."""
_LOSES_RUN = _named("flip", "complete", "release_all")
"""Steps during which half of the late attempts lose their run: it is terminated, and the next run takes over."""
_CHANGING = _named("guard", "flip", "complete")
_SERVERS = tuple(
    victim
    for victim in Victim
    if not victim.of_temporal and victim not in (Victim.WORKER, Victim.ZOMBIE, Victim.LOST_ATTEMPT, Victim.TEMPORAL)
)


@dataclass(frozen=True)
class ScalableTopicRound(Round):
    """One fault in a migration to scalable topics."""

    victim: Victim

    victims: ClassVar[type[StrEnum]] = Victim
    steps: ClassVar[tuple[str, ...]] = (*_FORWARD, UNDO, *CLEAN_UP, RECORD_FAILURES)
    # The session of a broker ends after ten seconds: the broker comes back before or after that.
    down: ClassVar[dict[str, Span]] = {
        **{victim: (1.0, 14.0) for victim in Victim if "broker" in victim},
        # Longer than the time after which its followers elect another leader.
        Victim.FROZEN_LEADER: (2.0, 12.0),
        **{victim: (3.0, 3.0) for victim in Victim if victim.of_temporal},
    }
    into: ClassVar[dict[str, float]] = dict(zip(_named("guard", "flip", "hold_all"), (1.0, 3.0, 1.0), strict=True))
    ensemble_only: ClassVar[frozenset[str]] = frozenset({"leader", "follower", f"{FROZEN}leader"})

    @property
    def gate(self) -> Gate:
        """The gate at which the step is held, by the name of the step."""
        return super().gate._replace(step=self.step.removeprefix(PREFIX))

    @property
    def many(self) -> bool:
        """Whether the topics of a namespace become scalable, and not one topic."""
        if self.step in _SHARED:
            return self._random("many").randrange(3) == 0
        return self.step in _OF_MANY or self.step in (CLEAN_UP[1], RECORD_FAILURES)

    @property
    def cleans_up(self) -> bool:
        """Whether regular topics are deleted at the end."""
        return self.step in CLEAN_UP

    @property
    def goes_back(self) -> bool:
        """Whether the step belongs to a rollback, which is requested first."""
        return self.step == UNDO or (self.step == RELEASE_ALL and self._random("back").randrange(2) == 0)

    @property
    def rolls_back(self) -> bool:
        """Whether the operator requests a rollback: if the step needs one, and during half of the late attempts.

        These are attempts that freeze at the start of their step with an even seed, and the others with an odd one.
        """
        return self.goes_back or (self.late and self.step in _BEFORE_THE_FLIP and self._odd)

    @property
    def loses_run(self) -> bool:
        """Whether the run is terminated while a late attempt of it is frozen, and another run starts."""
        return self.late and self.step in _LOSES_RUN and self._odd

    @property
    def late_in_next_run(self) -> bool:
        """Whether a late attempt continues during the next run, and not after its own."""
        return self._random("next").randrange(2) == 0

    @property
    def own_policies(self) -> bool:
        """Whether the namespace has policies of its own, which keep brokers from dropping old parents."""
        return not self.cleans_up and (self.late or self._random("policies").randrange(2) == 0)

    @property
    def partitions(self) -> int:
        """The number of partitions of the first topic."""
        return 3 * self._random("partitions").randrange(2)

    @property
    def ordered(self) -> bool:
        """Whether the first topic has ordered subscriptions; always if the step waits for clients."""
        return self.gate.step == "await_clients" or self._random("ordered").randrange(2) == 0

    @property
    def _odd(self) -> bool:
        return (self.seed % 2 == 0) == (self.instant == Edge.BEFORE)


def matrix(seed: int) -> list[ScalableTopicRound]:
    """Return every victim at every relevant boundary, and during the steps that change something."""
    during = [(step, DURING) for step in _CHANGING]
    main = (*_FORWARD, UNDO, CLEAN_UP[0])
    both = [(step, edge) for step in main for edge in Edge] + during
    at_the_start = _named("await_clients", "guard", "flip", "drain", "complete", "undo", "hold_all", "release_all")
    servers = [*during, *((step, Edge.BEFORE) for step in at_the_start)]
    moments: dict[str, Sequence[tuple[str, str]]] = {
        Victim.ZOMBIE: [(step, instant) for step in ScalableTopicRound.steps for instant in (Edge.BEFORE, DURING)],
        Victim.WORKER: both,
        **dict.fromkeys(_SERVERS, servers),
        Victim.TEMPORAL: both,
        # It stops answering at an edge.
        Victim.LOST_ATTEMPT: [(step, edge) for step in ScalableTopicRound.steps for edge in Edge],
        **{victim: during for victim in Victim if victim.of_temporal},
    }
    return every(ScalableTopicRound, moments, seed)


def sample(seed: int) -> list[ScalableTopicRound]:
    """Return two rounds on one cluster: a late worker, and a worker that dies before it reports its flip."""
    return [
        _first(Victim.ZOMBIE, "flip", DURING, seed, lambda fault: not fault.loses_run),
        _first(Victim.WORKER, "flip", Edge.AFTER, seed, lambda fault: fault.partitions > 0 and fault.ordered),
    ]


def _first(
    victim: Victim, step: str, instant: str, seed: int, wanted: Callable[[ScalableTopicRound], bool]
) -> ScalableTopicRound:
    """Return the first round, from a seed on, that migrates one topic on a single ZooKeeper and fits a condition."""
    rounds = (ScalableTopicRound(victim, f"{PREFIX}{step}", instant, number) for number in itertools.count(seed))
    return next(fault for fault in rounds if wanted(fault) and not fault.ensemble and not fault.many)


def at_random(seed: int) -> ScalableTopicRound:
    """Return a round that the seed decides."""
    choice = random.Random(seed)
    victim = choice.choice(list(Victim))
    instants = tuple(Edge) if victim is Victim.LOST_ATTEMPT else INSTANTS
    return ScalableTopicRound(victim, choice.choice((*_FORWARD, UNDO)), str(choice.choice(instants)), seed)


ROUNDS = Choice(ScalableTopicRound, sample, matrix, at_random)
