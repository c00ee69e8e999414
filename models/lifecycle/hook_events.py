"""Events of a migration for hooks, and what its workflow and its activities tell each other about hooks."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from models.base import Result
from models.lifecycle.status import HookStatus, Outcome, Undo, Waiting
from models.text import short_line

CHECK, DELIVER, ASK = "hooks_check", "hooks_deliver", "hooks_ask"
"""Names of the activities."""

MOST_EVENTS = 200
"""Number of the last events that wait for a hook that does not take them; earlier ones are lost for it."""

BATCH = 20
"""Most events of one activity; one while they fail, because each attempt stays in the history."""

HookName = Annotated[str, Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$", max_length=64)]
"""Lower case, as names of environment variables do not keep the case; `__` ends the name there."""


class EventType(StrEnum):
    """Types of events."""

    PHASE_STARTED = "phase.started"
    """A phase has started."""
    PHASE_ENDED = "phase.ended"
    """A phase has ended, with its outcome."""
    WAIT_STARTED = "wait.started"
    """The migration waits: for what, since when, until when, and what ends it."""
    WAIT_ENDED = "wait.ended"
    """It does not wait for this any more."""
    REQUEST_ACCEPTED = "request.accepted"
    """A verb or an update took effect."""
    REQUEST_REFUSED = "request.refused"
    """A verb or an update was refused."""
    ALARM_RAISED = "alarm.raised"
    """A danger of this migration."""
    MIGRATION_ENDED = "migration.ended"
    """The migration has ended, with its outcome."""
    CUTOVER_ASKED = "cutover.asked"
    """The question whether the migration may cut over, for hooks with a veto."""


class HookEvent(Result):
    """An event of a migration.

    Attributes:
        id: the same for each delivery; of the run and the number.
        number: of the event in its migration, from 1.
        type: of the event.
        at: when it happened.
        phase: the running phase; empty between phases.
        text: what happened, in one sentence.
        undo: how the running phase is undone.
        legal_verbs: verbs that were legal then.
        waiting: the wait that starts or ends.
        outcome: of the phase or the migration that ends.
        request: a verb, or the name of an update.
        by: who sent the request, as the sender names itself.
        reason: the sender's.
    """

    id: str
    number: int
    type: EventType
    at: datetime
    phase: str = ""
    text: str
    undo: Undo
    legal_verbs: tuple[str, ...] = ()
    waiting: Waiting | None = None
    outcome: Outcome | None = None
    request: str = ""
    by: str = ""
    reason: str = ""

    def cut(self) -> HookEvent:
        """Return the event with short texts: senders choose some of them."""
        names = ("text", "request", "by", "reason")
        return self.model_copy(update={name: short_line(getattr(self, name)) for name in names})


class Outbox(BaseModel):
    """Events that hooks have not taken yet; continue-as-new carries them.

    Attributes:
        last: number of the last event.
        events: the events that at least one hook has not taken.
        hooks: state of the deliveries to each hook.
        taken: number of the last event that each hook has taken, or lost.
    """

    last: int = 0
    events: list[HookEvent] = []
    hooks: dict[str, HookStatus] = {}
    taken: dict[str, int] = {}

    def add(self, event: HookEvent) -> None:
        """Add the next event; where too many wait, the first of them is lost for the hooks that have not taken it."""
        self.last = event.number
        self.events.append(event.cut())
        for lost in self.events[:-MOST_EVENTS]:
            for hook in self.hooks:
                if self.taken[hook] < lost.number:
                    self._take(hook, lost.number, lost=1)
        del self.events[:-MOST_EVENTS]
        self._count()

    def register(self, hooks: tuple[str, ...]) -> None:
        """Deliver to these hooks, from the first event that is kept on."""
        for hook in hooks:
            self.hooks.setdefault(hook, HookStatus(name=hook))
            self.taken.setdefault(hook, 0)

    def next_for(self, hook: str) -> tuple[HookEvent, ...]:
        """Return the next events of a hook."""
        waiting = tuple(event for event in self.events if event.number > self.taken[hook])
        return waiting[: 1 if self.hooks[hook].failing_since else BATCH]

    def delivered(self, hook: str, answer: Delivered, now: datetime) -> None:
        """Record the result of a delivery."""
        status = self.hooks[hook]
        failing = (status.failing_since or now) if answer.error else None
        self.hooks[hook] = status.model_copy(update={"failing_since": failing, "error": answer.error})
        self._take(hook, answer.taken)
        least = min(self.taken.values())
        self.events = [event for event in self.events if event.number > least]
        self._count()

    def _take(self, hook: str, number: int, *, lost: int = 0) -> None:
        self.taken[hook] = max(self.taken[hook], number)
        status = self.hooks[hook]
        self.hooks[hook] = status.model_copy(update={"lost": status.lost + lost})

    def _count(self) -> None:
        for hook, status in self.hooks.items():
            pending = sum(event.number > self.taken[hook] for event in self.events)
            self.hooks[hook] = status.model_copy(update={"pending": pending})


class EventSource(Result):
    """The migration that events are of.

    Attributes:
        namespace: of Temporal.
        workflow_id: of the migration.
        run_id: of its first run.
        kind: of migration.
        cluster: name of the Pulsar cluster.
        target: value of the search attribute `MigrationTarget`.
    """

    namespace: str
    workflow_id: str
    run_id: str
    kind: str
    cluster: str
    target: str


class Delivery(Result):
    """Argument of the activity that delivers events to one hook, the oldest first."""

    hook: str
    source: EventSource
    events: tuple[HookEvent, ...]


class Delivered(Result):
    """Result of a delivery.

    Attributes:
        taken: number of the last event that the hook has taken; 0 if it took none.
        error: why it did not take the next one, without addresses and answers, which may have secrets.
    """

    taken: int = 0
    error: str = ""


class HookCheck(Result):
    """Argument of the activity that checks whether a worker knows hooks."""

    hooks: tuple[str, ...]


class Checked(Result):
    """Result of a check: problems of hooks, each with its cure."""

    problems: tuple[str, ...] = ()


class Question(Result):
    """Argument of the activity that asks hooks with a veto whether the migration may cut over."""

    hooks: tuple[str, ...]
    source: EventSource
    event: HookEvent


class Veto(Result):
    """A hook's refusal of a cut-over.

    Attributes:
        hook: its name.
        why: its reason, or that it did not answer.
        ask_again: seconds until it may be asked again.
    """

    hook: str
    why: str
    ask_again: float = 60.0


class Vetoes(Result):
    """Answers of hooks: names of those that have been asked, and the vetoes."""

    asked: tuple[str, ...] = ()
    vetoes: tuple[Veto, ...] = ()

    @property
    def together(self) -> Veto | None:
        """The vetoes as one; None if there is none."""
        if len(self.vetoes) < 2:
            return next(iter(self.vetoes), None)
        return Veto(
            hook=", ".join(veto.hook for veto in self.vetoes),
            why="; ".join(f"{veto.hook}: {veto.why}" for veto in self.vetoes),
            ask_again=max(veto.ask_again for veto in self.vetoes),
        )
