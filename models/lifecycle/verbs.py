"""The operator's verbs, and the arguments of updates of a running migration."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from models.base import Frozen, Result
from models.lifecycle.change_windows import ChangeWindows, WindowsReading
from models.lifecycle.fields import Bool, Duration, Time

MAX_REASON = 4_000
"""Most characters of a reason; notes show the first of them."""


class Verb(StrEnum):
    """Verbs that an operator can send to a running migration."""

    ROLLBACK = "rollback"
    CLEANUP = "cleanup"
    PAUSE = "pause"
    RESUME = "resume"
    PROCEED = "proceed"
    APPROVE = "approve"
    REJECT = "reject"


VERB_HELP = {
    Verb.ROLLBACK: "Undo a migration; refused after its point of no return.",
    Verb.CLEANUP: "Clean up the old side of a committed migration.",
    Verb.PAUSE: "Stop the running copy, and hold before the next step at which waiting is safe.",
    Verb.RESUME: "Continue after `pause`.",
    Verb.PROCEED: "Open the gate at which a migration waits.",
    Verb.APPROVE: "Agree to a step that another person has asked for.",
    Verb.REJECT: "Drop a step that another person has asked for.",
}
"""What each verb does, in one sentence."""


class VerbRequest(Frozen):
    """The argument of the `steer` update.

    Attributes:
        verb: of the operator.
        reason: for it.
        asked: `since` of the request that `approve` agrees to; it is refused if another request is open.
    """

    verb: Verb
    reason: str = Field(default="", max_length=MAX_REASON)
    asked: Time | None = Field(default=None, exclude_if=lambda asked: asked is None)


class ApprovalRequest(Result):
    """A step that one person has asked for, and that another person must approve.

    Attributes:
        verb: what `approve` applies.
        effect: what it does then.
        by: who asked.
        since: when.
        reason: why; empty if no reason was given.
    """

    verb: Verb
    effect: str
    by: str
    since: datetime
    reason: str = ""


class VerbResponse(Result):
    """The answer to a verb.

    Attributes:
        accepted: whether it takes effect.
        why: reason of a refusal, or what happens now.
        legal: verbs that are legal now.
    """

    verb: Verb
    accepted: bool
    why: str
    legal: tuple[Verb, ...]


class WindowChange(Frozen):
    """Argument of the update `change_window`: the remaining time of the window, from now on."""

    remaining: Duration = Field(ge=timedelta(0))


class Speed(Frozen):
    """Argument of the update `set_throttle`; None lifts the limit."""

    megabytes_per_second: float | None = Field(default=None, gt=0)


class HoldChange(Frozen):
    """Argument of the update `hold_before_cutover`: whether the migration must hold before its cut-over."""

    hold: Bool


class CutoverTime(Frozen):
    """Argument of the update `cutover_at`: earliest start of the cut-over; None for as soon as possible."""

    at: Time | None


class ChangeWindowsChange(Frozen):
    """Argument of the update `set_change_windows`: other change windows, and why; without fields for at any time."""

    windows: ChangeWindows
    reason: str = Field(min_length=1, max_length=MAX_REASON)


class ChangeWindowsAnswer(WindowsReading):
    """Answer of the update `set_change_windows`: when the windows open.

    Attributes:
        approved: the windows are used now; if not, another person must send the same update.
    """

    approved: bool = True


class WindowsRequest(Result):
    """Change windows that one person has asked for, and that another person must send, too.

    Attributes:
        windows: which allow more than those in use.
        by: who asked.
    """

    windows: ChangeWindows
    by: str
