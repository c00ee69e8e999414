"""Ledger ids of green, which must lie above those of blue.

A message's id begins with that of its ledger. Consumers of the C++ library, and of those built on it such as Python's,
that acknowledge cumulatively remember the last id that they acknowledged, also when they are sent to another cluster:
there they drop each message whose id is not above it, without a word. They get nothing until green's ids have passed
blue's (library 3.13, seen); a green cluster is new, and its ids are low. Brokers do not know how a client acknowledges.
Consumers of the Java library (4.0.8, 5.0.1) forget it when they are sent elsewhere (seen).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from activities.pulsar.ledger_ids import ledgers_of, next_ledger_id
from clients.bookkeeper.idgen import raise_generator
from clients.bookkeeper.oxia_idgen import raise_oxia_generator
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.names import TopicName
from clients.stores import Access
from clients.zookeeper.coordination import Coordination
from models.blue_green.input import BlueGreenInput

#: Ledgers that blue may still create until its last topic has moved.
_ROOM = 1 << 30


class LedgerIds(NamedTuple):
    """The ids that the next ledgers get."""

    blue: int
    green: int

    @property
    def enough(self) -> bool:
        """Whether the ids of green's next ledgers are above all that blue has, and will have."""
        return self.green > self.blue + _ROOM


def compare_ids(input: BlueGreenInput, of_blue: Access, of_green: Access) -> LedgerIds | None:
    """Return the next ids of both clusters; None if one does not keep its ledgers in `/ledgers` of its store."""
    blue, green = next_ledger_id(input.blue.store, of_blue), next_ledger_id(input.green.store, of_green)
    return None if blue is None or green is None else LedgerIds(blue, green)


def raise_ids(
    input: BlueGreenInput, of_blue: Access, of_green: Access, fence: Callable[[], object]
) -> LedgerIds | None:
    """Raise green's next id above blue's, and return both as `compare_ids` does; a second or late call is harmless.

    Brokers see it with their next ledger.

    Args:
        input: of the migration.
        of_blue: to its store.
        of_green: to its store.
        fence: called right before the change.
    """
    ids = compare_ids(input, of_blue, of_green)
    if ids is None or ids.enough:
        return ids
    store, above = input.green.store, ids.blue + _ROOM
    own = of_green.to(store)
    if store.scheme != "zk":
        fence()
        raised = raise_oxia_generator(store, above, access=own.oxia, timeout=own.timeout)
        return LedgerIds(ids.blue, raised.next_id)
    with Coordination(ledgers_of(store), access=own.zookeeper, timeout=own.timeout) as coordination:
        fence()
        return LedgerIds(ids.blue, raise_generator(coordination, above).next_id)


def renew_ledgers(
    admin: PulsarAdminReader,
    change_or_never: ChangeOrNever,
    namespaces: Iterable[str],
    ids: LedgerIds,
    fence: Callable[[], object],
) -> int:
    """Unload topics that green had before, to continue in ledgers with ids above blue's; return their number.

    Args:
        admin: green's admin interface.
        change_or_never: makes changes to green that must not arrive late.
        namespaces: that move; those that green does not have are passed over.
        ids: the next ids of both clusters.
        fence: called right before each change.
    """
    count = 0
    for namespace in namespaces:
        for topic in _topics(admin, namespace):
            ledgers = admin.topics.internal_info(topic).ledgers
            if ledgers and ledgers[-1].ledger_id < ids.blue:
                change_or_never(
                    connect=lambda admin, topic=topic: admin.topics.internal_info(topic),
                    fence=fence,
                    change=lambda admin, topic=topic: admin.topics.unload(topic),
                )
                count += 1
    return count


def _topics(admin: PulsarAdminReader, namespace: str) -> list[TopicName]:
    try:
        return [TopicName.parse(name) for name in admin.topics.names(namespace)]
    except AdminNotFound:
        return []
