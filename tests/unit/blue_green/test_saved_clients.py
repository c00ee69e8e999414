"""Clients of the topics of a namespace, as they are saved in blue's metadata store."""

from __future__ import annotations

import json
import random
import zlib
from typing import cast

import pytest

from activities.blue_green.context import NamespaceGuard
from activities.blue_green.saved_clients import forget_clients, save_clients, saved_clients
from clients.errors import StoreContention, StoreProtocolError
from clients.pulsar.compression import LARGEST
from clients.pulsar.names import TopicName
from models.blue_green.claims import TopicClients, clients_record
from tests.support.clients.memory_store import MemoryStore

_NAMESPACE = "shop/orders"
_NUMBERS = random.Random(7)


class _Guard:
    """The right to change a namespace, which no other attempt has taken over."""

    namespace = _NAMESPACE

    def require(self) -> None:
        """Accept this attempt."""


class _DiedError(Exception):
    pass


GUARD = cast("NamespaceGuard", _Guard())


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a list of 40 topics take several nodes."""
    monkeypatch.setattr("activities.blue_green.saved_clients._CHUNK", 500)


def _clients(count: int) -> dict[TopicName, TopicClients]:
    """Return clients whose names cannot be packed well."""
    return {
        TopicName.parse(f"{_NAMESPACE}/topic-{number}"): TopicClients(producers=(f"{_NUMBERS.getrandbits(256):x}",))
        for number in range(count)
    }


def _named(clients: dict[TopicName, TopicClients]) -> dict[str, TopicClients]:
    return {str(topic): topic_clients for topic, topic_clients in clients.items()}


@pytest.mark.parametrize("counts", [(2, 40, 1), (40, 41, 42)])
def test_a_list_is_replaced_at_once(counts: tuple[int, ...]) -> None:
    """If a worker dies at any write, the stored list is the old one or the new one, even if it spans several nodes."""
    store = MemoryStore()
    before: dict[str, TopicClients] = {}
    for count in counts:
        clients, allowed = _clients(count), 0
        while True:
            writes = 0

            def die(limit: int = allowed) -> None:
                nonlocal writes
                if writes == limit:
                    raise _DiedError
                writes += 1

            store.before_write = die
            try:
                save_clients(store, GUARD, clients)
                break
            except _DiedError:
                assert saved_clients(store, _NAMESPACE) == before
            allowed += 1
        assert allowed == writes
        before = _named(clients)
        assert saved_clients(store, _NAMESPACE) == before
    store.before_write = lambda: None
    forget_clients(store, _NAMESPACE, lambda: None)
    assert store.nodes == {}


def test_a_late_attempt_changes_nothing() -> None:
    """A late attempt that passed the fence neither replaces nor deletes what a newer attempt has written."""
    store = MemoryStore()
    old, new = _clients(1), _clients(2)
    save_clients(store, GUARD, old)

    class Late(_Guard):
        """Freezes right after the fence was asked."""

        def require(self) -> None:
            save_clients(store, GUARD, new)

    late = Late()
    with pytest.raises(StoreContention):
        save_clients(store, cast("NamespaceGuard", late), old)
    with pytest.raises(StoreContention):
        forget_clients(store, _NAMESPACE, late.require)
    assert saved_clients(store, _NAMESPACE) == _named(new)


def test_a_list_of_an_earlier_version() -> None:
    """A list that an earlier version of this product wrote is read, and replaced."""
    store, clients = MemoryStore(), _clients(3)
    plain = {name: topic_clients.model_dump(exclude_defaults=True) for name, topic_clients in _named(clients).items()}
    packed = zlib.compress(json.dumps(plain).encode())
    for number, chunk in enumerate([packed[:50], packed[50:], b""]):
        store.create(clients_record(_NAMESPACE, str(number)), chunk)
    assert saved_clients(store, _NAMESPACE) == _named(clients)
    save_clients(store, GUARD, _clients(0))
    assert saved_clients(store, _NAMESPACE) == {}


@pytest.mark.parametrize(
    "value",
    [
        b"whole:" + zlib.compress(bytes(LARGEST + 1), 1),
        b"whole:" + zlib.compress(b"{}")[:-1],
        b"whole:" + zlib.compress(b"[1]"),
        b"whole:not packed",
        b"parts:a2000000000",
        b"parts:",
        b"parts:\xff1",
        b"other",
    ],
    ids=["bomb", "cut off", "another form", "not packed", "many parts", "no parts", "not UTF-8", "other"],
)
def test_a_list_that_another_client_changed(value: bytes) -> None:
    """A list that this project did not write is a typed error, and takes no more memory than the largest value."""
    store = MemoryStore()
    store.create(clients_record(_NAMESPACE, "0"), value)
    with pytest.raises(StoreProtocolError):
        saved_clients(store, _NAMESPACE)
