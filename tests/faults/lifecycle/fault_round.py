"""One round of faults: a migration under traffic, the fault at its moment, and what must hold afterwards."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Protocol, Self

from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack
from tests.faults.lifecycle.environment import End, FaultEnvironment, Hits, end_state
from tests.faults.lifecycle.rounds import (
    CUT,
    FROZEN,
    FULL_DISK,
    LOST_ATTEMPT,
    SILENT,
    SLOW,
    TEMPORAL,
    WORKER,
    ZOMBIE,
    RoundT,
)
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.stacks import complaints

_DELAY = 0.2
"""Seconds by which a slow link holds back each chunk."""


class Traffic(Protocol):
    """Producers and consumers, and the audit of their delivery."""

    def wait_for_more(self, messages: int, limit: float = 240) -> None:
        """Wait until each producer has this many acknowledged messages more than now."""
        ...

    def stop(self, limit: float = 240) -> object:
        """End the sending, and wait, `limit` seconds at most, until everything that was acknowledged has arrived."""
        ...

    def faults(self) -> list[str]:
        """Return the faults of messages after the traffic was stopped."""
        ...


class FaultRound(ABC, Generic[RoundT]):
    """A migration of one cluster while traffic flows; a context manager.

    Args:
        environment: where migrations run.
        stack: the cluster.

    Attributes:
        traffic: producers and consumers during the round.
        end: how the migration ended, once it has.
    """

    def __init__(self, environment: FaultEnvironment, stack: Stack) -> None:
        self.environment, self.stack = environment, stack
        self.end: End | None = None
        self.hits = Hits(environment)
        self.opened = ExitStack()
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        self.environment.gates.clear()
        with self.opened as opened:
            opened.enter_context(self.hits)
            self.traffic = self.begin(opened)
            self.opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.opened.__exit__(kind, error, trace)

    def play(self, fault: RoundT, tell: Callable[[str], None]) -> None:
        """Migrate with a fault, check everything that is promised of an end, and tell of it in one line.

        Raises:
            AssertionError: a promise is broken.
        """
        try:
            self.run(fault)
            line = self._line(fault)
            self.check_round(fault)
        except BaseException as error:
            tell(f"{self._line(fault)}  BROKEN")
            # The stack is gone when the failure is reported.
            for title, lines in complaints(self.stack):
                error.add_note(f"{title}:\n{lines}")
            raise
        tell(line)

    # What each migration has of its own -----------------------------------------------------------------------------

    @abstractmethod
    def begin(self, opened: ExitStack) -> Traffic:
        """Prepare the cluster, and begin to watch it; returns the traffic, which flows."""

    @abstractmethod
    def run(self, fault: RoundT) -> None:
        """Migrate, hit the victim at its moment, and wait until the migration has ended and all servers are back."""

    @abstractmethod
    def server(self, victim: str, fault: RoundT) -> Server | None:
        """Return the server of this migration with this victim's name; None if the migration hits it in its own way."""

    @abstractmethod
    def link(self, victim: str) -> Proxy:
        """Return the link to a server of this migration."""

    def hit(self, victim: str, fault: RoundT) -> None:
        """Hit a victim in a way that only this migration has; the default does nothing."""

    @abstractmethod
    def check_round(self, fault: RoundT) -> None:
        """Check everything that is promised of an end.

        Raises:
            AssertionError: a promise is broken.
        """

    @abstractmethod
    def interruption(self) -> tuple[str, float | None]:
        """Return the interruption that users noticed, and its seconds; None if the migration did not get that far."""

    # What all share -------------------------------------------------------------------------------------------------

    def hit_at_gate(self, fault: RoundT) -> FaultyWorkerProcess | None:
        """Wait until the activity of the fault is held, and hit the victim; returns a worker that was frozen."""
        gates = self.environment.gates
        gates.wait_reached(fault.gate)
        if fault.into_step:
            gates.release(fault.gate)
            # The instant of the hit, which the round's seed decides: there is nothing to wait for.
            threading.Event().wait(fault.into_step)
        frozen = self._hit(fault)
        if not fault.late:
            gates.release(fault.gate)
        return frozen

    def resume_attempt(self, fault: RoundT, frozen: FaultyWorkerProcess | None) -> None:
        """Resume the attempt that Temporal gave up, and wait until it has ended."""
        self.environment.gates.release(fault.gate)
        if frozen:
            frozen.thaw()
        self.environment.gates.wait_ended(fault.gate)
        if frozen:
            frozen.close()

    def end_traffic(self) -> None:
        """End the traffic, and audit it.

        Raises:
            AssertionError: an acknowledged message is missing, or arrived after a later one of its key.
        """
        # A send that was not acknowledged in time is not a loss, so errors of producers do not count.
        self.traffic.stop()
        assert self.traffic.faults() == []

    def _hit(self, fault: RoundT) -> FaultyWorkerProcess | None:
        if fault.victim == ZOMBIE:
            frozen = self.hits.zombie()
            # Also where the round fails before it continues.
            self.opened.callback(frozen.close)
            return frozen
        for victim in fault.victims_at_once:
            if victim == WORKER:
                self.hits.worker()
            # A lost attempt falls silent at its gate.
            elif victim != LOST_ATTEMPT:
                self._hit_server(victim, fault)
        return None

    def _hit_server(self, victim: str, fault: RoundT) -> None:
        seconds = fault.seconds_down
        if victim.endswith((CUT, SILENT, SLOW)):
            self._hit_link(victim, seconds)
            return
        name = victim.removeprefix(FROZEN).removeprefix(FULL_DISK)
        server = self.environment.stack[TEMPORAL] if name == TEMPORAL else self.server(name, fault)
        if server is None:
            self.hit(victim, fault)
        elif victim.startswith(FROZEN):
            self.hits.freeze(server, seconds)
        elif victim.startswith(FULL_DISK):
            self.hits.fill_disk(server, seconds)
        else:
            self.hits.kill(server, seconds)

    def _hit_link(self, victim: str, seconds: float) -> None:
        place, _, _ = victim.rpartition("-")
        link = self.environment.link if place == TEMPORAL else self.link(place)
        if victim.endswith(CUT):
            link.cut()
        elif victim.endswith(SILENT):
            link.silence()
        else:
            link.slow_down(_DELAY)
        self.hits.later(seconds, link.heal)

    def _line(self, fault: RoundT) -> str:
        what, seconds = self.interruption()
        felt = "-" if seconds is None else f"{seconds:.1f}"
        took = time.monotonic() - self._begun
        return f"{fault!s:<44} {end_state(self.end):<24} {what} {felt:>6} s, took {took:5.1f} s"
