"""Errors for servers that cannot be reached: in plain words and without waiting."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

from clients.errors import NoServer, StoreUnreachable
from clients.stores import Access, StoreAccess, open_cas_reader, open_reader
from models.store_url import parse_store_url

ACCESS = Access(StoreAccess(timeout=60))
UNKNOWN = "no-such-host.invalid"


@contextlib.contextmanager
def _another_server() -> Generator[str]:
    """Listen on a port with something that is not a store: a line of text, and the end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        connection.recv(4096)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        # Interrupts `accept`, which a close alone does not.
        listening.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _closed_port() -> Generator[int]:
    """Hold a port on which nothing listens, so that no other program can take it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("address", [f"zk:{UNKNOWN}:2181", f"oxia://{UNKNOWN}:6648"])
def test_unknown_hosts(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve is reported as such, for both stores."""
    look_up = socket.getaddrinfo

    def answered(host: Any, *arguments: Any, **named: Any) -> Any:
        # A machine without a name server gets no answer.
        if host == UNKNOWN:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return look_up(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answered)
    _refused(address, f"the name {UNKNOWN} does not resolve")


@pytest.mark.parametrize("scheme", ["zk:", "oxia://"])
def test_refused_ports(scheme: str) -> None:
    """A port on which no server listens is reported as such, for both stores."""
    with _closed_port() as port:
        _refused(f"{scheme}127.0.0.1:{port}", f"no server listens on port {port} of 127.0.0.1")


def test_another_server_on_the_port() -> None:
    """A port on which something else answers is not taken for ZooKeeper and is not waited for."""
    with _another_server() as address:
        _refused(f"zk:{address}", f"{address} does not speak ZooKeeper's protocol")


def test_one_of_several_is_enough_to_wait_for() -> None:
    """A server that is silent may still answer: no error says that it does not exist."""
    with _closed_port() as port, socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"zk:127.0.0.1:{port},127.0.0.1:{silent.getsockname()[1]}"
        access = Access(StoreAccess(timeout=1))
        with pytest.raises(StoreUnreachable) as refused, open_cas_reader(parse_store_url(address), access):
            pass
    assert not isinstance(refused.value, NoServer)


@pytest.mark.parametrize("scheme", ["zk:", "oxia://"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "does not resolve (Temporary"),
        (TimeoutError("timed out"), "no answer in time"),
    ],
)
def test_silence_is_not_the_lack_of_a_server(
    scheme: str, error: OSError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that does not answer, and a connection that takes too long, may be a matter of seconds."""

    def fail(*_: object, **__: object) -> None:
        raise error

    with _closed_port() as port:
        url = parse_store_url(f"{scheme}127.0.0.1:{port}")
        monkeypatch.setattr(socket, "create_connection", fail)
        with pytest.raises(StoreUnreachable) as silent, open_reader(url, ACCESS) as store:
            store.read([b"/"])
    assert not isinstance(silent.value, NoServer)
    assert said in str(silent.value)


def _refused(address: str, why: str) -> None:
    """Check that both clients of a store name the cause, long before their timeout."""
    url = parse_store_url(address)
    for open_store in (open_reader, open_cas_reader):
        begun = time.monotonic()
        with pytest.raises(NoServer) as refused, open_store(url, ACCESS) as store:
            store.read([b"/"]) if open_store is open_reader else store.get("/")  # pyright: ignore
        assert time.monotonic() - begun < ACCESS.common.timeout / 2
        assert why in str(refused.value)
        assert "check host and port" in str(refused.value)
        assert "\n" not in str(refused.value)
