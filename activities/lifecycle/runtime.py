"""What the steps share in one worker process: settings, the Spark session, and the watches that are open."""

from __future__ import annotations

from temporalio.client import Client

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.source_watch import Watches
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access
from clients.tls import bookies_tls
from models.lifecycle.status import WaitKind, WaitReason
from models.settings import Settings
from spark.engine import SparkEngine


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
        self.watches = Watches()

    def start(self) -> None:
        """Start the Spark session, for which steps that need it wait; blocks for some seconds."""
        self.engine.start()

    def tag(self, run_id: str, context: ActivityContext) -> str:
        """A tag for Spark jobs of a step: they are stopped when it is cancelled, and it tells what they wait for."""
        tag = self.engine.new_tag(run_id)
        context.on_cancel(lambda: self.engine.cancel(tag))
        context.ask_wait(lambda: self._wait_for_spark(tag))
        return tag

    def _wait_for_spark(self, tag: str) -> WaitReason | None:
        why = self.engine.waits_for(tag)
        return WaitReason(kind=WaitKind.SPARK, why=why) if why else None

    def stop(self) -> None:
        """Close all watches and end the session."""
        self.watches.close()
        self.engine.stop()
