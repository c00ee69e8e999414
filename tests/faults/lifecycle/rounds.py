"""Rounds of faults: who is hit, how and when; the whole matrix, a fixed sample of it, and random ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self, TypeVar

from tests.support.lifecycle.gates import Edge, Gate

DURING = "during"
INSTANTS = (*map(str, Edge), DURING)

WORKER, ZOMBIE, LOST_ATTEMPT, TEMPORAL = "worker", "zombie", "lost-attempt", "temporal"
"""Victims that every migration has.

A zombie is a worker that is frozen with its executors, while another one takes over, and continues only when the
migration has ended. A lost attempt is the same within one worker: Temporal hears nothing of an activity for too long.
"""

FROZEN, FULL_DISK = "frozen-", "full-disk-"
"""How a server is hit if it is not killed: its name follows. One whose disk is full can write no byte to a file."""
CUT, SILENT, SLOW = "-cut", "-silent", "-slow"
"""How the network between the worker and a server is hit, whose name precedes."""
AND = "+"
"""Joins two victims that are hit at the same moment."""

Span = tuple[float, float]


@dataclass(frozen=True)
class Round:
    """One fault in one migration; each migration has a kind of its own.

    Attributes:
        victim: who is hit; one of `victims`.
        step: the step at which that happens; one of `steps`.
        instant: `before` or `after` the step, or `during` it, some time after its begin.
        seed: decides how long that takes, and how long the victim stays away.
        victims: who can be hit.
        steps: at which steps; no two kinds share a name.
        down: how many seconds a victim stays away, by victim; `down_else` for others.
        into: the latest hit after a step's begin in seconds, by step; `into_else` for others.
        ensemble_only: victims that only an ensemble of ZooKeepers has.
    """

    victim: str
    step: str
    instant: str
    seed: int

    victims: ClassVar[type[StrEnum]]
    steps: ClassVar[tuple[str, ...]]
    down: ClassVar[dict[str, Span]] = {}
    down_else: ClassVar[Span] = (0.2, 4.0)
    into: ClassVar[dict[str, float]] = {}
    into_else: ClassVar[float] = 0.4

    ensemble_only: ClassVar[frozenset[str]] = frozenset()

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
        if step not in cls.steps or instant not in INSTANTS:
            raise ValueError(f"{text!r} names no step, or no instant of it")
        return cls(cls.victims(victim), step, instant, int(seed))

    @classmethod
    def knows(cls, text: str) -> bool:
        """Return whether the text names a step of this kind."""
        return any(f"/{step}." in text for step in cls.steps)

    @property
    def victims_at_once(self) -> list[str]:
        """Return the victims; servers first, since a worker's recovery takes longer."""
        return sorted(str(self.victim).split(AND), key=lambda victim: victim == WORKER)

    @property
    def ensemble(self) -> bool:
        """Whether the cluster's metadata are on three ZooKeepers: a third of all rounds, and those that need it."""
        needed = not self.ensemble_only.isdisjoint(self.victims_at_once)
        return needed or self._random("place").randrange(3) == 0

    @property
    def gate(self) -> Gate:
        """Point where the step is held, so that the victim can be hit."""
        return Gate(self.step, Edge.AFTER if self.instant == Edge.AFTER else Edge.BEFORE)

    @property
    def late(self) -> bool:
        """Whether an attempt continues when the migration has ended."""
        return self.victim in (ZOMBIE, LOST_ATTEMPT)

    @property
    def into_step(self) -> float:
        """Seconds between the release of the step and the hit."""
        longest = self.into.get(self.step, self.into_else)
        return self._random("into").uniform(0, longest) if self.instant == DURING else 0.0

    @property
    def seconds_down(self) -> float:
        """How long the victim stays away."""
        return self._random("down").uniform(*self.down.get(self.victim, self.down_else))

    def _random(self, what: str) -> random.Random:
        return random.Random(f"{self} {what}")


RoundT = TypeVar("RoundT", bound=Round)


@dataclass(frozen=True)
class Choice:
    """Source of the rounds of one migration.

    Attributes:
        kind: the rounds' type.
        sample: a few rounds; `make test` runs the first ones, `make test-exhaustive` all.
        matrix: every victim at every boundary that makes a difference for it.
        at_random: a round that a seed decides.
        first: how many rounds of the sample `make test` runs.
    """

    kind: type[Round]
    sample: Callable[[int], Sequence[Round]]
    matrix: Callable[[int], Sequence[Round]]
    at_random: Callable[[int], Round]
    first: int = 1

    def rounds(self, count: int | None, seed: int) -> list[Round]:
        """Return the sample, or the first `count` rounds of the matrix and then random ones."""
        if count is None:
            return list(self.sample(seed))
        return list(itertools.islice(itertools.chain(self.matrix(seed), self._random_rounds(seed)), count))

    def replay(self, texts: Iterable[str]) -> list[Round]:
        """Return the rounds of a replay that belong to this migration."""
        return [self.kind.parse(text) for text in texts if self.kind.knows(text)]

    def _random_rounds(self, seed: int) -> Iterator[Round]:
        return (self.at_random(number) for number in itertools.count(seed + 1))


def every(kind: type[RoundT], moments: Mapping[str, Iterable[tuple[str, str]]], seed: int) -> list[RoundT]:
    """Return a round for each victim and each of its moments."""
    return [kind(victim, step, str(instant), seed) for victim, hits in moments.items() for step, instant in hits]
