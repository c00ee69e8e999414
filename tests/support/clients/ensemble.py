"""Three ZooKeepers of a stack, whose links to each other can be hurt: which one leads, and a follower that lags."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Self

from clients.errors import StoreError
from clients.zookeeper.coordination import four_letter
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack
from tests.support.clients.proxy import Proxy
from tests.support.waiting import wait_for

MEMBERS = (1, 2, 3)
_LEADER_LIMIT = 30.0


class Ensemble:
    """The ZooKeepers of one stack; a context manager that ends the links.

    Args:
        stack: with three ZooKeepers, which do not run yet: each is configured to reach the others through links.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._opened = ExitStack()
        self._links = {
            (member, other): Proxy(self._peer(other)) for member in MEMBERS for other in MEMBERS if member != other
        }
        for (server, other), link in self._links.items():
            self._opened.enter_context(link)
            election = stack[_name(other)].ports["election"]
            stack.reconfigure(_name(server), **{f"server.{other}": f"{link.address}:{election}"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def leader(self) -> Server:
        """Return the server that leads.

        Raises:
            AssertionError: none did in time.
        """
        return wait_for("a leader", self._leader, _LEADER_LIMIT)

    def follower(self) -> Server:
        """Return a server that follows the leader.

        Raises:
            AssertionError: none did in time.
        """
        leader = self.leader()

        def follows() -> Server | None:
            return next((server for server in self._servers() if server.name != leader.name and server.ready), None)

        return wait_for("a follower", follows, _LEADER_LIMIT)

    @contextmanager
    def lagging(self, follower: Server, seconds: float) -> Generator[None]:
        """Cut a follower off its leader within the context; it catches up some seconds after the end.

        It continues serving its clients, as long as the time is shorter than the ensemble's `syncLimit`, ten seconds.
        """
        links = [link for (server, _), link in self._links.items() if _name(server) == follower.name]
        for link in links:
            link.silence()
        try:
            yield
        finally:
            threading.Timer(seconds, lambda: [link.heal() for link in links]).start()

    def link(self, follower: Server) -> Proxy:
        """Return the link between a follower and the leader."""
        numbers = {_name(number): number for number in MEMBERS}
        return self._links[numbers[follower.name], numbers[self.leader().name]]

    def url(self, *servers: Server) -> StoreUrl:
        """Return the address of the store, of these servers alone."""
        return parse_store_url(f"zk:{','.join(server.address for server in servers)}{self._stack.state.spec.zk_chroot}")

    def _servers(self) -> list[Server]:
        return [self._stack[_name(number)] for number in MEMBERS]

    def _peer(self, number: int) -> str:
        return f"127.0.0.1:{self._stack[_name(number)].ports['peer']}"

    def _leader(self) -> Server | None:
        return next((server for server in self._servers() if _leads(server)), None)


def _leads(server: Server) -> bool:
    try:
        return "Mode: leader" in (four_letter(server.address, "srvr", timeout=1) or "")
    except StoreError:
        return False


def _name(number: int) -> str:
    return f"zookeeper-{number}"
