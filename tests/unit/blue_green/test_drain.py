"""What the watch of a batch tells of consumers that stay."""

from __future__ import annotations

from activities.blue_green.drain import CLIENTS_WITHIN, why_attached


def test_a_broker_that_hangs_is_told() -> None:
    """Consumers that read all, and are not sent away, are waited for; after a minute the cure is named."""
    assert why_attached("s", 1) == "subscription s has 0 messages left, and its consumers are not sent away"
    assert why_attached("s", CLIENTS_WITHIN).endswith("for 60 s. Its broker may hang: restart that broker")
