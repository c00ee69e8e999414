"""Search for ports of a stack that answer clients without TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

from clients.bookkeeper import wire_v3
from clients.errors import StoreError
from pulsar_devstack.servers.configs import LOOPBACK
from pulsar_devstack.servers.probes import LIMIT, http_answers_ok, zookeeper_serves
from pulsar_devstack.servers.stack import Stack

# A frame with the command CONNECT of a client whose version is `x`.
_CONNECT = bytes.fromhex("0000000b00000007080212030a0178")


def plain_ports(stack: Stack) -> list[str]:
    """Return the ports that serve clients without TLS, as `server.role`."""
    probes: dict[str, Callable[[int], bool]] = {
        "zookeeper.client": zookeeper_serves,
        "bookie.client": _bookie_serves,
        "bookie.http": partial(_answers_ok, "/api/v1/bookie/is_ready"),
        "broker.client": _broker_serves,
        "broker.http": partial(_answers_ok, "/admin/v2/brokers/ready"),
    }
    ports = [
        (f"{server.name}.{role}", f"{server.kind.removeprefix('second-')}.{role}", port)
        for server in stack
        for role, port in server.ports.items()
    ]
    return [name for name, kind, port in ports if (serves := probes.get(kind)) and serves(port)]


def _answers_ok(path: str, port: int) -> bool:
    return http_answers_ok(f"http://{LOOPBACK}:{port}{path}")


def _bookie_serves(port: int) -> bool:
    """Return whether a bookie says how much space it has."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=LIMIT) as connection:
            wire_v3.read_space(wire_v3.exchange(connection, wire_v3.space_request(), "bookie"), "bookie")
    except (OSError, StoreError):
        return False
    return True


def _broker_serves(port: int) -> bool:
    """Return whether a broker accepts a connection; a refusal of a missing token would be an answer, too."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=LIMIT) as connection:
            connection.sendall(_CONNECT)
            # A frame starts with its size; an alert of TLS starts with 21.
            return connection.recv(1) == b"\0"
    except OSError:
        return False
