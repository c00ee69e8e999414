"""Dry run of a verb: what it would do, what it costs, and what it would end."""

from __future__ import annotations

from datetime import datetime

from models.base import Result
from models.lifecycle.change_windows import Opening
from models.lifecycle.policy import VerbState
from models.lifecycle.status import Status, Undo
from models.lifecycle.units import format_value
from models.lifecycle.verbs import Verb, VerbRequest


class VerbPreview(Result):
    """Dry run of a verb; nothing is done.

    Attributes:
        accepted: whether it would be accepted.
        effect: what would happen, or why it would be refused.
        ends: the phase, the wait and the timers that it would end.
        undo: how the step that it starts is undone afterwards; `none` for a step that cannot be undone.
        undo_cost: effect and cost of a rollback now; empty where a rollback is refused.
        two_persons: another person must approve it.
        openings: the next change windows, if `proceed` leads to a cut-over that waits for one.
        legal: verbs that are legal now.
    """

    verb: Verb
    accepted: bool
    effect: str
    ends: tuple[str, ...] = ()
    undo: Undo
    undo_cost: str = ""
    two_persons: bool = False
    openings: tuple[Opening, ...] = ()
    legal: tuple[Verb, ...]


def preview_of(
    verbs: VerbState, status: Status, request: VerbRequest, now: datetime, openings: tuple[Opening, ...] = ()
) -> VerbPreview:
    """Return what a verb would do now.

    Args:
        verbs: judge it.
        status: of the migration.
        request: a verb of the operator, and the request that an approval agrees to.
        now: the time.
        openings: of the change windows.
    """
    # A preview has no sender, and does not refuse for the lack of a name.
    verb = request.verb
    response = verbs.judge(verb, now, by="preview", asked=request.asked)
    return VerbPreview(
        verb=verb,
        accepted=response.accepted,
        effect=verbs.effect_of(verb) if response.accepted else response.why,
        ends=_ends(status, verb) if response.accepted else (),
        undo=verbs.undo_after(verb),
        undo_cost=status.undo_cost if Verb.ROLLBACK in response.legal else "",
        two_persons=verbs.needs_approval(verb),
        openings=() if status.cutover.begun or verb not in (Verb.PROCEED, Verb.APPROVE) else openings,
        legal=response.legal,
    )


def _ends(status: Status, verb: Verb) -> tuple[str, ...]:
    ends: list[str] = []
    if verb is Verb.ROLLBACK:
        ends.append(f"phase {status.phase}")
        ends += [f"{name}, which would end {format_value(at)}" for name, at in status.deadlines.items()]
    waiting = status.waiting
    if waiting and (verb in waiting.ends_on or verb is Verb.ROLLBACK):
        ends.append(f"the wait for {waiting.why}, since {format_value(waiting.since)}")
    if status.request:
        ends.append(f"the request for {status.request.verb} of {status.request.by}")
    return tuple(ends)
