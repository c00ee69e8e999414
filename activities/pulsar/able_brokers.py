"""Checks of brokers after PRECHECK: days may have passed, and one may have been restarted with other settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.precheck import Findings
from activities.pulsar.registrations import Service
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import WaitKind

BROKERS_UNKNOWN = "BROKERS_UNKNOWN"
"""Code of the blocker for a broker that does not answer."""

# Seconds between two requests to a broker that does not answer.
_ASK_EVERY = 1.0


class AbleBrokers:
    """Checks each session of a broker once, whether it can take part in a migration.

    Args:
        context: reports the wait.
        running: returns the brokers that are registered now.
        ask: checks these brokers, and adds blockers.
        timeout: seconds that a broker may take to answer; it may be restarting.
    """

    def __init__(
        self,
        context: ActivityContext,
        running: Callable[[], Sequence[Service]],
        ask: Callable[[Sequence[Service], Findings], object],
        timeout: float,
    ) -> None:
        self._context = context
        self._running = running
        self._ask = ask
        self._deadline = context.deadline(timeout)
        self._asked: set[int] = set()

    def require(self) -> None:
        """Check the registered brokers whose sessions were not checked yet.

        Raises:
            ApplicationError: `ParticipantsNotReady` where a broker cannot take part, or does not answer in time.
        """
        while unasked := [broker for broker in self._running() if broker.owner not in self._asked]:
            findings = Findings()
            self._ask(unasked, findings)
            blockers = findings.blockers  # mutant: metadata-store/brokers-are-asked-once
            if not blockers:
                self._asked.update(broker.owner for broker in unasked)
                break
            named = "; ".join(map(str, blockers))
            # mutant: bookie-cluster/a-broker-in-a-restart-ends-the-switch
            if any(blocker.code != BROKERS_UNKNOWN for blocker in blockers) or self._deadline.passed:
                why = f"since PRECHECK brokers have changed: {named}"
                raise ApplicationError(why, type=FailureKind.NOT_READY, non_retryable=True)
            self._context.waiting_for(WaitKind.PARTICIPANTS, named)
            self._context.pause(_ASK_EVERY)
        self._context.clear_waiting()
