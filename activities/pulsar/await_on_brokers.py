"""Wait until every broker sees what was set in its metadata store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from activities.lifecycle.context import ActivityContext
from clients.errors import StoreContention
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminUnreachable

LOOK_EVERY = 0.2
"""Seconds between two requests to a broker that must see something."""
SEEN_WITHIN = 30.0
"""Seconds within which all brokers must see it."""


def await_on_brokers(
    context: ActivityContext,
    brokers: Iterable[tuple[str, PulsarAdminReader]],
    lag_of: Callable[[PulsarAdminReader], str],
    *,
    silent: set[str] | None = None,
) -> None:
    """Wait until each broker sees what was set; all of them together have half a minute.

    Args:
        context: of the activity.
        brokers: each with its address.
        lag_of: says what a broker does not see yet, to follow "the broker X"; empty where it sees it.
        silent: gets brokers that do not answer, which are not waited for then; None where each must answer.

    Raises:
        AdminUnreachable: a broker does not answer.
        StoreContention: one does not see it in time.
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
