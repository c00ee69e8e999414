"""How properties are tested here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No example fails because the machine is busy.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
