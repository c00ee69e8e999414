"""Input of operations on scalable topics, which Pulsar 5's own controllers carry out (PIP-468)."""

from __future__ import annotations

KIND = "scalable-operation"
