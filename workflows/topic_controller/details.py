"""The state of a topic's controller, as its query tells it and as Markdown for the Web UI's current details."""

from __future__ import annotations

from datetime import datetime

from models.topic_controller.input import ControllerInput
from models.topic_controller.state import ControllerState, ControllerStatus

_SHOWN = 16
_AWAY = 20


def status_of(input: ControllerInput, state: ControllerState) -> ControllerStatus:
    """The answer of the query `status`."""
    record = state.record
    return ControllerStatus(
        topic=input.target_name,
        epoch=record.epoch if record else -1,
        active=tuple(one.descriptor for one in record.active) if record else (),
        sealed=sum(1 for segment in record.segments.values() if not segment.active) if record else 0,
        subscriptions=state.subscriptions,
        consumers={name: len(one.consumers) for name, one in state.coordinators.items() if one.consumers},
        away=dict(_away(state)[:_AWAY]),
        changes=state.changes,
        retired=len(record.retired) if record else 0,
        pruning=state.pruning,
        auto_scale=_auto_scale(state),
        pending=record.pending if record else None,
        doing=state.doing,
        waiting=state.waiting,
        notes=tuple(state.notes),
    )


def render(status: ControllerStatus) -> str:
    """One screen: headline, segments, subscriptions, what is waited for, and the last notes."""
    doing = status.doing or "idle"
    lines = [f"**{doing}** · `{status.topic}` · epoch {status.epoch}", ""]
    lines += [f"**Active segments** ({len(status.active)}), and {status.sealed} sealed", ""]
    lines += [f"- `{one}`" for one in status.active[:_SHOWN]]
    lines += [f"- … and {len(status.active) - _SHOWN} more"] if len(status.active) > _SHOWN else []
    named = ", ".join(f"`{name}` ({kind})" for name, kind in sorted(status.subscriptions.items())[:_SHOWN])
    lines += ["", f"**Subscriptions** ({len(status.subscriptions)}): {named or 'none'}"]
    lines += ["", f"**Auto scale** {status.auto_scale}; {status.retired} pruned segments whose topics are still there"]
    if status.waiting:
        lines += ["", f"**Waits for** {status.waiting}"]
    if status.notes:
        lines += ["", "**Notes**", "", *(f"- {note}" for note in status.notes[-_SHOWN:])]
    return "\n".join(lines)


def _auto_scale(state: ControllerState) -> str:
    policy = state.scaling.policy
    if policy is None or not policy.enabled:
        return "off"
    return "dry run" if policy.dry_run else "on"


def _away(state: ControllerState) -> list[tuple[str, datetime]]:
    return sorted(
        (f"{name}/{consumer}", session.gone_since)
        for name, one in state.coordinators.items()
        for consumer, session in one.consumers.items()
        if session.gone_since is not None
    )
