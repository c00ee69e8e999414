"""What the watch of a batch tells of consumers that stay."""

from __future__ import annotations

import pytest

from activities.blue_green.drain import CLIENTS_WITHIN, are_too_many, why_attached, why_unread


def test_a_broker_that_hangs_is_told() -> None:
    """Consumers that read all, and are not sent away, are waited for; after a minute the cure is named."""
    assert why_attached("s", 1) == "subscription s has 0 messages left, and its consumers are not sent away"
    assert why_attached("s", CLIENTS_WITHIN).endswith("for 60 s. Its broker may hang: restart that broker")


def test_consumers_that_left_their_backlog_are_told() -> None:
    """Where a subscription had consumers before the flip, the cure is named."""
    idle = "subscription s has 7,000 messages left, and no consumer"
    assert why_unread("s", 7000, 0, "prod") == idle
    assert why_unread("s", 7000, 2, "prod") == f"{idle}; it had 2: restart them, with the address of prod"


@pytest.mark.parametrize(
    ("missing", "clients", "limit", "too_many"),
    [
        (0, 0, 0.0, False),
        (0, 5, 0.0, False),
        (1, 5, 0.0, True),
        (1, 5, 0.2, False),
        (2, 5, 0.2, True),
        (5, 5, 1.0, True),
    ],
)
def test_how_many_clients_may_be_missing(missing: int, clients: int, limit: float, too_many: bool) -> None:
    """More than the share that the input allows are too many, and so are all; none are never too many."""
    assert are_too_many(missing, clients, limit) is too_many
