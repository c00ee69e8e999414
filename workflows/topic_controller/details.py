"""The status of a topic's controller, as the answer of its query and as Markdown for the Web UI's current details."""

from __future__ import annotations

from datetime import datetime

from models.text import code_span, escape_markdown
from models.topic_controller.input import ControllerInput
from models.topic_controller.state import ControllerState, ControllerStatus

_MAX_LINES = 16
_MAX_AWAY = 20


def status_of(input: ControllerInput, state: ControllerState) -> ControllerStatus:
    """Return the answer of the query `status`."""
    record = state.record
    return ControllerStatus(
        topic=input.target_name,
        epoch=record.epoch if record else -1,
        active=tuple(segment.descriptor for segment in record.active) if record else (),
        sealed=sum(1 for segment in record.segments.values() if not segment.active) if record else 0,
        subscriptions=state.subscriptions,
        consumers={
            name: len(coordinator.consumers)
            for name, coordinator in state.coordinators.items()
            if coordinator.consumers
        },
        away=dict(_away(state)[:_MAX_AWAY]),
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
    """Return one screen of Markdown: operation, segments, subscriptions, waits, and the last notes."""
    doing = status.doing or "idle"
    lines = [f"**{escape_markdown(doing)}** · {code_span(status.topic)} · epoch {status.epoch}", ""]
    lines += [f"**Active segments** ({len(status.active)}), and {status.sealed} sealed", ""]
    lines += [f"- {code_span(descriptor)}" for descriptor in status.active[:_MAX_LINES]]
    lines += [f"- … and {len(status.active) - _MAX_LINES} more"] if len(status.active) > _MAX_LINES else []
    named = ", ".join(f"{code_span(name)} ({kind})" for name, kind in sorted(status.subscriptions.items())[:_MAX_LINES])
    lines += ["", f"**Subscriptions** ({len(status.subscriptions)}): {named or 'none'}"]
    lines += ["", f"**Auto scale** {status.auto_scale}; {status.retired} pruned segments whose topics still exist"]
    if status.waiting:
        lines += ["", f"**Waits for** {escape_markdown(status.waiting)}"]
    if status.notes:
        lines += ["", "**Notes**", "", *(f"- {escape_markdown(note)}" for note in status.notes[-_MAX_LINES:])]
    return "\n".join(lines)


def _auto_scale(state: ControllerState) -> str:
    policy = state.scaling.policy
    if policy is None or not policy.enabled:
        return "off"
    return "dry run" if policy.dry_run else "on"


def _away(state: ControllerState) -> list[tuple[str, datetime]]:
    return sorted(
        (f"{name}/{consumer}", session.gone_since)
        for name, coordinator in state.coordinators.items()
        for consumer, session in coordinator.consumers.items()
        if session.gone_since is not None
    )
