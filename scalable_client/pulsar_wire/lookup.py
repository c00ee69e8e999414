"""Find the broker that owns a topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pulsar_wire import pulsar_api_pb2 as api
from pulsar_wire.access import Access, Address, addresses
from pulsar_wire.connection import Connection
from pulsar_wire.errors import ConnectionLost, TimedOut, Unsupported, refused

_HOPS = 20


class Owner(NamedTuple):
    """Address that clients of a topic must connect to.

    Attributes:
        address: the broker's, or that of the proxy in front of it.
        proxy_to: URL of the broker that the proxy must connect to; empty without a proxy.
    """

    address: Address
    proxy_to: str = ""


def look_up(
    connection: Connection, topic: str, access: Access, *, authoritative: bool = False, timeout: float | None = None
) -> api.CommandLookupTopicResponse:
    """Ask a broker which broker owns a topic; a topic without an owner gets one.

    Raises:
        Refused: the broker rejects the lookup.
        PulsarError: the broker does not answer.
    """
    what = f"looking up {topic}"
    request = api.CommandLookupTopic(
        topic=topic, authoritative=authoritative, advertised_listener_name=access.listener_name or None
    )
    answer = connection.ask(request, what, api.CommandLookupTopicResponse, timeout)
    if answer.response == api.CommandLookupTopicResponse.Failed:
        raise refused(answer.error, answer.message, what)
    return answer


def url_of(answer: api.CommandLookupTopicResponse, topic: str, *, secure: bool) -> str:
    """Return the broker URL of a lookup answer, with or without TLS.

    Raises:
        NoAddress: the answer has no such URL.
    """
    url = answer.brokerServiceUrlTls if secure else answer.brokerServiceUrl
    if not url:
        raise NoAddress(f"the owner of {topic} has no address {'with' if secure else 'without'} TLS")
    if secure and not url.startswith("pulsar+ssl://"):
        raise NoAddress(f"the owner of {topic} announces {url[:100]!r} as its address with TLS, which has none")
    return url


def find_owner(first: Owner, topic: str, access: Access, reach: Callable[[Owner], Connection]) -> Owner:
    """Follow lookup answers to the owner of a topic, within the operation timeout.

    Args:
        first: broker to ask first.
        topic: complete name.
        access: of the connections.
        reach: returns a connection; it may return the same one each time.

    Raises:
        PulsarError: the owner cannot be found or reached.
    """
    until = time.monotonic() + access.operation_timeout
    asked, authoritative = first, False
    for _ in range(_HOPS):
        remaining = until - time.monotonic()
        if remaining <= 0:
            raise TimedOut(f"looking up {topic}: not found within {access.operation_timeout:g} s")
        answer = look_up(reach(asked), topic, access, authoritative=authoritative, timeout=remaining)
        url = url_of(answer, topic, secure=first.address.secure)
        proxied = answer.proxy_through_service_url
        named = Owner(first.address, url) if proxied else Owner(addresses(url)[0])
        if answer.response == api.CommandLookupTopicResponse.Connect:
            return named
        asked, authoritative = named, answer.authoritative
    raise ConnectionLost(f"looking up {topic}: brokers redirected {_HOPS} times without naming the owner")


class NoAddress(Unsupported):
    """The owner of a topic has no address with, or without, TLS."""
