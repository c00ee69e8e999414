"""Connect to the broker that owns a topic."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from clients.errors import NoServer, StoreUnreachable
from clients.pulsar.names import StoredTopic
from clients.pulsar.wire.access import Address, WireAccess, addresses
from clients.pulsar.wire.connection import Connection
from clients.pulsar.wire.errors import refused
from clients.pulsar.wire.frames import command
from clients.pulsar.wire.pulsar_api_pb2 import CommandLookupTopic, CommandLookupTopicResponse

ResultT = TypeVar("ResultT")

_HOPS = 20


def connect(url: str, topic: StoredTopic, access: WireAccess) -> Connection:
    """A connection to the broker that owns a topic; one without an owner gets one.

    Args:
        url: `pulsar://host:port[,host:port…]` or `pulsar+ssl://…` of brokers, or of a proxy.
        topic: whose owner.
        access: timeout, TLS and credentials.

    Raises:
        StoreError: nobody can be reached, or the broker refuses.
    """
    return _first(url, lambda address: _follow(address, topic, access))


def greet(url: str, access: WireAccess) -> None:
    """Connect to the first broker that can be reached, which looks at the credentials, and leave it.

    Arguments and errors are those of `connect`.
    """
    _first(url, lambda address: Connection(address, access)).close()


def named_owner(url: str, topic: StoredTopic, access: WireAccess) -> str:
    """The address of the broker that whoever answers first sends the clients of a topic to.

    Arguments and errors are those of `connect`.
    """

    def ask(address: Address) -> str:
        with closing(Connection(address, access)) as connection:
            answer = _look_up(connection, topic, authoritative=False)
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


def _follow(first: Address, topic: StoredTopic, access: WireAccess) -> Connection:
    address, authoritative, proxy_to = first, False, ""
    for _ in range(_HOPS):
        connection = Connection(address, access, proxy_to=proxy_to)
        try:
            answer = _look_up(connection, topic, authoritative=authoritative)
        except BaseException:
            connection.close()
            raise
        owner = answer.brokerServiceUrlTls if first.secure else answer.brokerServiceUrl
        if not owner:
            connection.close()
            raise NoServer(f"the broker of {topic} has no address {'with' if first.secure else 'without'} TLS")
        if answer.response == CommandLookupTopicResponse.Redirect:
            authoritative = answer.authoritative
        elif connection.server.rstrip("/") == owner.rstrip("/"):
            return connection
        else:
            connection.close()
            if answer.proxy_through_service_url:
                return Connection(first, access, proxy_to=owner)
            return Connection(addresses(owner)[0], access)
        connection.close()
        address = first if answer.proxy_through_service_url else addresses(owner)[0]
        proxy_to = owner if answer.proxy_through_service_url else ""
    raise StoreUnreachable(f"brokers send each other for {topic}, {_HOPS} times; try again", server=str(first))


def _look_up(connection: Connection, topic: StoredTopic, *, authoritative: bool) -> CommandLookupTopicResponse:
    number = connection.new_id()
    what = f"looking up {topic}"
    asked = CommandLookupTopic(topic=str(topic), request_id=number, authoritative=authoritative)
    answer = connection.ask(command(lookupTopic=asked), number, what).lookupTopicResponse
    if answer.response == CommandLookupTopicResponse.Failed:
        raise refused(what, answer.error, answer.message, connection.server)
    return answer
