"""The cluster of a metadata store migration: its plan, and its flag and stores as they look from outside."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import grpc
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from models.metadata_store.input import MetadataStoreInput
from models.migration_flag import BLOCKING_PHASES, Flag, FlagPhase
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.stack import Stack
from tests.support.metadata_store import stores
from tests.support.waiting import wait_for

CLUSTER = "faults"
_LOOK_EVERY = 0.03


def input(stack: Stack, **more: object) -> MetadataStoreInput:
    """Return a migration from ZooKeeper to Oxia, with short limits for what cannot continue."""
    limits = {"preparation_timeout": "PT40S", "blocked_deadline": "PT60S", "validation_window": "PT0S"}
    return MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "accept": stores.OTHER_ROOTS,
            "ignore_other_clusters": True,
            "source": stack.zk_url,
            "target": stack.oxia_url,
            "concurrency": 4,
            **limits,
            **more,
        }
    )


class FlagWatch(BackgroundThread):
    """Looks at the migration flag all the time, and at both stores as soon as it says COMPLETED; a context manager.

    Attributes:
        seen: each phase of the flag, with the time at which it was moved there, in seconds by ZooKeeper's clock.
        at_commit: both stores right after the commit.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__("flag", _LOOK_EVERY)
        self.seen: list[tuple[FlagPhase, float]] = []
        self.at_commit: tuple[stores.Tree, stores.Records] | None = None
        self._stack = stack
        self._version = -1

    @property
    def phase(self) -> FlagPhase:
        """The last value."""
        return self.seen[-1][0] if self.seen else FlagPhase.NOT_STARTED

    def blocked(self) -> list[float]:
        """Return the time of each block of writes, in seconds."""
        spans: list[float] = []
        begun: float | None = None
        for phase, at in self.seen:
            if phase in BLOCKING_PHASES:
                begun = begun or at
            elif begun is not None:
                spans.append(at - begun)
                begun = None
        return [*spans, time.time() - begun] if begun is not None else spans

    def work(self) -> None:
        """Look at the flag."""
        with stores.kazoo(self._stack.zk_url) as client:
            for _ in self.ticks():
                # A server that is down says nothing; what counts is what it says when it is back.
                with suppress(KazooException, KazooTimeoutError):
                    self._check(client)

    def _check(self, client: Any) -> None:
        try:
            value, stat = client.get_async(stores.FLAG).get(timeout=2)
        except NoNodeError:
            return
        if stat.version != self._version:
            flag = Flag.model_validate_json(value)
            self._version = stat.version
            if flag.phase is self.phase:
                return
            self.seen.append((flag.phase, stat.mtime / 1000))
            if flag.phase is FlagPhase.COMPLETED:
                self.at_commit = self._read_both()

    def _read_both(self) -> tuple[stores.Tree, stores.Records]:
        """Return the content of both stores; a server that is frozen or down now answers later."""

        def seen() -> tuple[stores.Tree, stores.Records] | None:
            with suppress(KazooException, KazooTimeoutError, grpc.RpcError):
                target = stores.read_oxia(self._stack.oxia_url)
                return stores.read_zookeeper(self._stack.zk_url), target
            return None

        return wait_for("both stores", seen, 60)
