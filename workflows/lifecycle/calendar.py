"""Change windows in a workflow: whether a change may start now, and when it may start next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from temporalio import workflow

from activities.lifecycle.change_windows import read_change_windows
from models.lifecycle.change_windows import ChangeWindows, Opening, WindowsReading

_TIMEOUT = timedelta(seconds=10)


class HasWindows(Protocol):
    """State with change windows, which one run of a workflow passes to the next.

    Attributes:
        change_windows: as the operator set them last; None before the first run has read its input.
    """

    change_windows: ChangeWindows | None


class Closed(NamedTuple):
    """Reason why no change may start.

    Attributes:
        why: in one sentence.
        until: when the windows open next; None if they do not open within a year, or if that is not read yet.
    """

    why: str
    until: datetime | None


_UNREAD = Closed("the change windows are being read", None)


class Calendar:
    """The change windows of a workflow, which an activity reads once for each opening.

    Args:
        state: keeps the windows.
        windows: of the input, for a new workflow.
        needed: how long a window must remain open when a change starts.
    """

    def __init__(self, state: HasWindows, windows: ChangeWindows, needed: timedelta = timedelta(0)) -> None:
        self._state = state
        state.change_windows = state.change_windows or windows
        self._needed = needed
        self._reading: WindowsReading | None = None

    @property
    def windows(self) -> ChangeWindows:
        """The windows, as the operator set them last."""
        assert self._state.change_windows is not None, "the constructor sets them"
        return self._state.change_windows

    def replace(self, windows: ChangeWindows) -> None:
        """Use other windows from now on."""
        self._state.change_windows, self._reading = windows, None

    async def read(self) -> WindowsReading:
        """Read the windows, unless the last reading still holds; return when they open."""
        while self._is_stale:
            windows = self.windows
            reading = await self.reading_of(windows)
            # An operator may have replaced them.
            if windows is self.windows:
                self._reading = reading
        return self._reading or WindowsReading()

    async def reading_of(self, windows: ChangeWindows) -> WindowsReading:
        """Return when windows open that are not in use yet."""
        return await workflow.execute_local_activity(
            read_change_windows,
            args=[windows, workflow.now(), self._needed],
            start_to_close_timeout=_TIMEOUT,
            summary="Read the change windows",
        )

    def openings(self, at: datetime) -> tuple[Opening, ...]:
        """Return the next openings, for a query: it decides nothing that a replay must decide again."""
        return () if self.windows.always else WindowsReading.of(self.windows, at, self._needed).openings

    def closed(self) -> Closed | None:
        """Return why no change may start; None if one may."""
        if self.windows.always:
            return None
        if self._is_stale or self._reading is None:
            return _UNREAD
        blackout = f" (blackout: {self._reading.blackout})" if self._reading.blackout else ""
        why = f"outside of the change windows{blackout}"
        if not self._reading.openings:
            return Closed(f"{why}, which do not open within a year", None)
        opening = self._reading.openings[0]
        if opening.opens <= workflow.now():
            return None
        return Closed(f"{why}; the next one opens {opening}", opening.opens)

    @property
    def _is_stale(self) -> bool:
        if self.windows.always:
            return False
        if self._reading is None:
            return True
        return any(opening.closes - self._needed <= workflow.now() for opening in self._reading.openings[:1])
