"""The local activity that reads change windows, so that the rules of time zones are part of the history.

These rules change: countries change their laws, and the package with the rules is updated. A workflow that computed
with them would decide otherwise in a replay.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import activity

from models.lifecycle.change_windows import ChangeWindows, WindowsReading


@activity.defn(name="lifecycle_read_change_windows")
async def read_change_windows(windows: ChangeWindows, at: datetime, needed: timedelta) -> WindowsReading:
    """Return whether change windows are open at a time, and when they open next.

    Args:
        windows: of a migration.
        at: the time.
        needed: how long a window must remain open.
    """
    return WindowsReading.of(windows, at, needed)
