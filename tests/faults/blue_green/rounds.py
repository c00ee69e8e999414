"""Rounds of faults in the blue-green migration."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tests.faults.lifecycle.rounds import AND, CUT, DURING, FROZEN, INSTANTS, SILENT, SLOW, Choice, Round, Span, every
from tests.support.lifecycle.gates import Edge, Gate

PREFIX = "bg_"
"""Begins the names of all steps, some of which other migrations have too."""


class Victim(StrEnum):
    """The server or worker that is hit, and how.

    A `broker` is one of blue's two, `zookeeper`, `leader` and `follower` are blue's too; green has one of each.
    """

    WORKER = "worker"
    ZOMBIE = "zombie"
    LOST_ATTEMPT = "lost-attempt"
    TEMPORAL = "temporal"
    BROKER = "broker"
    GREEN_BROKER = "green-broker"
    ZOOKEEPER = "zookeeper"
    GREEN_ZOOKEEPER = "green-zookeeper"
    LEADER = "leader"
    FOLLOWER = "follower"
    FROZEN_BROKER = "frozen-broker"
    FROZEN_GREEN = "frozen-green-broker"
    FROZEN_ZOOKEEPER = "frozen-zookeeper"
    FROZEN_LEADER = "frozen-leader"
    FROZEN_TEMPORAL = "frozen-temporal"
    TEMPORAL_CUT = "temporal-cut"
    TEMPORAL_SILENT = "temporal-silent"
    TEMPORAL_SLOW = "temporal-slow"
    BROKER_AND_WORKER = "broker+worker"
    BROKER_AND_GREEN = "broker+green-broker"
    LEADER_AND_WORKER = "leader+worker"
    TEMPORAL_AND_WORKER = "temporal+worker"

    @property
    def of_temporal(self) -> bool:
        """Whether it is the network to Temporal that is hit."""
        return self.value.endswith((CUT, SILENT, SLOW))


def _named(*steps: str) -> tuple[str, ...]:
    return tuple(f"{PREFIX}{step}" for step in steps)


_BATCH = _named("load", "seed", "catch_up", "quiesce", "final_copy", "flip", "drain", "verify")
_FORWARD = (*_named("register", "provision", "disable_load_shedding"), *_BATCH, *_named("complete", "finish"))
BACK = _named("undo", "release")
"""The steps of a rollback; rounds that hit them ask for one first."""
OPTIONAL = _named("record_failures", "clean_up", "undo_terminated_batch")
"""Steps that not every migration has; only late attempts of them have rounds."""

_BEFORE_THE_END = _named(
    "register", "provision", "disable_load_shedding", "load", "seed", "catch_up", "quiesce", "final_copy", "flip"
)
"""Steps up to which a rollback may be asked for."""
_WITH_CLIENTS = _named("quiesce", "final_copy", "flip", "drain")
"""Steps in which clients are held back, or go from one side to the other."""
_SERVERS = tuple(
    victim
    for victim in Victim
    if AND in victim or victim.startswith(FROZEN) or victim.endswith(("broker", "zookeeper", "leader", "follower"))
)


@dataclass(frozen=True)
class BlueGreenRound(Round):
    """One fault in a migration from blue to green."""

    victim: Victim

    victims: ClassVar[type[StrEnum]] = Victim
    steps: ClassVar[tuple[str, ...]] = (*_FORWARD, *BACK, *OPTIONAL)
    # A broker's session ends after ten seconds: it comes back before, or when it has been missed.
    down: ClassVar[dict[str, Span]] = {
        **{victim: (1.0, 14.0) for victim in Victim if "broker" in victim},
        # Beyond the time after which its followers choose another leader.
        Victim.FROZEN_LEADER: (2.0, 12.0),
        **{victim: (3.0, 3.0) for victim in Victim if victim.of_temporal},
    }
    into: ClassVar[dict[str, float]] = dict(zip(_named("provision", "flip", "drain"), (1.5, 2.5, 2.5), strict=True))
    ensemble_only: ClassVar[frozenset[str]] = frozenset({"leader", "follower", f"{FROZEN}leader"})

    @property
    def gate(self) -> Gate:
        """Return the gate of the step, by the step's own name."""
        return super().gate._replace(step=self.step.removeprefix(PREFIX))

    @property
    def rolls_back(self) -> bool:
        """Return whether the operator asks for a rollback: where the step needs one, and in half of the late attempts.

        At the start of a step it is those with even seeds, otherwise those with odd ones.
        """
        late_rollback = self.late and self.step in _BEFORE_THE_END
        return self.step in BACK or (late_rollback and (self.seed % 2 == 0) == (self.instant == Edge.BEFORE))

    @property
    def late_in_next_run(self) -> bool:
        """Whether, after a rollback, a late attempt continues during the next run; otherwise no run is active then."""
        return self._random("next").randrange(2) == 0

    @property
    def batch_size(self) -> int:
        """Namespaces of one batch."""
        return 1 + self._random("batch").randrange(2)

    @property
    def broker(self) -> str:
        """The broker of blue that is hit."""
        return f"broker-{1 + self._random('broker').randrange(2)}"


def matrix(seed: int) -> list[BlueGreenRound]:
    """Return rounds of each victim at each boundary that matters for it, and during steps in which clients move."""
    during = [(step, DURING) for step in _WITH_CLIENTS]
    main = (*_FORWARD, *BACK)
    both = [(step, edge) for step in main for edge in Edge] + during
    servers = [*during, *((step, Edge.BEFORE) for step in (*_named("load", "seed", "flip", "complete"), *BACK))]
    moments: dict[str, Sequence[tuple[str, str]]] = {
        Victim.ZOMBIE: [(step, instant) for step in BlueGreenRound.steps for instant in (Edge.BEFORE, DURING)],
        Victim.WORKER: both,
        **dict.fromkeys(_SERVERS, servers),
        Victim.TEMPORAL: both,
        # It falls silent at an edge.
        Victim.LOST_ATTEMPT: [(step, edge) for step in BlueGreenRound.steps for edge in Edge],
        **{victim: during for victim in Victim if victim.of_temporal},
    }
    return every(BlueGreenRound, moments, seed)


def sample(seed: int) -> list[BlueGreenRound]:
    """Return two rounds: a late worker, and a worker whose flip is done and not reported."""
    return [
        BlueGreenRound(Victim.ZOMBIE, "bg_flip", Edge.BEFORE, seed),
        BlueGreenRound(Victim.WORKER, "bg_flip", Edge.AFTER, seed),
    ]


def at_random(seed: int) -> BlueGreenRound:
    """Return a round that the seed decides."""
    choice = random.Random(seed)
    victim = choice.choice(list(Victim))
    instants = tuple(Edge) if victim is Victim.LOST_ATTEMPT else INSTANTS
    return BlueGreenRound(victim, choice.choice((*_FORWARD, *BACK)), str(choice.choice(instants)), seed)


ROUNDS = Choice(BlueGreenRound, sample, matrix, at_random)
