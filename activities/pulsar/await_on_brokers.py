"""Wait until every broker sees a change in its metadata store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from activities.lifecycle.context import ActivityContext
from clients.errors import StoreContention
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminUnreachable

LOOK_EVERY = 0.2
"""Seconds between two requests to a broker that must see a change."""
SEEN_WITHIN = 30.0
"""Seconds in which all brokers must see a change."""


def await_on_brokers(
    context: ActivityContext,
    brokers: Iterable[tuple[str, PulsarAdminReader]],
    lag_of: Callable[[PulsarAdminReader], str],
    *,
    silent: set[str] | None = None,
) -> None:
    """Wait until each broker sees a change; all brokers together have `SEEN_WITHIN` seconds.

    Args:
        context: of the activity.
        brokers: each with its address.
        lag_of: returns what a broker does not see yet, as a text after "the broker X"; empty once it sees the change.
        silent: collects brokers that do not answer, and are not waited for; None if each must answer.

    Raises:
        AdminUnreachable: a broker does not answer.
        StoreContention: a broker does not see the change in time.
    """
    deadline = context.deadline(SEEN_WITHIN)
    for url, admin in brokers:
        try:
            while lag := lag_of(admin):
                if deadline.passed:
                    raise StoreContention(f"the broker {url} {lag}")
                context.pause(LOOK_EVERY)
        except AdminUnreachable:
            if silent is None:
                raise
            silent.add(url)
