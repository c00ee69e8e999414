"""Probes that check whether a server is ready; each has a limit and returns False on any failure."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import grpc
import httpx

from clients.bookkeeper import wire_v3
from clients.errors import StoreError

LIMIT = 1.0
"""Seconds that one question may take."""

Probe = Callable[[], bool]

# Oxia's public port has no health service.
_OXIA_ASSIGNMENTS = "/io.streamnative.oxia.proto.OxiaClient/GetShardAssignments"
_TEMPORAL_HEALTH = "/grpc.health.v1.Health/Check"
_TEMPORAL_FRONTEND = b"temporal.api.workflowservice.v1.WorkflowService"


def zookeeper_serves(port: int, certificate: Path | None = None) -> bool:
    """Return whether the server is part of a quorum; `ruok` would succeed before that.

    Args:
        port: its port.
        certificate: PEM file of our own certificate and its key, if the port has TLS.
    """
    try:
        with ExitStack() as opened:
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LIMIT))
            if certificate is not None:
                connection = opened.enter_context(_trusting(certificate).wrap_socket(connection))
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode: " in answer


def _trusting(certificate: Path | None = None) -> ssl.SSLContext:
    # Tests start servers with wrong certificates on purpose, and they are ready all the same.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def http_answers_ok(url: str, token: str = "") -> bool:
    """Return whether a GET is answered with success.

    Args:
        url: with HTTPS, any certificate will do.
        token: bearer token; empty for none.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, timeout=LIMIT, trust_env=False, verify=_trusting()).is_success
    except httpx.HTTPError:
        return False


def bookie_serves(port: int) -> bool:
    """Return whether a bookie with TLS offers it, which it does once it is registered."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
            wire_v3.read_answer(wire_v3.exchange(connection, wire_v3.start_tls_request(), "bookie"), "bookie")
    except (OSError, StoreError):
        return False
    return True


def oxia_serves(address: str, namespace: str = "default") -> bool:
    """Return whether the server knows the leaders of the namespace's shards."""
    name = namespace.encode()
    with grpc.insecure_channel(address) as channel:
        ask = cast("Callable[..., Iterator[bytes]]", channel.unary_stream(_OXIA_ASSIGNMENTS))
        try:
            return bool(next(ask(b"\n" + bytes([len(name)]) + name, timeout=LIMIT), b""))
        except grpc.RpcError:
            return False


def temporal_serves(address: str) -> bool:
    """Return whether the frontend reports SERVING."""
    request = b"\n" + bytes([len(_TEMPORAL_FRONTEND)]) + _TEMPORAL_FRONTEND
    with grpc.insecure_channel(address) as channel:
        try:
            return cast("bytes", channel.unary_unary(_TEMPORAL_HEALTH)(request, timeout=LIMIT)) == b"\x08\x01"
        except grpc.RpcError:
            return False
