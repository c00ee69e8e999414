"""The Spark session of a process: started once, before anything waits for it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from clients.errors import StoreUnreachable

if TYPE_CHECKING:
    from pyspark import RDD, Accumulator, SparkContext

    from spark.tally import Tally

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

# A JVM that breaks a connection because it dies needs a moment to be dead.
_DEATH_SECONDS = 0.5
# How often the driver looks whether a task has told an error.
_LOOK_SECONDS = 0.1
_SHIPPED = ("models", "clients", "spark")


class SparkEngine:
    """Runs functions over parts on executors, and stops them when asked.

    Args:
        master: `local[*]`, `spark://host:port`, `k8s://…` or `yarn`.
        driver_memory: heap of the driver's JVM.
        conf: further Spark settings.
    """

    def __init__(self, master: str, *, driver_memory: str = "512m", conf: dict[str, str] | None = None) -> None:
        self._master = master
        self._conf = {"spark.driver.memory": driver_memory, **_DEFAULTS, **(conf or {})}
        self._context: SparkContext | None = None
        self._tallies: dict[str, Accumulator[Tally]] = {}
        self._former: dict[str, str | None] = {}
        self._reviving = threading.Lock()

    def start(self) -> None:
        """Start the session and let every executor import the code; takes some seconds."""
        from pyspark import SparkConf, SparkContext

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        local = self._master.startswith("local")
        if local:
            root = str(Path(__file__).resolve().parent.parent)
            self._set_variable("SPARK_LOCAL_IP", "127.0.0.1")
            # Python workers of local mode import the code by this; other masters get it shipped.
            self._former.setdefault("PYTHONPATH", os.environ.get("PYTHONPATH"))
            self._set_variable("PYTHONPATH", os.pathsep.join(filter(None, (root, self._former["PYTHONPATH"]))))
        conf = SparkConf().setMaster(self._master).setAppName("pulsar-migrate").setAll(list(self._conf.items()))
        self._context = SparkContext(conf=conf)
        self._context.setLogLevel("ERROR")
        if not local:
            self._ship_code(self._context)
        self.run(list(range(self.parallelism)), _import_code, tag="warm-up")

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return self._running().defaultParallelism

    def run(self, items: Sequence[ItemT], task: Callable[[ItemT], ResultT], *, tag: str) -> list[ResultT]:
        """Run `task` for every item, spread over the executors; results in the order of the items.

        Args:
            items: plain data, one task each.
            task: a function that an executor can import, or a closure over plain data.
            tag: `cancel` with the same tag stops the run from another thread.

        Raises:
            StoreError: the first that a task raised, as soon as that task has ended; the others are stopped.
            Exception: Spark's error, where a task failed otherwise, or the run was cancelled.
        """
        if not items:
            return []
        from spark.tally import Tally, TallyParam, telling

        context = self._running()
        tally = self._tallies[tag] = context.accumulator(Tally(), TallyParam())
        try:
            results = self._collect(context, items, telling(task, tally, self._tries), tag, tally)
        except Exception as error:
            if _jvm_died():
                self._revive(context)
                # Worth another attempt: the JVM is new, and the jobs compare before they write.
                raise StoreUnreachable("the Spark driver's JVM died; it was started anew") from error
            # The task's own error, which says what to do, before Spark's text about it.
            _raise_first(tally)
            raise
        finally:
            self._tallies.pop(tag, None)
        _raise_first(tally)
        return results

    def counted(self, tag: str) -> int:
        """Records that the finished tasks of the run with this tag report; 0 where none runs."""
        tally = self._tallies.get(tag)
        return 0 if tally is None else tally.value.records

    def cancel(self, tag: str) -> None:
        """Stop the runs with this tag; harmless where there are none."""
        self._running().cancelJobsWithTag(tag)

    def stop(self) -> None:
        """End the session and its JVM."""
        if self._context is not None:
            self._context.stop()
            self._context = None
        # Programs that this process starts later are not Spark's.
        for name, value in self._former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._former.clear()

    def new_tag(self, name: str) -> str:
        """A tag that no other run has."""
        return f"{name}-{uuid.uuid4().hex[:8]}"

    def _set_variable(self, name: str, value: str) -> None:
        self._former.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    @property
    def _tries(self) -> int:
        """How often Spark runs a task that fails: in local mode the master says it."""
        if self._master.startswith("local"):
            found = re.fullmatch(r"local\[[^,]*,\s*(\d+)\]", self._master)
            return int(found[1]) if found else 1
        return int(self._conf["spark.task.maxFailures"])

    def _collect(
        self,
        context: SparkContext,
        items: Sequence[ItemT],
        run: Callable[[Iterable[ItemT]], Iterable[ResultT]],
        tag: str,
        tally: Accumulator[Tally],
    ) -> list[ResultT]:
        # A tag of this run alone: others of the same migration share the caller's, and an error here must not stop
        # them.
        own = self.new_tag(tag)
        ended = threading.Event()
        watcher = threading.Thread(target=_stop_on_error, args=(context, own, tally, ended), name=f"watch {tag}")
        for one in (tag, own):
            context.addJobTag(one)
        try:
            # One item for each task, so that a task which Spark repeats repeats no other.
            parts: RDD[ItemT] = context.parallelize(items, len(items))
            # A run of one task ends with it.
            if len(items) > 1:
                watcher.start()
            return parts.mapPartitions(run).collect()
        finally:
            ended.set()
            for one in (tag, own):
                context.removeJobTag(one)
            if watcher.is_alive():
                watcher.join()

    def _revive(self, dead: SparkContext) -> None:
        """Start a new JVM, once for all who found the old one dead."""
        from pyspark import SparkContext

        with self._reviving:
            if self._context is not dead:
                return
            with contextlib.suppress(Exception):
                dead.stop()
            # PySpark keeps one gateway to one JVM for the life of the process, and offers no way to let it go.
            for name in ("_gateway", "_jvm", "_active_spark_context"):
                setattr(SparkContext, name, None)
            self.start()

    def _running(self) -> SparkContext:
        if self._context is None:
            raise RuntimeError("the Spark session is not started")
        return self._context

    def _ship_code(self, context: SparkContext) -> None:
        folder = Path(tempfile.mkdtemp(prefix="pulsar-migrate-"))
        archive = folder / "pulsar_migrate_code.zip"
        root = Path(__file__).resolve().parent.parent
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for package in _SHIPPED:
                for path in sorted((root / package).rglob("*.py")):
                    packed.write(path, path.relative_to(root))
        context.addPyFile(str(archive))


_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # Executors start in somebody's working directory; a module that lies there is not ours, whatever its name.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # A task that writes must not run twice at once.
    "spark.speculation": "false",
    "spark.task.maxFailures": "4",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def _stop_on_error(context: SparkContext, tag: str, tally: Accumulator[Tally], ended: threading.Event) -> None:
    """Stop a run when one of its tasks has told an error."""
    while not ended.wait(_LOOK_SECONDS):
        if tally.value.errors:
            context.cancelJobsWithTag(tag)
            return


def _raise_first(tally: Accumulator[Tally]) -> None:
    if errors := tally.value.errors:
        raise errors[0] from None


def _jvm_died() -> bool:
    from pyspark import SparkContext

    gateway = getattr(SparkContext, "_gateway", None)
    try:
        return gateway is not None and gateway.proc.wait(timeout=_DEATH_SECONDS) is not None
    except subprocess.TimeoutExpired:
        return False


def _import_code(_: int) -> None:
    import spark.metadata_store.tasks  # noqa: F401  # pyright: ignore[reportUnusedImport] - the import is what is wanted
