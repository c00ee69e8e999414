"""Keeps a running copy to what its workflow orders, and to the automatic throttle: it stops, and continues.

A pause by an operator and one by the throttle are the same: the copy is held, for a reason that its status shows. Held
means that no task gets a slot, and that writing tasks stop at their fence, as the claim tells them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import UnreadableOrders
from clients.closeable import Closeable
from clients.errors import FinalError, StoreError
from clients.load import NoReading, Source, Sources
from models.lifecycle.auto_throttle import AutoThrottle, CopyOrders
from models.lifecycle.status import RESUME_IT, WaitKind, WaitReason
from models.text import shown

_log = logging.getLogger(__name__)

# How often the workflow is asked; a pause takes effect that soon.
_ASK_EVERY = 2.0
# How often a held copy checks that no other attempt has taken over; its tasks may all have ended.
_CONFIRM_EVERY = 10.0
# Temporal asks a worker that has just died for some seconds, and does not answer until it asks another one.
_FIRST_QUESTIONS = 3
_AT_ONCE = 256
_NAMED = 3
# A redirect and a slow answer each take up to the time for a source; afterwards all that have not answered object.
_TIMES = 3


class Brakes(NamedTuple):
    """Functions that hold a copy.

    Attributes:
        hold: starts no more tasks.
        release: starts tasks again.
        claim_held: writes into the claim that this attempt's copy is held; raises if another attempt has taken over.
        claim_free: writes there that it may run.
        stop: ends the copy.
    """

    hold: Callable[[], None]
    release: Callable[[], None]
    claim_held: Callable[[], object]
    claim_free: Callable[[], object]
    stop: Callable[[], None]


class Throttle(Closeable):
    """The automatic throttle: looks at its sources from time to time.

    Args:
        wanted: its sources, with their limits.
        open_sources: connects to them.
    """

    def __init__(self, wanted: AutoThrottle, open_sources: Callable[[AutoThrottle], Sources]) -> None:
        self.wanted = wanted
        self._sources = open_sources(wanted)
        at_once = max(1, min(len(self._sources.all), _AT_ONCE))
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="throttle")
        self._asked: list[tuple[Source, Future[str]]] = []
        self._due = self._end = 0.0
        #: What the last look found; None before the first one.
        self._objections: list[str] | None = None

    def reason(self) -> WaitReason | None:
        """Return why the copy must wait, after a look if one is due; None if it may run."""
        if not (objecting := self.objections()):
            return None
        more = f"; and {len(objecting) - _NAMED} more" if len(objecting) > _NAMED else ""
        why = f"the automatic throttle: {'; '.join(objecting[:_NAMED])}{more}"
        return WaitReason(kind=WaitKind.AUTO_THROTTLE, why=why)

    def objections(self) -> list[str]:
        """Return why the copy must not run, one text for each source that objects.

        While slow sources answer, the last look counts, so that a pause need not wait for them.
        """
        now = time.monotonic()
        if not self._asked and now >= self._due:
            self._due = now + self.wanted.every.total_seconds()
            self._end = now + _TIMES * self.wanted.timeout.total_seconds()
            self._asked = [(source, self._pool.submit(_objection, source)) for source in self._sources.all]
        remaining = max(0.0, self._end - now)
        late = wait(
            [answer for _, answer in self._asked],
            timeout=remaining if self._objections is None else min(remaining, _ASK_EVERY),
        ).not_done
        if self._asked and (not late or time.monotonic() >= self._end):
            texts = [
                answer.result() if answer.done() else f"{source.name}: it does not answer in time"
                for source, answer in self._asked
            ]
            self._objections = [text for text in texts if text]
            # A source is for one thread at a time.
            self._asked = self._asked if late else []
        return self._objections or []

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._sources.close()


def _objection(source: Source) -> str:
    """Return why a source objects to the copy; empty if it does not. What is not known objects."""
    try:
        readings = source.read()
    except NoReading as error:
        return f"{source.name}: {error}"
    return "; ".join(f"{source.name}: {reading}" for reading in readings if reading.too_high)


class Pacer(Closeable):
    """Holds one copy while it must not run; a context manager, in a thread of its own.

    Args:
        ask: returns the orders of the workflow; None if it does not answer. It may raise `UnreadableOrders`.
        brakes: of the copy.
        context: of the activity; shows why the copy waits.
        open_sources: connects to the sources of the automatic throttle.
        orders: until the workflow answers.
    """

    def __init__(
        self,
        ask: Callable[[], CopyOrders | None],
        brakes: Brakes,
        context: ActivityContext,
        open_sources: Callable[[AutoThrottle], Sources],
        orders: CopyOrders,
    ) -> None:
        self._ask = ask
        self._brakes = brakes
        self._context = context
        self._open_sources = open_sources
        self._orders = orders
        self._throttle: Throttle | None = None
        # What the claim says; None while that is not known, after a write that failed.
        self._claimed: bool | None = False
        self._last_confirmed = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)
        #: Why this attempt must end; None while it may run.
        self.failure: Exception | None = None

    def start(self) -> None:
        """Look once, so that no task starts too early, and then again and again."""
        answers = (self._read_orders() for _ in range(_FIRST_QUESTIONS))
        self._orders = next(filter(None, answers), self._orders)
        self.check()
        self._thread.start()

    def close(self) -> None:
        """End, and let the copy's tasks run again; harmless when done twice."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._throttle is not None:
            self._throttle.close()
        self._brakes.release()
        self._context.held = None

    def finish(self) -> None:
        """End after the whole copy: a look that was under way must not hold the rest of its step.

        Raises:
            StoreError: the claim cannot be written.
        """
        self.close()
        if self._claimed is not False:
            self._brakes.claim_free()

    def check(self) -> None:
        """Ask for orders, look at the sources, and hold the copy or let it run.

        Raises:
            StoreError: another attempt has taken over.
        """
        self._orders = self._read_orders() or self._orders
        reason = self._reason()
        if reason is not None and (fault := self._context.orders_fault):
            reason = reason.model_copy(update={"why": f"{reason.why}; {fault}"})
        held = reason is not None
        if held != (self._context.held is not None):
            (self._brakes.hold if held else self._brakes.release)()
        self._context.held = reason
        if held != self._claimed or (held and time.monotonic() > self._last_confirmed + _CONFIRM_EVERY):
            self._claimed = None
            try:
                (self._brakes.claim_held if held else self._brakes.claim_free)()
            except FinalError:
                raise
            except StoreError as error:
                # The tasks that run find the store as it is. The next look tells them.
                _log.warning("the copy's claim cannot be written: %s", error)
                return
            self._claimed, self._last_confirmed = held, time.monotonic()

    def _read_orders(self) -> CopyOrders | None:
        """Return the orders of the workflow; None if there are no new ones, so that the last ones apply."""
        try:
            orders = self._ask()
        except UnreadableOrders as error:
            if not self._context.orders_fault:
                _log.warning("the last orders count: %s", error)
            self._context.orders_fault = f"the last orders count: {error}"
            return None
        if orders is not None:
            self._context.orders_fault = ""
        return orders

    def _reason(self) -> WaitReason | None:
        if (pause := self._orders.pause) is not None:
            return WaitReason(kind=WaitKind.PAUSE, why=str(pause), action=RESUME_IT)
        wanted = self._orders.throttle
        if self._throttle is not None and self._throttle.wanted != wanted:
            self._throttle.close()
            self._throttle = None
        if wanted is None:
            return None
        if self._throttle is None:
            try:
                self._throttle = Throttle(wanted, self._open_sources)
            except OSError as error:
                why = f"the automatic throttle: the files of the TLS settings cannot be used: {shown(str(error))}"
                return WaitReason(kind=WaitKind.AUTO_THROTTLE, why=why)
        return self._throttle.reason()

    def _run(self) -> None:
        while not self._ended.wait(_ASK_EVERY):
            try:
                self.check()
            except Exception as error:  # noqa: BLE001 - the step raises it
                # Without orders the copy may neither run nor wait: the next attempt asks again.
                self.failure = error
                self._brakes.stop()
                self._brakes.release()
                # The step may be between two jobs. Those that it starts now would ignore each order.
                while not self._ended.wait(_ASK_EVERY):
                    self._brakes.stop()
                return
