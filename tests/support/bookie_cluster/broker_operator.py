"""The operator of a switch by restart: stops and starts brokers when the status asks for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from temporalio.service import RPCError

from models.lifecycle.status import WaitKind, WaitReason
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import Stack
from tests.support.lifecycle.operator import Run

_SETTING = "bookkeeperMetadataServiceUri="
_LOOK_EVERY = 0.2


class BrokerOperator(BackgroundThread):
    """Obeys what a migration asks people for; a context manager.

    Args:
        stack: whose brokers they are.
        run: the migration.
        kill: stop brokers by SIGKILL, as a crash would.
        slow: leave brokers as they are until `obey` is called.
    """

    def __init__(self, stack: Stack, run: Run, *, kill: bool = False, slow: bool = False) -> None:
        super().__init__("broker-operator", _LOOK_EVERY)
        self.stack = stack
        self.asked: list[WaitKind] = []
        self._run = run
        self._kill = kill
        self._free = threading.Event()
        if not slow:
            self._free.set()

    def obey(self) -> None:
        """Follow the requests of the migration from now on."""
        self._free.set()

    def work(self) -> None:
        """Look at the status, and do what it asks for."""
        for _ in self.ticks():
            asked = self._what_is_asked()
            if asked is not None and asked.action:
                self._do(asked)

    def _what_is_asked(self) -> WaitReason | None:
        try:
            return self._run.status().waiting
        except (RPCError, TimeoutError):
            return None

    def _do(self, asked: WaitReason) -> None:
        brokers = [server for server in self.stack if server.kind == "broker"]
        if asked.kind is WaitKind.BROKERS_STOP and any(broker.alive for broker in brokers):
            self._note(asked.kind)
            _all(brokers, Server.kill if self._kill else Server.stop)
        elif asked.kind is WaitKind.BROKERS_START and not any(broker.alive for broker in brokers):
            self._note(asked.kind)
            self.stack.use_bookies(asked.action.partition(_SETTING)[2])
            _all(brokers, Server.start)

    def _note(self, asked: WaitKind) -> None:
        self.asked.append(asked)
        while not self._free.wait(_LOOK_EVERY):
            if self.ending:
                return


def _all(brokers: list[Server], verb: object) -> None:
    assert callable(verb)
    with ThreadPoolExecutor(max(1, len(brokers))) as pool:
        list(pool.map(verb, brokers))
