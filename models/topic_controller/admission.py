"""Admission of consumers: limits of a topic's sessions, and the owners of sessions.

Sessions are part of the state that the controller passes to its next run, and of the inputs of its steps. Temporal
limits each of these to 2 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from models.topic_controller.sessions import Coordinator, Departures, Registrations, json_size

MAX_CONSUMERS_OF_SUBSCRIPTION = 2000
"""Most consumers of a subscription."""

MAX_CONSUMERS_OF_TOPIC = 4000
"""Most consumers of all subscriptions of a topic."""

MAX_NAME_BYTES = 256 << 10
"""Most bytes in JSON of the names of a topic's consumers, each counted together with the name of its subscription."""

MAX_SUBSCRIPTIONS_OF_TOPIC = 200
"""Most registered subscriptions of a topic; each with consumers keeps the ids of all segments."""

_OTHER_OWNER = (
    "another client registered this consumer, and its session belongs to that client; choose another consumer name, or "
    "end the session as an admin"
)


class Objection(NamedTuple):
    """Refusal of some consumers of a request.

    Attributes:
        reason: cause and cure.
        consumers: their names; the others of the request may be asked for again.
    """

    reason: str
    consumers: tuple[str, ...]


def registration_objection(
    coordinators: Mapping[str, Coordinator], joining: Sequence[Registrations], request: Registrations
) -> Objection | None:
    """Return why consumers cannot be registered; None if all can.

    A consumer with a session can always return to it.

    Args:
        coordinators: sessions, by subscription.
        joining: accepted registrations whose consumers have no session yet.
        request: the registration.
    """
    subscription = request.subscription
    owners = _owners(coordinators, joining, subscription)
    if foreign := _foreign(owners, request.consumers, request.owners):
        return Objection(_OTHER_OWNER, foreign)
    added = [name for name in dict.fromkeys(request.consumers) if name not in owners]
    names = {(key, name) for key, coordinator in coordinators.items() for name in coordinator.names}
    names |= {(other.subscription, name) for other in joining for name in other.consumers}
    free_names = max(0, MAX_NAME_BYTES - sum(map(_size, names)))
    size, fitting = 0, 0
    for name in added:
        size += _size((subscription, name))
        fitting += size <= free_names
    limits = (
        (MAX_CONSUMERS_OF_SUBSCRIPTION - len(owners), f"{subscription} has the most consumers of a subscription"),
        (MAX_CONSUMERS_OF_TOPIC - len(names), "the topic has the most consumers of a topic"),
        (fitting, "the names of the topic's consumers have the most bytes of a topic"),
    )
    sizes = (MAX_CONSUMERS_OF_SUBSCRIPTION, MAX_CONSUMERS_OF_TOPIC, MAX_NAME_BYTES)
    for (free, what), most in zip(limits, sizes, strict=True):
        if free < len(added):  # mutant: topic-controller/consumers-without-a-limit
            cure = "end sessions of consumers that are not needed, or register fewer consumers"
            return Objection(f"{what}, {most:,}; {cure}", tuple(added[max(0, free) :]))
    return None


def departure_objection(
    coordinators: Mapping[str, Coordinator], joining: Sequence[Registrations], request: Departures
) -> Objection | None:
    """Return why sessions cannot be ended; None if all can. Arguments: see `registration_objection`."""
    owners = _owners(coordinators, joining, request.subscription)
    foreign = _foreign(owners, request.consumers, request.owners)
    return Objection(_OTHER_OWNER, foreign) if foreign else None


def _owners(
    coordinators: Mapping[str, Coordinator], joining: Iterable[Registrations], subscription: str
) -> dict[str, str]:
    """Return the owners of a subscription's sessions, by name of the consumer; empty for none."""
    coordinator = coordinators.get(subscription, Coordinator())
    owners = {name: session.owner for name, session in coordinator.consumers.items()}
    for request in joining:
        if request.subscription == subscription:
            for name in request.consumers:
                owners[name] = owners.get(name) or request.owners.get(name, "")
    return owners


def _foreign(owners: Mapping[str, str], names: Iterable[str], asking: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in names if owners.get(name) and asking.get(name) and owners[name] != asking[name])


def _size(consumer: tuple[str, str]) -> int:
    return sum(map(json_size, consumer))
