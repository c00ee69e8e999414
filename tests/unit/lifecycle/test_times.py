"""Times that operators and signals may send."""

from __future__ import annotations

from datetime import UTC

import pytest
from pydantic import ValidationError

from models.lifecycle.change_windows import ChangeWindows
from models.lifecycle.status import ProgressReport
from models.lifecycle.verbs import CutoverTime

LAST = "9999-12-31T23:59:59-12:00"


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (CutoverTime, f'{{"at": "{LAST}"}}'),
        (CutoverTime, '{"at": "0001-01-01T00:00:00+12:00"}'),
        (ChangeWindows, f'{{"not_before": "{LAST}"}}'),
        (ProgressReport, f'{{"waiting": {{"kind": "store", "why": "x", "until": "{LAST}"}}}}'),
    ],
)
def test_times_at_the_ends_of_the_calendar_are_refused(model: type[CutoverTime], text: str) -> None:
    """A time that has no form in UTC would stop each task of the workflow that shows it."""
    with pytest.raises(ValidationError, match="write a time from 1970 to 9000"):
        model.model_validate_json(text)


@pytest.mark.parametrize("text", ["1970-01-01T00:00:00+14:00", "9000-12-31T23:59:59-12:00"])
def test_times_that_are_taken_have_a_form_in_utc(text: str) -> None:
    """The first and the last of them do too."""
    at = CutoverTime.model_validate({"at": text}).at
    assert at is not None
    assert at.astimezone(UTC) == at
