"""Rounds of faults: who is hit, how and when; the whole matrix, a fixed sample of it, and random ones."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from tests.support.gates import Edge, Gate


class Victim(StrEnum):
    """Who is hit, and how.

    A `zombie` is a worker that is frozen with its executors, while another one takes over, and goes on only when the
    migration has ended. A `lost attempt` is the same within one worker: Temporal hears nothing of a step for too long.
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
BACK = ("give_back", "clear_target")
"""The steps of a way back; rounds that hit them ask for a rollback first."""

DURING = "during"
PHASES = {"pre_copy": "PRE_COPY", "prepare": "PREPARATION", "copy_changes": "COPYING", "verify": "VERIFY"}

# Seconds. A broker's session ends after ten: it comes back before, or when it has been missed.
_DOWN = {Victim.BROKER: (1.0, 14.0), Victim.FROZEN_OXIA: (3.0, 8.0)}
_DOWN_ELSE = (0.2, 4.0)
_LINK_DOWN = 3.0
_INTO = {"pre_copy": 4.0}
_INTO_ELSE = 0.4


@dataclass(frozen=True)
class Round:
    """One fault in one migration.

    Attributes:
        victim: who is hit.
        step: the step at which that happens.
        instant: `before` or `after` the step, or `during` it, some time after its begin.
        seed: decides how long that takes, and how long the victim stays away.
    """

    victim: Victim
    step: str
    instant: str
    seed: int

    def __str__(self) -> str:
        return f"{self.victim}/{self.step}.{self.instant}/{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote.

        Raises:
            ValueError: it is something else.
        """
        victim, moment, seed = text.split("/")
        step, instant = moment.split(".")
        if step not in FORWARD + BACK or instant not in (*Edge, DURING):
            raise ValueError(f"{text!r} names no step, or no instant of it")
        return cls(Victim(victim), step, instant, int(seed))

    @property
    def gate(self) -> Gate:
        """Where the step is held, so that the victim can be hit."""
        return Gate(self.step, Edge.AFTER if self.instant == Edge.AFTER else Edge.BEFORE)

    @property
    def into_step(self) -> float:
        """Seconds between the release of the step and the hit."""
        longest = _INTO.get(self.step, _INTO_ELSE)
        return self._random("into").uniform(0, longest) if self.instant == DURING else 0.0

    @property
    def seconds_down(self) -> float:
        """How long the victim stays away."""
        if self.victim.of_link:
            return _LINK_DOWN
        return self._random("down").uniform(*_DOWN.get(self.victim, _DOWN_ELSE))

    @property
    def long_pre_copy(self) -> bool:
        """Whether the bulk copy has to last, because the hit comes within."""
        return self.step == "pre_copy" and self.instant == DURING

    def _random(self, what: str) -> random.Random:
        return random.Random(f"{self} {what}")


def matrix(seed: int) -> list[Round]:
    """Every victim at every boundary that makes a difference for it, and in the middle of the bulk copy.

    Servers other than Temporal see no difference between the end of a step and the begin of the next one.
    """
    both = [(step, edge) for step in FORWARD + BACK for edge in Edge] + [("pre_copy", DURING)]
    begins = [(step, Edge.BEFORE) for step in FORWARD + BACK] + [("complete", Edge.AFTER), ("pre_copy", DURING)]
    late = [(step, Edge.BEFORE) for step in FORWARD] + [("pre_copy", Edge.AFTER), ("pre_copy", DURING)]
    frozen = [("pre_copy", DURING), ("prepare", Edge.BEFORE), ("copy_changes", Edge.BEFORE), ("verify", Edge.BEFORE)]
    link = [("pre_copy", DURING), ("copy_changes", Edge.BEFORE)]
    moments = {
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
    return [Round(victim, step, str(instant), seed) for victim, hits in moments.items() for step, instant in hits]


def sample(seed: int) -> list[Round]:
    """Eight rounds: each server, each of the four phases, a worker that comes back too late, and both links."""
    return [
        Round(Victim.WORKER, "copy_changes", Edge.AFTER, seed),
        Round(Victim.TEMPORAL, "verify", Edge.BEFORE, seed),
        Round(Victim.BROKER, "prepare", Edge.BEFORE, seed),
        Round(Victim.ZOOKEEPER, "pre_copy", DURING, seed),
        Round(Victim.OXIA, "copy_changes", Edge.BEFORE, seed),
        Round(Victim.ZOMBIE, "pre_copy", Edge.BEFORE, seed),
        Round(Victim.ZOOKEEPER_SILENT, "copy_changes", Edge.BEFORE, seed),
        Round(Victim.TEMPORAL_CUT, "pre_copy", DURING, seed),
    ]


def rounds(count: int | None, seed: int) -> list[Round]:
    """The sample, or the first `count` of the matrix and then of random rounds."""
    if count is None:
        return sample(seed)
    return list(itertools.islice(itertools.chain(matrix(seed), _random_rounds(seed)), count))


def _random_rounds(seed: int) -> itertools.chain[Round]:
    return itertools.chain.from_iterable([_random_round(number)] for number in itertools.count(seed + 1))


def _random_round(seed: int) -> Round:
    choice = random.Random(seed)
    victim = choice.choice(list(Victim))
    late = victim in (Victim.ZOMBIE, Victim.LOST_ATTEMPT)
    step = choice.choice(FORWARD if late else FORWARD + BACK)
    return Round(victim, step, choice.choice((*map(str, Edge), DURING)), seed)
