"""Rounds of faults in the metadata store migration."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tests.faults.lifecycle.rounds import (
    AND,
    CUT,
    DURING,
    FROZEN,
    FULL_DISK,
    INSTANTS,
    SILENT,
    SLOW,
    Choice,
    Round,
    Span,
    every,
)
from tests.support.lifecycle.gates import Edge


class Victim(StrEnum):
    """The server, link or worker that is hit, and how.

    A link is the network between the worker and ZooKeeper or Temporal, or between a follower and its leader: cut,
    silent, or slow for three seconds. A worker whose follower is slow talks to no other ZooKeeper.
    """

    WORKER = "worker"
    ZOMBIE = "zombie"
    LOST_ATTEMPT = "lost-attempt"
    TEMPORAL = "temporal"
    BROKER = "broker"
    ZOOKEEPER = "zookeeper"
    OXIA = "oxia"
    LEADER = "leader"
    FROZEN_OXIA = "frozen-oxia"
    FROZEN_ZOOKEEPER = "frozen-zookeeper"
    FROZEN_LEADER = "frozen-leader"
    FROZEN_TEMPORAL = "frozen-temporal"
    FULL_OXIA = "full-disk-oxia"
    FULL_ZOOKEEPER = "full-disk-zookeeper"
    FULL_LEADER = "full-disk-leader"
    FULL_TEMPORAL = "full-disk-temporal"
    FULL_BOOKIE = "full-disk-bookie"
    FOLLOWER_SLOW = "follower-slow"
    ZOOKEEPER_CUT = "zookeeper-cut"
    ZOOKEEPER_SILENT = "zookeeper-silent"
    ZOOKEEPER_SLOW = "zookeeper-slow"
    TEMPORAL_CUT = "temporal-cut"
    TEMPORAL_SILENT = "temporal-silent"
    TEMPORAL_SLOW = "temporal-slow"
    OXIA_AND_WORKER = "oxia+worker"
    LEADER_AND_WORKER = "leader+worker"
    LEADER_AND_OXIA = "leader+oxia"
    TEMPORAL_AND_WORKER = "temporal+worker"
    TEMPORAL_AND_ZOOKEEPER = "temporal+zookeeper"
    BROKER_AND_OXIA = "broker+oxia"
    FROZEN_OXIA_AND_TEMPORAL = "frozen-oxia+temporal"

    @property
    def of_link(self) -> bool:
        """Whether it is the network that is hit."""
        return self.value.endswith((CUT, SILENT, SLOW))


FORWARD = ("pre_copy", "catch_up", "prepare", "copy_changes", "verify", "complete")
BACK = ("unblock_writes", "clear_target")
"""The steps of a rollback; rounds that hit them ask for one first."""
OPTIONAL = ("precheck", "set_speed", "unblock_leftover", "follow")
"""Steps that not every migration has, or that change claims alone; only late attempts of them have rounds."""


@dataclass(frozen=True)
class MetadataRound(Round):
    """One fault in a migration from ZooKeeper to Oxia."""

    victim: Victim

    victims: ClassVar[type[StrEnum]] = Victim
    steps: ClassVar[tuple[str, ...]] = FORWARD + BACK + OPTIONAL
    # A broker's session ends after ten seconds: it comes back before, or when it has been missed.
    down: ClassVar[dict[str, Span]] = {
        Victim.BROKER: (1.0, 14.0),
        **{victim: (3.0, 8.0) for victim in Victim if victim.startswith((FROZEN, FULL_DISK))},
        # Beyond the time after which its followers choose another leader.
        Victim.FROZEN_LEADER: (2.0, 12.0),
        **{victim: (3.0, 3.0) for victim in Victim if victim.of_link},
    }
    into: ClassVar[dict[str, float]] = {"pre_copy": 4.0}
    ensemble_only: ClassVar[frozenset[str]] = frozenset(
        name for victim in Victim for name in victim.split(AND) if "leader" in name or "follower" in name
    )

    @property
    def long_pre_copy(self) -> bool:
        """Whether the bulk copy must last, because the hit comes within."""
        return (self.step == "pre_copy" and self.instant == DURING) or self.step == "set_speed"


def matrix(seed: int) -> list[MetadataRound]:
    """Return rounds for each victim at each boundary that matters for it, and in the middle of the bulk copy.

    Servers other than Temporal see no difference between the end of a step and the start of the next one.
    """
    both = [(step, edge) for step in FORWARD + BACK for edge in Edge] + [("pre_copy", DURING)]
    begins = [(step, Edge.BEFORE) for step in FORWARD + BACK] + [("complete", Edge.AFTER), ("pre_copy", DURING)]
    frozen = [
        ("pre_copy", DURING),
        *((step, Edge.BEFORE) for step in ("prepare", "copy_changes", "verify", "complete", "unblock_writes")),
    ]
    link = [("pre_copy", DURING), ("copy_changes", Edge.BEFORE)]
    moments: dict[str, Sequence[tuple[str, str]]] = {
        Victim.WORKER: both,
        Victim.TEMPORAL: both,
        Victim.BROKER: begins,
        Victim.ZOOKEEPER: begins,
        Victim.OXIA: begins,
        Victim.LEADER: [*begins, *((step, DURING) for step in FORWARD if step != "pre_copy")],
        Victim.ZOMBIE: [(step, instant) for step in MetadataRound.steps for instant in (Edge.BEFORE, DURING)],
        # It falls silent at an edge.
        Victim.LOST_ATTEMPT: [(step, edge) for step in MetadataRound.steps for edge in Edge],
        **{victim: frozen for victim in Victim if victim.startswith(FROZEN) and AND not in victim},
        **{victim: frozen for victim in Victim if victim.startswith(FULL_DISK)},
        **{victim: frozen for victim in Victim if AND in victim},
        **{victim: link for victim in Victim if victim.of_link},
    }
    return every(MetadataRound, moments, seed)


def sample(seed: int) -> list[MetadataRound]:
    """Return two rounds: a late worker, and a worker with the target."""
    return [
        MetadataRound(Victim.ZOMBIE, "pre_copy", DURING, seed),
        MetadataRound(Victim.OXIA_AND_WORKER, "copy_changes", Edge.AFTER, seed),
    ]


def at_random(seed: int) -> MetadataRound:
    """Return a round that depends only on the seed."""
    choice = random.Random(seed)
    victim = choice.choice(list(Victim))
    instants = tuple(Edge) if victim is Victim.LOST_ATTEMPT else INSTANTS
    return MetadataRound(victim, choice.choice(FORWARD + BACK), str(choice.choice(instants)), seed)


ROUNDS = Choice(MetadataRound, sample, matrix, at_random)
