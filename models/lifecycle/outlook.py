"""When a migration is expected to reach its next wait for a person, its window or its end: a range of times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from models.base import Result
from models.lifecycle.fields import Time
from models.lifecycle.status import Outcome, Progress, ProgressTask, Status, WaitKind
from models.lifecycle.units import Quantity, Unit

_TIME = Unit(Quantity.TIME)

_LOWEST, _HIGHEST = 0.5, 2.0
"""Range around an estimate of PRECHECK, as factors."""


class LegEnd(StrEnum):
    """Wait at the end of a leg, or in it."""

    NONE = "none"
    CUTOVER = "cut-over"
    """The hold before the cut-over follows, if the plan asks for it."""
    WINDOW = "window"
    """The leg is a window, whose end is a time."""


class Leg(NamedTuple):
    """Phases of a migration that follow each other without a wait.

    Attributes:
        phases: in their order.
        end: wait at the end of the leg.
        estimate: field of the precheck with the estimated seconds; empty for none.
        measured: tasks whose progress says how much of the whole leg is left; that of other tasks is one step of it.
        persons: waits for persons in the leg, which have no length; empty for none.
    """

    phases: tuple[str, ...]
    end: LegEnd = LegEnd.NONE
    estimate: str = ""
    measured: tuple[ProgressTask, ...] = ()
    persons: str = ""


class Outlook(Result):
    """Expected time until the next stop of a migration.

    Attributes:
        stop: the next wait for a person, window, or end.
        soonest_seconds: until then, without what is not measured yet; None if nothing is known.
        latest_seconds: the same; None if it has no upper end.
        not_measured: phases and steps that are not part of both times.
        persons: waits for persons on the way, which are not part of them either.
        basis: of both times.
        as_of: time of the estimate.
    """

    stop: str
    soonest_seconds: float | None = None
    latest_seconds: float | None = None
    not_measured: tuple[str, ...] = ()
    persons: tuple[str, ...] = ()
    basis: tuple[str, ...] = ()
    as_of: Time

    def __str__(self) -> str:
        """Return one line: the range, the stop, and what is not part of the range."""
        apart = [f"not measured yet: {', '.join(self.not_measured)}"] if self.not_measured else []
        apart += [f"without {', '.join(self.persons)}"] if self.persons else []
        apart += [f"by {', '.join(self.basis)}"] if self.basis else []
        more = f" ({'; '.join(apart)})" if apart else ""
        if self.soonest_seconds is None:
            return f"{self.stop}: {self.range}{more}"
        return f"{self.range} until {self.stop}{more}"

    @property
    def range(self) -> str:
        """The range in words: `12–25 min`, `at least 12 min`, `not known yet`."""
        if self.soonest_seconds is None:
            return "not known yet"
        soonest = _TIME.format(round(self.soonest_seconds))
        if self.latest_seconds is None:
            return f"at least {soonest}"
        latest = _TIME.format(round(self.latest_seconds))
        plus = " and more" if self.not_measured else ""
        if soonest == latest:
            return f"{soonest}{plus}"
        number, _, unit = soonest.partition(" ")
        same = latest.partition(" ")[2] == unit and " " not in unit
        return f"{number if same else f'{soonest} '}–{'' if same else ' '}{latest}{plus}"


@dataclass
class _Sum:
    """Sum of the parts of the way; `latest` is None once a part has no upper end."""

    soonest: float = 0.0
    latest: float | None = 0.0
    is_known: bool = False
    missing: list[str] = field(default_factory=list[str])
    persons: list[str] = field(default_factory=list[str])
    basis: list[str] = field(default_factory=list[str])

    def add(self, soonest: float, latest: float | None, basis: str) -> None:
        self.is_known = True
        self.soonest += soonest
        self.latest = None if latest is None or self.latest is None else self.latest + latest
        if basis not in self.basis:
            self.basis.append(basis)

    def not_before(self, seconds: float, basis: str) -> None:
        """Raise both ends to a time that is set."""
        if seconds >= self.soonest:
            self.soonest, self.is_known = seconds, True
            self.basis.append(basis)
        self.latest = None if self.latest is None else max(self.latest, seconds)


def outlook_of(status: Status[Any, Any], legs: Sequence[Leg], now: datetime) -> Outlook | None:
    """Return when a migration is expected to stop next; None if it has ended or waits for a person now.

    Args:
        status: with the newest progress.
        legs: of its kind, in their order.
        now: time of the estimate.
    """
    waiting = status.waiting
    if status.outcome is not Outcome.RUNNING or status.request or (waiting and waiting.needs_operator):
        return None
    way, ahead = _Sum(), _ahead(status.phase, legs)
    if waiting and waiting.until:
        seconds = max(0.0, (waiting.until - now).total_seconds())
        way.add(seconds, seconds, "the time that is set")
    if waiting and waiting.kind is WaitKind.WINDOW:
        stop = f"the end of {waiting.why}"
    else:
        # All of the running leg is done when a migration waits for the time of its cut-over.
        held = (WaitKind.HOLD, WaitKind.CHANGE_WINDOW)
        done = waiting is not None and waiting.kind in held and not status.cutover.begun
        stop = _walk(way, status, ahead[1:] if done else ahead, now)
    return Outlook(
        stop=stop,
        soonest_seconds=round(way.soonest, 1) if way.is_known else None,
        latest_seconds=None if way.latest is None or not way.is_known else round(way.latest, 1),
        not_measured=tuple(way.missing),
        persons=tuple(way.persons),
        basis=tuple(way.basis),
        as_of=now,
    )


def _ahead(phase: str, legs: Sequence[Leg]) -> list[Leg]:
    """Return the running leg and those after it; a phase of a rollback is a leg of its own."""
    index = next((index for index, leg in enumerate(legs) if phase in leg.phases), None)
    return [Leg((phase,))] if index is None else [*legs[index:]]


def _walk(way: _Sum, status: Status[Any, Any], legs: Sequence[Leg], now: datetime) -> str:
    """Add the parts of the way up to the next stop, and return the stop."""
    begun = status.cutover.begun
    for leg in legs:
        running = status.phase in leg.phases
        if leg.end is LegEnd.WINDOW and not running:
            return f"the window {leg.phases[0]}"
        _add(way, status, leg, now if running else None)
        if status.last_phase in leg.phases:
            return f"the end of {status.last_phase}"
        if leg.end is LegEnd.WINDOW:
            return f"the end of {status.phase}"
        if leg.end is LegEnd.CUTOVER and not begun:
            if status.cutover.at and status.cutover.at > now:
                way.not_before((status.cutover.at - now).total_seconds(), "the time that is set for the cut-over")
            if status.cutover.window and status.cutover.window.opens > now:
                way.not_before((status.cutover.window.opens - now).total_seconds(), "the next change window")
            if status.cutover.hold:
                return "the hold before the cut-over"
    return "the end" if len(legs) != 1 else f"the end of {legs[0].phases[0]}"


def _add(way: _Sum, status: Status[Any, Any], leg: Leg, now: datetime | None) -> None:
    """Add what is left of a leg; `now` is None for one that has not started."""
    if leg.persons:
        way.persons.append(leg.persons)
    step = _step(status.progress, now) if now and status.progress else None
    if now and step and status.progress and status.progress.task in leg.measured:
        way.add(*step, "the slowest and fastest recent rate")
        return
    estimate = _estimate(status.facts, leg.estimate)
    elapsed = _elapsed(status, leg, now) if now else 0.0
    if estimate and elapsed < _HIGHEST * estimate:
        soonest, latest = max(0.0, _LOWEST * estimate - elapsed), _HIGHEST * estimate - elapsed
        if step:
            soonest, latest = max(soonest, step[0]), None if step[1] is None else max(latest, step[1])
        way.add(soonest, latest, "PRECHECK's estimate, from half to double")
        return
    if step and status.progress:
        way.add(*step, "the slowest and fastest recent rate")
        way.missing.append(f"the rest of {status.phase}")
        return
    phases = leg.phases[leg.phases.index(status.phase) + _ended(status) :] if now else leg.phases
    if status.last_phase in phases:
        phases = phases[: phases.index(status.last_phase) + 1]
    way.missing += phases


def _step(progress: Progress, now: datetime) -> tuple[float, float | None] | None:
    """Return the range of the time that the running step needs; None if it is not known, or the step is done."""
    if progress.fastest is None or not progress.total or progress.done >= progress.total:
        return None
    remaining, age = progress.total - progress.done, max(0.0, (now - progress.as_of).total_seconds())
    soonest, latest = (_seconds(remaining, rate) for rate in (progress.fastest, progress.slowest))
    if soonest is None:
        return None
    return max(0.0, soonest - age), None if latest is None else max(0.0, latest - age)


def _seconds(remaining: int, rate: float | None) -> float | None:
    """Return how long so many units take; None for longer than numbers reach: any client can report a rate."""
    seconds = remaining / rate if rate else math.inf
    return seconds if math.isfinite(seconds) else None


def _ended(status: Status[Any, Any]) -> bool:
    """Return whether the shown phase has ended, and the next one has not started yet."""
    return bool(status.history) and status.history[-1].ended is not None


def _elapsed(status: Status[Any, Any], leg: Leg, now: datetime) -> float:
    """Return the time since the last start of the leg."""
    started = next((entry.started for entry in reversed(status.history) if entry.phase == leg.phases[0]), now)
    return (now - started).total_seconds()


def _estimate(facts: Mapping[str, Any], name: str) -> float:
    """Return an estimate of PRECHECK in seconds; 0 for none."""
    precheck = facts.get("precheck")
    value = precheck.get(name) if isinstance(precheck, Mapping) and name else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return float(value) if isinstance(value, int | float) else 0.0  # pyright: ignore[reportUnknownArgumentType]
