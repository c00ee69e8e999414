"""Steps of the metadata store migration, called without Temporal and without Spark, on real stores."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from temporalio.client import Client

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runtime import Runtime
from activities.metadata_store.background_tasks import BackgroundTasks
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.source_watch import Watches
from clients.oxia.client import OxiaClient
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.metadata_store.input import MetadataStoreInput
from models.settings import Settings
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack
from tests.support.lifecycle.in_process import in_process
from tests.support.metadata_store import stores

ResultT = TypeVar("ResultT")

_CHROOTS = set[str]()
_STARTED = datetime(2026, 1, 1, tzinfo=UTC)


class Place:
    """A source, a target, usually in Oxia, and one process that carries out steps.

    Args:
        source: address of the source.
        target: address of the target.
        zookeeper: a session with the source, whose calls have no types.
    """

    def __init__(self, source: str, target: str, zookeeper: Any) -> None:
        self.source, self.target, self.zookeeper = source, target, zookeeper
        # Only notes to workflows go to Temporal, and there is no workflow.
        self.runtime = Runtime(Settings.model_validate({"metrics_address": ""}), cast("Client", None), "steps")
        self.runtime.engine = in_process()
        self._epoch = 0

    def task(self, *, run: int = 1, **more: object) -> MetadataStoreTask:
        """Return the task of a run's next activity."""
        self._epoch += 1
        input = MetadataStoreInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": "steps",
                # Places at the root hold those of other tests, below their chroots.
                "accept": (*stores.OTHER_ROOTS, *(f"path:/{name}" for name in _CHROOTS)),
                "source": self.source,
                "target": self.target,
                "concurrency": 2,
                **more,
            }
        )
        started = _STARTED + timedelta(seconds=run)
        execution = Execution(input=input, run_id=f"run-{run}", started=started, epoch=self._epoch)
        attempt = Attempt.of(execution, input.workflow_id, 1)
        return MetadataStoreTask(self.runtime, execution, attempt, ActivityContext())

    def run(self, step: Callable[..., ResultT], *arguments: object, run: int = 1, **more: object) -> ResultT:
        """Run one step to its end."""
        return step(self.task(run=run, **more), *arguments)

    def lose_the_watch(self) -> None:
        """Lose the watch, as a dying worker does."""
        self.runtime.shared(Watches).close()

    def set(self, path: str, times: int = 1) -> None:
        """Write to the source, as a broker does; each write raises the record's version by one."""
        self.zookeeper.ensure_path(path)
        for number in range(times):
            self.zookeeper.set(path, b"%d" % number)

    def service_writes(self, path: str, value: bytes = b"service") -> int:
        """Write to the target, as a broker does after the commit; returns the version that the server chose."""
        with self._oxia() as oxia:
            return oxia.put(path.encode(), value, None)

    def service_deletes(self, path: str) -> None:
        """Delete in the target, as a broker does after the commit."""
        with self._oxia() as oxia:
            stored = oxia.get(path.encode())
            assert stored is not None
            oxia.delete(path.encode(), stored.version)

    def copied(self) -> dict[str, tuple[bytes, int]]:
        """Return value and version of all records of the target."""
        return {path: (record.value, record.version) for path, record in stores.read_oxia(self.target).items()}

    def wanted(self) -> dict[str, tuple[bytes, int]]:
        """Return value and version of all records of the source."""
        return {path: (record.value, record.version) for path, record in stores.read_zookeeper(self.source).items()}

    def empty_target(self) -> None:
        """Delete what another test left."""
        with self._oxia() as oxia:
            for path, record in stores.read_oxia(self.target, without_coordinator=False).items():
                oxia.delete(path.encode(), record.version)

    def _oxia(self) -> OxiaClient:
        return OxiaClient(parse_store_url(self.target))


@contextmanager
def open_place(stack: Stack, name: str, paths: Iterable[str], zookeeper_target: str = "") -> Generator[Place]:
    """Open a source below a chroot of this name, or at the root, with some records, and an empty target.

    Args:
        stack: has the stores.
        name: of the chroot.
        paths: of the records.
        zookeeper_target: an unused address; the target is Oxia without one.
    """
    with stores.kazoo(stack.zk_url) as zookeeper:
        if name:
            _CHROOTS.add(name)
            zookeeper.ensure_path(f"/{name}")
            zookeeper.chroot = f"/{name}"
        place = Place(f"{stack.zk_url}/{name}".rstrip("/"), zookeeper_target or stack.oxia_url, zookeeper)
        if not zookeeper_target:
            place.empty_target()
        for path in paths:
            place.set(path)
        yield place
        place.lose_the_watch()
        place.runtime.shared(BackgroundTasks).close()


def highest(records: Iterable[tuple[bytes, int]]) -> int:
    """Return the highest version among records."""
    return max(version for _, version in records)
