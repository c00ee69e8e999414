"""Why a server cannot be talked to, in words: clients know only that it did not answer."""

from __future__ import annotations

import socket

_PATIENCE = 2.0


def split_host(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, where the host may be an IPv6 address in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def explained(address: str, error: OSError) -> str:
    """Why a connection to `host:port` failed."""
    host, port = split_host(address)
    if isinstance(error, socket.gaierror):
        return f"the name {host} does not resolve ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return f"the connection is refused: no server listens on port {port} of {host}"
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)


def is_settled(error: OSError) -> bool:
    """Whether waiting a little longer does not help: nobody is there who could be slow."""
    return isinstance(error, socket.gaierror | ConnectionRefusedError)


def obstacle(address: str) -> str:
    """Why no connection to `host:port` can be opened; empty if one can."""
    try:
        socket.create_connection(split_host(address), timeout=_PATIENCE).close()
    except OSError as error:
        return explained(address, error)
    return ""
