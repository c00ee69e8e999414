"""Requests to the broker that leads a topic: its controller (PIP-468)."""

from __future__ import annotations

from collections.abc import Callable

from activities.pulsar.registrations import BROKERS
from activities.scalable_topic.operations.context import Hand, Look
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.late_requests import change_or_never
from clients.pulsar.records.scalable_topics import controller_of

NOT_LEADER = "This broker is not the leader"
"""What a broker answers that does not lead a topic, also where the metadata store says that it does."""


def ask_leader(hand: Hand, change: Callable[[PulsarAdmin], object]) -> None:
    """Have the broker that leads the topic change it, or any broker where none leads it, which does so from then on.

    The request arrives soon after the look at the guard, or never.

    Raises:
        AdminError: it failed, or there was no answer; that proves nothing.
    """
    # One that does not lead sends the request on, and no second connection is opened for it.
    urls = leader_urls(hand) or list(hand.task.input.admin_urls)
    change_or_never(
        hand.task.runtime.admin_of(hand.task.input.credentials),
        urls,
        look=lambda admin: admin.scalable_topics.names(hand.name.namespace_path),
        fence=hand.guard.require,
        change=change,
    )


def leader_urls(look: Look) -> list[str]:
    """Addresses of the broker that leads the topic; none where no broker does, or it is gone."""
    leader = controller_of(look.store, look.name)
    node = look.store.get(f"{BROKERS.decode()}/{leader}") if leader else None
    access = look.task.runtime.admin_of(look.task.input.credentials)
    return registered_urls(node.value, access) if node else []


def zombie(broker: str) -> str:
    """Why a topic cannot be changed whose leader does not lead, and what to do about it."""
    return (
        f"the metadata store says that {broker} leads it, and that broker refuses to: it took part in an election "
        f"once, and does not know that it has won. Restart {broker}, and have nobody ask brokers for the statistics of "
        "scalable topics, which is how this comes about"
    )
