"""Connect to the broker that owns a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clients.errors import NoServer, StoreUnreachable
from clients.pulsar.names import StoredTopic
from clients.pulsar.wire.access import WireAccess
from clients.pulsar.wire.connection import BrokerConnection, store_errors
from pulsar_wire.access import Address, addresses
from pulsar_wire.connection import Connection
from pulsar_wire.lookup import Owner, find_owner, look_up

ResultT = TypeVar("ResultT")


def connect(url: str, topic: StoredTopic, access: WireAccess) -> BrokerConnection:
    """Return a connection to the broker that owns a topic; one without an owner gets one.

    Args:
        url: `pulsar://host:port[,host:port…]` or `pulsar+ssl://…` of brokers, or of a proxy.
        topic: whose owner.
        access: timeout, TLS and credentials.

    Raises:
        StoreError: no broker can be reached, or the broker refuses.
    """
    return _first(url, lambda address: _follow(address, topic, access))


def greet(url: str, access: WireAccess) -> None:
    """Connect to the first broker that can be reached, which checks the credentials, and leave it.

    Arguments and errors are those of `connect`.
    """
    _first(url, lambda address: BrokerConnection(address, access)).close()


def named_owner(url: str, topic: StoredTopic, access: WireAccess) -> str:
    """Return the address to which the first broker that answers sends the clients of a topic.

    Arguments and errors are those of `connect`.
    """

    def ask(address: Address) -> str:
        with (
            BrokerConnection(address, access) as connection,
            store_errors(f"looking up {topic}", connection.server),
        ):
            answer = look_up(connection.wire, str(topic), connection.access)
        return answer.brokerServiceUrlTls if address.secure else answer.brokerServiceUrl

    return _first(url, ask)


def _first(url: str, reach: Callable[[Address], ResultT]) -> ResultT:
    failure: StoreUnreachable | None = None
    for address in addresses(url):
        try:
            return reach(address)
        except StoreUnreachable as error:
            failure = failure or error
    raise failure or NoServer(f"{url} names no broker")


def _follow(first: Address, topic: StoredTopic, access: WireAccess) -> BrokerConnection:
    """Ask broker after broker, each over a connection that is closed unless it is the owner's."""
    connection = BrokerConnection(first, access)
    reached = Owner(first)

    def reach(owner: Owner) -> Connection:
        nonlocal connection, reached
        if owner != reached:
            connection.close()
            connection = BrokerConnection(owner.address, access, proxy_to=owner.proxy_to)
            reached = owner
        return connection.wire

    try:
        with store_errors(f"looking up {topic}", connection.server):
            reach(find_owner(reached, str(topic), connection.access, reach))
    except BaseException:
        connection.close()
        raise
    return connection
