"""The state of a topic's controller as Markdown, for the Web UI's current details."""

from __future__ import annotations

from models.topic_controller.state import ControllerStatus

_SHOWN = 16


def render(status: ControllerStatus) -> str:
    """One screen: headline, segments, subscriptions, what is waited for, and the last notes."""
    doing = status.doing or "idle"
    lines = [f"**{doing}** · `{status.topic}` · epoch {status.epoch}", ""]
    lines += [f"**Active segments** ({len(status.active)}), and {status.sealed} sealed", ""]
    lines += [f"- `{one}`" for one in status.active[:_SHOWN]]
    lines += [f"- … and {len(status.active) - _SHOWN} more"] if len(status.active) > _SHOWN else []
    named = ", ".join(f"`{name}` ({kind})" for name, kind in sorted(status.subscriptions.items())[:_SHOWN])
    lines += ["", f"**Subscriptions** ({len(status.subscriptions)}): {named or 'none'}"]
    if status.waiting:
        lines += ["", f"**Waits for** {status.waiting}"]
    if status.notes:
        lines += ["", "**Notes**", "", *(f"- {note}" for note in status.notes[-_SHOWN:])]
    return "\n".join(lines)
