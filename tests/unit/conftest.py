"""How properties are tested here, and what tests do not share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from models import redaction

# No example fails because the machine is busy.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def _forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test hides words that were secrets of another one."""
    monkeypatch.setattr(redaction, "REDACTOR", redaction.Redactor())
