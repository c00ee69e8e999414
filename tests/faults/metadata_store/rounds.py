"""Rounds of faults in the metadata store migration."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tests.faults.lifecycle.rounds import DURING, INSTANTS, Choice, Round, Span, every
from tests.support.lifecycle.gates import Edge


class Victim(StrEnum):
    """Who is hit, and how.

    A link is the network between the worker and ZooKeeper or Temporal: cut, silent, or slow for three seconds.
    """

    WORKER = "worker"
    ZOMBIE = "zombie"
    LOST_ATTEMPT = "lost-attempt"
    TEMPORAL = "temporal"
    BROKER = "broker"
    ZOOKEEPER = "zookeeper"
    OXIA = "oxia"
    FROZEN_OXIA = "frozen-oxia"
    ZOOKEEPER_CUT = "zookeeper-cut"
    ZOOKEEPER_SILENT = "zookeeper-silent"
    ZOOKEEPER_SLOW = "zookeeper-slow"
    TEMPORAL_CUT = "temporal-cut"
    TEMPORAL_SILENT = "temporal-silent"
    TEMPORAL_SLOW = "temporal-slow"

    @property
    def of_link(self) -> bool:
        """Whether it is the network that is hit."""
        return self.value.endswith(("-cut", "-silent", "-slow"))


FORWARD = ("pre_copy", "prepare", "copy_changes", "verify", "complete")
BACK = ("unblock_writes", "clear_target")
"""The steps of a rollback; rounds that hit them ask for one first."""


@dataclass(frozen=True)
class MetadataRound(Round):
    """One fault in a migration from ZooKeeper to Oxia."""

    victim: Victim

    victims: ClassVar[type[StrEnum]] = Victim
    steps: ClassVar[tuple[str, ...]] = FORWARD + BACK
    # A broker's session ends after ten seconds: it comes back before, or when it has been missed.
    down: ClassVar[dict[str, Span]] = {
        Victim.BROKER: (1.0, 14.0),
        Victim.FROZEN_OXIA: (3.0, 8.0),
        **{victim: (3.0, 3.0) for victim in Victim if victim.of_link},
    }
    into: ClassVar[dict[str, float]] = {"pre_copy": 4.0}

    @property
    def long_pre_copy(self) -> bool:
        """Whether the bulk copy has to last, because the hit comes within."""
        return self.step == "pre_copy" and self.instant == DURING


def matrix(seed: int) -> list[MetadataRound]:
    """Every victim at every boundary that makes a difference for it, and in the middle of the bulk copy.

    Servers other than Temporal see no difference between the end of a step and the begin of the next one.
    """
    both = [(step, edge) for step in FORWARD + BACK for edge in Edge] + [("pre_copy", DURING)]
    begins = [(step, Edge.BEFORE) for step in FORWARD + BACK] + [("complete", Edge.AFTER), ("pre_copy", DURING)]
    late = [(step, Edge.BEFORE) for step in FORWARD] + [("pre_copy", Edge.AFTER), ("pre_copy", DURING)]
    frozen = [("pre_copy", DURING), ("prepare", Edge.BEFORE), ("copy_changes", Edge.BEFORE), ("verify", Edge.BEFORE)]
    link = [("pre_copy", DURING), ("copy_changes", Edge.BEFORE)]
    moments: dict[str, Sequence[tuple[str, str]]] = {
        Victim.WORKER: both,
        Victim.TEMPORAL: both,
        Victim.BROKER: begins,
        Victim.ZOOKEEPER: begins,
        Victim.OXIA: begins,
        Victim.ZOMBIE: late,
        Victim.LOST_ATTEMPT: late,
        Victim.FROZEN_OXIA: frozen,
        **{victim: link for victim in Victim if victim.of_link},
    }
    return every(MetadataRound, moments, seed)


def sample(seed: int) -> list[MetadataRound]:
    """Five rounds: worker, Temporal, both stores, and a worker that comes back too late."""
    return [
        MetadataRound(Victim.WORKER, "copy_changes", Edge.AFTER, seed),
        MetadataRound(Victim.TEMPORAL, "verify", Edge.BEFORE, seed),
        MetadataRound(Victim.ZOOKEEPER, "pre_copy", DURING, seed),
        MetadataRound(Victim.OXIA, "copy_changes", Edge.BEFORE, seed),
        MetadataRound(Victim.ZOMBIE, "pre_copy", Edge.BEFORE, seed),
    ]


def at_random(seed: int) -> MetadataRound:
    """A round that the seed decides."""
    choice = random.Random(seed)
    victim = choice.choice(list(Victim))
    late = victim in (Victim.ZOMBIE, Victim.LOST_ATTEMPT)
    step = choice.choice(FORWARD if late else FORWARD + BACK)
    return MetadataRound(victim, step, choice.choice(INSTANTS), seed)


ROUNDS = Choice(MetadataRound, sample, matrix, at_random)
