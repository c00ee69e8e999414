"""How properties are tested here."""

from __future__ import annotations

from hypothesis import settings

# No example fails because the machine is busy.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
