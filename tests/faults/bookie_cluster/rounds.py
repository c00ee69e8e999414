"""Rounds of faults in the bookie cluster migration."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tests.faults.lifecycle.rounds import (
    AND,
    DURING,
    FROZEN,
    FULL_DISK,
    INSTANTS,
    ZOMBIE,
    Choice,
    Round,
    Span,
    every,
)
from tests.support.lifecycle.gates import Edge, Gate

BACK = "back_"
"""Prefix of the names of those steps of a rollback that the switch itself has too."""


class Victim(StrEnum):
    """The server that is hit, and how.

    `crashed brokers` are killed instead of stopped, which leaves open ledgers of messages and cursors. A `rude broker`
    is started on the source while no broker may run. A bookie that is `gone`, or all of a cluster that are `full`, stay
    so until the status says what the switch waits for; with `rollback` the operator rolls the switch back then.
    """

    WORKER = "worker"
    ZOMBIE = "zombie"
    LOST_ATTEMPT = "lost-attempt"
    TEMPORAL = "temporal"
    ZOOKEEPER = "zookeeper"
    SOURCE_BOOKIE = "source-bookie"
    TARGET_BOOKIE = "target-bookie"
    GONE_SOURCE = "gone-source-bookie"
    GONE_TARGET = "gone-target-bookie"
    FULL_TARGET = "full-target"
    FULL_ROLLBACK = "full-target-rollback"
    CRASHED_BROKERS = "crashed-brokers"
    RUDE_BROKER = "rude-broker"
    LEADER = "leader"
    FROZEN_ZOOKEEPER = "frozen-zookeeper"
    FROZEN_LEADER = "frozen-leader"
    FROZEN_SOURCE = "frozen-source-bookie"
    FROZEN_TARGET = "frozen-target-bookie"
    FROZEN_TEMPORAL = "frozen-temporal"
    NO_DISK_ZOOKEEPER = "full-disk-zookeeper"
    NO_DISK_SOURCE = "full-disk-source-bookie"
    NO_DISK_TARGET = "full-disk-target-bookie"
    NO_DISK_TEMPORAL = "full-disk-temporal"
    TEMPORAL_CUT = "temporal-cut"
    TEMPORAL_SILENT = "temporal-silent"
    TEMPORAL_SLOW = "temporal-slow"
    TARGET_AND_WORKER = "target-bookie+worker"
    SOURCE_AND_TARGET = "source-bookie+target-bookie"
    ZOOKEEPER_AND_WORKER = "zookeeper+worker"
    LEADER_AND_WORKER = "leader+worker"
    TEMPORAL_AND_WORKER = "temporal+worker"

    @property
    def after_crash(self) -> bool:
        """Whether brokers are killed; a bookie that is missed then is needed to close their ledgers."""
        return self in (Victim.CRASHED_BROKERS, Victim.GONE_SOURCE)

    @property
    def ends_when_reported(self) -> bool:
        """Whether the fault lasts until the status reports it."""
        return self in (Victim.GONE_SOURCE, Victim.GONE_TARGET, Victim.FULL_TARGET, Victim.FULL_ROLLBACK)


_COPYING = ("build", "copy_tail")
_COPYING_BACK = tuple(f"{BACK}{step}" for step in _COPYING)
_FORWARD = (
    "register",
    "precheck",
    "advance_ids",
    "build",
    "stop_brokers",
    "check_ids",
    "copy_tail",
    "set_target",
    "start_brokers",
    "census",
    "flip_statuses",
    "delete_ledgers",
    "release",
)
_BACK = tuple(
    f"{BACK}{step}"
    for step in (
        "check_rollback",
        "build",
        "stop_brokers",
        "advance_ids",
        "check_ids",
        "copy_tail",
        "set_target",
        "start_brokers",
    )
)
READING = ("precheck", "check_ids", "census", f"{BACK}check_rollback", f"{BACK}check_ids")
"""Steps that change nothing: a late attempt can do no harm there."""
_OF_COPIES = (
    Victim.ZOOKEEPER,
    Victim.LEADER,
    Victim.SOURCE_BOOKIE,
    Victim.TARGET_BOOKIE,
    *(victim for victim in Victim if victim.startswith((FROZEN, FULL_DISK)) or AND in victim),
)
"""Victims that are hit where entries go from one side to the other, and brokers are directed."""
_AT_RANDOM = (Victim.WORKER, Victim.TEMPORAL, Victim.ZOMBIE, *_OF_COPIES)


@dataclass(frozen=True)
class SwitchRound(Round):
    """One fault in a switch by restart."""

    victim: Victim

    victims: ClassVar[type[StrEnum]] = Victim
    steps: ClassVar[tuple[str, ...]] = (*_FORWARD, *_BACK)
    # A bookie's session ends after ten seconds: it comes back before, or when it has been missed.
    down: ClassVar[dict[str, Span]] = {
        Victim.SOURCE_BOOKIE: (1.0, 14.0),
        Victim.TARGET_BOOKIE: (1.0, 14.0),
        **{victim: (2.0, 12.0) for victim in Victim if victim.startswith((FROZEN, FULL_DISK))},
        **dict.fromkeys((Victim.TEMPORAL_CUT, Victim.TEMPORAL_SILENT, Victim.TEMPORAL_SLOW), (3.0, 3.0)),
    }
    into: ClassVar[dict[str, float]] = {"build": 4.0, "copy_tail": 1.5}
    ensemble_only: ClassVar[frozenset[str]] = frozenset(
        name for victim in Victim for name in victim.split(AND) if "leader" in name
    )

    @property
    def gate(self) -> Gate:
        """Gate that holds the step; a step of a rollback has the name that it has in the switch itself."""
        return super().gate._replace(step=self.step.removeprefix(BACK))

    @property
    def rollback_on_failure(self) -> bool:
        """Whether the switch is rolled back in its window, once messages were written on the target."""
        return self.step in _BACK

    @property
    def rolled_back(self) -> bool:
        """Whether the switch ends on its source."""
        return self.rollback_on_failure or self.victim == Victim.FULL_ROLLBACK


def matrix(seed: int) -> list[SwitchRound]:
    """Return every victim at every step that makes a difference for it, and in the middle of the copies."""
    during = [(step, DURING) for step in _COPYING]
    both = [(step, edge) for step in SwitchRound.steps for edge in Edge] + during
    late = [(step, Edge.BEFORE) for step in SwitchRound.steps if step not in READING]
    bookie = [(step, Edge.BEFORE) for step in (*_COPYING, "set_target", *_COPYING_BACK)] + during
    moments: dict[str, Sequence[tuple[str, str]]] = {
        Victim.WORKER: both,
        Victim.TEMPORAL: both,
        Victim.ZOMBIE: late + during + [("delete_ledgers", DURING)],
        Victim.LOST_ATTEMPT: late,
        **dict.fromkeys(_OF_COPIES, bookie),
        **dict.fromkeys((Victim.TEMPORAL_CUT, Victim.TEMPORAL_SILENT, Victim.TEMPORAL_SLOW), during),
        Victim.GONE_SOURCE: [("copy_tail", Edge.BEFORE)],
        Victim.GONE_TARGET: [("build", Edge.BEFORE), ("copy_tail", Edge.BEFORE)],
        Victim.FULL_TARGET: [("build", Edge.BEFORE), ("copy_tail", Edge.BEFORE)],
        Victim.FULL_ROLLBACK: [("build", Edge.BEFORE), ("copy_tail", Edge.BEFORE)],
        Victim.CRASHED_BROKERS: [("stop_brokers", Edge.BEFORE), (f"{BACK}stop_brokers", Edge.BEFORE)],
        Victim.RUDE_BROKER: [("copy_tail", Edge.BEFORE), (f"{BACK}copy_tail", Edge.BEFORE)],
    }
    return every(SwitchRound, moments, seed)


def sample(seed: int) -> list[SwitchRound]:
    """Return two rounds: a late worker, and a worker with a bookie."""
    return [
        SwitchRound(Victim.ZOMBIE, "copy_tail", DURING, seed),
        SwitchRound(Victim.TARGET_AND_WORKER, "build", DURING, seed),
    ]


def at_random(seed: int) -> SwitchRound:
    """Return a round that the seed decides."""
    choice = random.Random(seed)
    victim = choice.choice(_AT_RANDOM)
    steps = SwitchRound.steps if victim in (Victim.WORKER, Victim.TEMPORAL) else (*_COPYING, *_COPYING_BACK)
    if victim == ZOMBIE:
        steps = [step for step in SwitchRound.steps if step not in READING]
    step = choice.choice(steps)
    return SwitchRound(victim, step, choice.choice(INSTANTS), seed)


ROUNDS = Choice(SwitchRound, sample, matrix, at_random)
