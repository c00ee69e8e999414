"""What the steps share in one worker process: settings, the Spark session, and the watches that are open."""

from __future__ import annotations

from dataclasses import dataclass, field

from temporalio.client import Client

from clients.equivalence import is_coordination
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access
from clients.tls import bookies_tls
from clients.zookeeper.watch import ChangeFeed
from models.settings import Settings
from spark.engine import SparkEngine


@dataclass
class SourceWatch:
    """What this process knows of a running migration's source; lost with the process, and then found anew by a scan.

    Attributes:
        feed: the changes since it was started; None before that.
        missed: why changes before that have to be found by a scan; empty if none have.
        ephemerals: paths of the source's ephemerals, as the full compare saw them.
        unsettled: changed paths that are not yet known to be equal in the target.
        compared: records compared while writes were blocked.
    """

    feed: ChangeFeed | None = None
    missed: str = "this worker did not watch the source from the begin"
    ephemerals: set[bytes] = field(default_factory=set[bytes])
    dirty_paths: set[bytes] = field(default_factory=set[bytes])
    compared: int = 0

    def gap(self) -> str:
        """Why changes may have been missed; empty if none was."""
        return self.missed or (self.feed.gap if self.feed else None) or ""

    def restart(self, feed: ChangeFeed, missed: str) -> int:
        """Go on with a new feed; returns the zxid since which it tells all changes."""
        self.close()
        self.feed, self.missed = feed, missed
        return feed.start()

    def collect(self, timeout: float) -> set[bytes]:
        """Take over every change that was committed before this call; returns all that is unsettled."""
        if self.feed is not None and not self.feed.gap:
            self.dirty_paths.update(path for path in self.feed.drain(timeout) if not is_coordination(path))
        return self.dirty_paths

    def close(self) -> None:
        """End the watch."""
        if self.feed is not None:
            self.feed.close()


class Runtime:
    """One for each worker process.

    Args:
        settings: the process's settings.
        client: connection to Temporal, for notes to workflows.
        queue: the task queue that only this process serves.
    """

    def __init__(self, settings: Settings, client: Client, queue: str) -> None:
        self.settings = settings
        self.client = client
        self.queue = queue
        self.admin = AdminAccess.from_settings(settings)
        self.access = Access(settings.zookeeper_credentials, settings.store_timeout.total_seconds())
        self.engine = SparkEngine(
            settings.spark_master, driver_memory=settings.spark_driver_memory, conf=settings.spark_conf
        )
        self.bookie_tls = bookies_tls(settings)
        self.watches: dict[str, SourceWatch] = {}

    def start(self) -> None:
        """Start the Spark session; blocks for some seconds."""
        self.engine.start()

    def stop(self) -> None:
        """Close all watches and end the session."""
        for run_id in list(self.watches):
            self.forget(run_id)
        self.engine.stop()

    def forget(self, run_id: str) -> None:
        """Close the watch of a run; harmless where there is none."""
        watch = self.watches.pop(run_id, None)
        if watch is not None:
            watch.close()
