"""Reasons why a server cannot be reached; clients only know that it did not answer."""

from __future__ import annotations

import socket

from clients.errors import NoServer, StoreUnreachable

_CONNECT_TIMEOUT = 2.0


def split_host(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`; the host may be an IPv6 address in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def explained(address: str, error: OSError) -> str:
    """Return why a connection to `host:port` failed."""
    host, port = split_host(address)
    if isinstance(error, socket.gaierror):
        return f"the name {host} does not resolve ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return f"the connection is refused: no server listens on port {port} of {host}"
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)


def is_permanent(error: OSError) -> bool:
    """Return whether an error is permanent, so that a longer wait does not help: no server is there."""
    if isinstance(error, socket.gaierror):
        # A name server that does not answer says nothing about the name.
        return error.errno != socket.EAI_AGAIN
    return isinstance(error, ConnectionRefusedError)


def open_link(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connection, with `timeout` seconds for each step.

    Raises:
        OSError: it cannot be made, also because no host can have this name.
    """
    try:
        return socket.create_connection((host, port), timeout=timeout)
    except UnicodeError:
        # A label is empty or too long; inputs, registrations and answers name hosts.
        raise socket.gaierror(socket.EAI_NONAME, "no host can have this name") from None


def obstacle(address: str) -> StoreUnreachable | None:
    """Return why no connection to `host:port` can be opened: `NoServer` if waiting does not help; None if it can."""
    try:
        open_link(*split_host(address), _CONNECT_TIMEOUT).close()
    except OSError as error:
        kind = NoServer if is_permanent(error) else StoreUnreachable
        return kind(explained(address, error), server=address)
    return None
