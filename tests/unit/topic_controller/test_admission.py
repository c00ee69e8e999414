"""Limits of a topic's consumers, and the owners of their sessions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from models.segments.segment import SubscriptionKind
from models.topic_controller.admission import (
    MAX_CONSUMERS_OF_SUBSCRIPTION,
    MAX_CONSUMERS_OF_TOPIC,
    MAX_NAME_BYTES,
    departure_objection,
    registration_objection,
)
from models.topic_controller.record import ControlledLayout
from models.topic_controller.sessions import (
    MAX_CONSUMERS_PER_UPDATE,
    AssignmentChanges,
    Coordinator,
    Departures,
    Registrations,
    SubscriptionChanges,
)
from models.topic_controller.state import MAX_UNCOMPACTED, CompactionState, ControllerState

_PAYLOAD_LIMIT = 2 << 20
_WIDE = "\u4e00"


def join(*names: str, subscription: str = "bill", owner: str = "") -> Registrations:
    """Return a registration."""
    owners = dict.fromkeys(names, owner) if owner else {}
    return Registrations(subscription=subscription, consumers=names, owners=owners)


def sessions(count: int, subscription: str = "bill", prefix: str = "c") -> dict[str, Coordinator]:
    """Return the sessions of so many consumers."""
    coordinator = Coordinator()
    coordinator.join(f"{prefix}{number}" for number in range(count))
    return {subscription: coordinator}


def test_a_full_subscription_takes_no_new_consumers() -> None:
    """New consumers of a full subscription are refused by name; those with a session return."""
    full = sessions(MAX_CONSUMERS_OF_SUBSCRIPTION)
    assert registration_objection(full, [], join("c0", "c1")) is None
    objection = registration_objection(full, [], join("c0", "new", "newer"))
    assert objection is not None
    assert objection.consumers == ("new", "newer")
    assert objection.reason.startswith("bill has the most consumers of a subscription, 2,000; end sessions")
    assert registration_objection(full, [], join("new", subscription="ship")) is None
    full["bill"].leave(["c5"])
    third = registration_objection(full, [], join("new", "newer"))
    assert third is not None
    assert third.consumers == ("newer",)


def test_registrations_under_way_count() -> None:
    """Consumers of accepted updates count before they have a session."""
    nearly = sessions(MAX_CONSUMERS_OF_SUBSCRIPTION - 2)
    assert registration_objection(nearly, [], join("a", "b")) is None
    objection = registration_objection(nearly, [join("x", "y")], join("a"))
    assert objection is not None
    assert objection.consumers == ("a",)
    assert registration_objection(nearly, [join("x", "y")], join("x")) is None


def test_all_subscriptions_share_the_limits_of_a_topic() -> None:
    """Consumers of all subscriptions count, and those whose end is not published yet."""
    half = MAX_CONSUMERS_OF_TOPIC // 2
    both = sessions(half) | sessions(half, "ship")
    both["ship"].leave([f"c{number}" for number in range(half)])
    objection = registration_objection(both, [], join("new", subscription="ship"))
    assert objection is not None
    assert objection.reason.startswith("the topic has the most consumers of a topic, 4,000")
    both["ship"].note_published({}, [*both["ship"].evicted])
    assert registration_objection(both, [], join("new", subscription="ship")) is None


def test_long_names_use_up_their_bytes_first() -> None:
    """Names are counted in bytes, each with its subscription; those that still fit are accepted."""
    first = [f"{number:03}{_WIDE * 190}" for number in range(MAX_NAME_BYTES // 574 - 3)]
    coordinator = Coordinator()
    coordinator.join(first)
    more = join(*(f"{number:04}{_WIDE * 189}" for number in range(9)), subscription="b")
    objection = registration_objection({"b": coordinator}, [], more)
    assert objection is not None
    assert objection.reason.startswith("the names of the topic's consumers have the most bytes of a topic, 262,144")
    assert objection.consumers == more.consumers[-len(objection.consumers) :]
    accepted = more.consumers[: -len(objection.consumers)]
    assert len(accepted) in (3, 4)
    assert registration_objection({"b": coordinator}, [], join(*accepted, subscription="b")) is None


def test_the_largest_state_can_be_passed_on() -> None:
    """With the most consumers, and as many that have ended twice before, the state fits into a payload."""
    record = ControlledLayout.created(1024, {}, 1)
    worst = 0
    # In JSON a quotation mark has two bytes.
    for length, letter in ((5, _WIDE), (40, _WIDE), (195, _WIDE), (60, '"')):
        coordinators: dict[str, Coordinator] = {}
        state = ControllerState(record=record, subscriptions={"b" * length: SubscriptionKind.STREAM})
        compaction = CompactionState()
        for generation in range(4):
            coordinators = {}
            for subscription in ("b" * length, "s" * length):
                coordinator = coordinators.setdefault(subscription, Coordinator())
                for batch in range(8):
                    names = [
                        f"{generation}{batch}{number:03}{letter * (length - 5)}"
                        for number in range(MAX_CONSUMERS_PER_UPDATE)
                    ]
                    request = Registrations(
                        subscription=subscription,
                        consumers=tuple(names),
                        instances=dict.fromkeys(names, "i" * 64),
                        owners=dict.fromkeys(names, f"jwt:{'o' * 132}"),
                    )
                    objection = registration_objection(coordinators, [], request)
                    refused = {*objection.consumers} if objection else set[str]()
                    accepted = [name for name in names if name not in refused]
                    coordinator.join(accepted, request.instances, request.owners)
                coordinator.note_disconnected(coordinator.consumers, datetime.now(UTC))
                for number, session in enumerate(coordinator.consumers.values()):
                    session.segments = (number,)
            state.coordinators, state.compaction = coordinators, compaction
            worst = max(worst, len(state.model_dump_json().encode()))
            changes = AssignmentChanges(
                generation=1,
                epoch=0,
                subscriptions=tuple(
                    SubscriptionChanges(subscription=name, ended=tuple(coordinator.consumers))
                    for name, coordinator in coordinators.items()
                ),
            )
            compaction = compaction.with_published(compaction.with_compaction(changes, {}))
    assert 512 << 10 < worst < _PAYLOAD_LIMIT


def test_a_session_belongs_to_its_first_client() -> None:
    """Another client can neither return to a session nor end it; its owner, and requests without one, can."""
    coordinator = Coordinator()
    coordinator.join(["a", "b"], owners={"a": "token:one"})
    held = {"bill": coordinator}
    others = registration_objection(held, [], join("a", "b", owner="token:two"))
    assert others is not None
    assert others.consumers == ("a",)
    assert "belongs to that client" in others.reason
    assert registration_objection(held, [], join("a", "b", owner="token:one")) is None
    assert registration_objection(held, [], join("a")) is None
    for owner, refused in (("token:two", ("a",)), ("token:one", None), ("", None)):
        leaves = Departures(subscription="bill", consumers=("a", "b"), owners=join("a", owner=owner).owners)
        objection = departure_objection(held, [], leaves)
        assert (objection.consumers if objection else None) == refused
    coordinator.join(["a", "b"], owners={"b": "token:two"})
    assert {name: session.owner for name, session in coordinator.consumers.items()} == {
        "a": "token:one",
        "b": "token:two",
    }


def test_a_registration_under_way_has_an_owner() -> None:
    """The first of two clients that register a name at once is its owner."""
    objection = registration_objection({}, [join("a", owner="token:one")], join("a", owner="token:two"))
    assert objection is not None
    assert objection.consumers == ("a",)


def test_long_names_of_ended_sessions_compact_the_topic() -> None:
    """Names of ended sessions do not wait for a thousand messages."""
    ended = tuple(f"{_WIDE * 190}{number}" for number in range(MAX_UNCOMPACTED // 4))
    changes = AssignmentChanges(
        generation=1, epoch=0, subscriptions=(SubscriptionChanges(subscription="bill", ended=ended),)
    )
    news = CompactionState().with_published(changes)
    assert news.messages < MAX_UNCOMPACTED
    assert news.with_compaction(changes, {}).compact


@pytest.mark.parametrize("owner", ["", "o" * 137, "\u4e00" * 46, '"' * 69])
def test_long_owners_are_refused(owner: str) -> None:
    """The state has an owner for each consumer, so its bytes in JSON are limited."""
    with pytest.raises(ValidationError, match="bytes in JSON; write 1 to 136"):
        Registrations(subscription="bill", consumers=("a",), owners={"a": owner})
    longest = "\u4e00" * 45
    assert Registrations(subscription="bill", consumers=("a",), owners={"a": longest}).owners == {"a": longest}
