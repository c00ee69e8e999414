"""How properties are tested here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No example fails because the machine is busy. Half as many examples as usual: each run tries others, and half of the
# processor's time of all unit tests went into them.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.load_profile("unhurried")
