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
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clients.errors import StoreError, StoreUnreachable
from spark.jvm import start_gateway
from spark.lanes import LOCAL_SLOTS, Lanes, Limits, cluster_limits, local_limits
from spark.run import Run
from spark.session import Session

if TYPE_CHECKING:
    from pyspark import SparkContext

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

# A JVM that breaks a connection because it dies needs a moment to be dead.
_DEATH_SECONDS = 0.5
_LOCAL = re.compile(r"local\[(?P<cores>\*|\d+)(,\s*(?P<tries>\d+))?\]")
_SHIPPED = ("models", "clients", "spark")


class SparkEngine:
    """Runs functions over parts on executors, and stops them when asked.

    Runs wait for the session, which may be started in another thread.

    Args:
        master: `local[*]`, `spark://host:port`, `k8s://…` or `yarn`.
        driver_memory: heap of the driver's JVM.
        conf: further Spark settings.
    """

    def __init__(self, master: str, *, driver_memory: str = "512m", conf: dict[str, str] | None = None) -> None:
        self._master = master
        self._conf = {"spark.driver.memory": driver_memory, **_DEFAULTS, **(conf or {})}
        self._context: SparkContext | None = None
        self._session = Session()
        self._lanes = Lanes(self._limits)
        self._jobs = ThreadPoolExecutor(LOCAL_SLOTS, thread_name_prefix="spark")
        self._runs: list[Run] = []
        self._reviving = threading.Lock()

    def start(self) -> None:
        """Start the session and let every executor import the code; takes some seconds."""
        try:
            context = self._start()
        except BaseException as error:
            self._session.failed(error)
            raise
        self._session.started(context)

    def width(self, *, tag: str) -> int:
        """How many tasks of one run run at once; waits for the session, as a run with this tag does."""
        with self._registered(Run(tag, urgent=False)) as run:
            self._session.wait(run.stopped)
            return self._lanes.limits.each

    def run(
        self, items: Sequence[ItemT], task: Callable[[ItemT], ResultT], *, tag: str, urgent: bool = False
    ) -> list[ResultT]:
        """Run `task` for every item, spread over the executors; results in the order of the items.

        Args:
            items: plain data, one task each.
            task: a function that an executor can import, or a closure over plain data.
            tag: `cancel` with the same tag stops the run from another thread.
            urgent: whether somebody is blocked until it ends: it waits for no other run.

        Raises:
            StoreError: the first that a task raised, as soon as that task has ended; the others are stopped.
            Exception: Spark's error, where a task failed otherwise, or the run was cancelled.
        """
        results: dict[int, ResultT] = {}
        self._run(items, task, results.__setitem__, tag=tag, urgent=urgent)
        return [results[index] for index in range(len(items))]

    def fold(
        self,
        items: Sequence[ItemT],
        task: Callable[[ItemT], ResultT],
        take: Callable[[ItemT, ResultT], object],
        *,
        tag: str,
        urgent: bool = False,
    ) -> None:
        """As `run`, where results are added up and not kept.

        Args:
            items: see `run`, as for `task`, `tag` and `urgent`.
            task: see there.
            take: called with each item and its result, one after the other and in no order.
            tag: see there.
            urgent: see there.
        """
        self._run(items, task, lambda index, result: take(items[index], result), tag=tag, urgent=urgent)

    def counted(self, tag: str) -> int:
        """Records that the finished tasks of the run with this tag report; 0 where none runs."""
        return sum(run.counted for run in list(self._runs) if run.tag == tag)

    def waits_for(self, tag: str) -> str:
        """What runs with this tag wait for before their first task, in words; empty if nothing, or there are none."""
        if not any(run.tag == tag for run in list(self._runs)):
            return ""
        if not self._session.ready:
            return "Spark, which is starting"
        return "a slot of Spark, which copies of other migrations have" if self._lanes.waits(tag) else ""

    def cancel(self, tag: str) -> None:
        """Stop the runs with this tag; harmless where there are none."""
        for run in list(self._runs):
            if run.tag == tag:
                run.stopped.set()

    def stop(self) -> None:
        """End the session and its JVM."""
        self._session.failed(RuntimeError("the Spark session was stopped"))
        self._jobs.shutdown(wait=False, cancel_futures=True)
        if self._context is not None:
            self._context.stop()
            self._context = None

    def new_tag(self, name: str) -> str:
        """A tag that no other run has."""
        return f"{name}-{uuid.uuid4().hex[:8]}"

    # Inside ---------------------------------------------------------------------------------------------------------

    def _run(
        self,
        items: Sequence[ItemT],
        task: Callable[[ItemT], ResultT],
        take: Callable[[int, ResultT], object],
        *,
        tag: str,
        urgent: bool,
    ) -> None:
        if not items:
            return
        with self._registered(Run(tag, urgent=urgent)) as run:
            context = self._session.wait(run.stopped)
            try:
                run.collect(context, items, task, take, tries=self._tries, lanes=self._lanes, jobs=self._jobs)
            except StoreError:
                raise
            except Exception as error:
                if _jvm_died():
                    self._revive(context)
                    # Worth another attempt: the JVM is new, and the jobs compare before they write.
                    raise StoreUnreachable("the Spark driver's JVM died; it was started again") from error
                raise

    @contextlib.contextmanager
    def _registered(self, run: Run) -> Generator[Run]:
        """Let a run be found by its tag."""
        self._runs.append(run)
        try:
            yield run
        finally:
            self._runs.remove(run)

    def _start(self) -> SparkContext:
        from pyspark import SparkConf, SparkContext

        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        variables = {"PYSPARK_PYTHON": python}
        master, local = self._master, self._is_local
        if local:
            root = str(Path(__file__).resolve().parent.parent)
            variables["SPARK_LOCAL_IP"] = "127.0.0.1"
            # Python workers of local mode import the code by this; other masters get it shipped.
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
            # Whoever waits in a throttle needs no core: how many tasks run at once is for the lanes to say.
            master = f"local[{LOCAL_SLOTS},{self._tries}]"
        conf = SparkConf().setMaster(master).setAppName("pulsar-migrate").setAll(list(self._conf.items()))
        # PySpark keeps it for the life of the process, also for sessions that come later.
        gateway = getattr(SparkContext, "_gateway", None) or start_gateway(conf, variables)
        self._context = context = SparkContext(conf=conf, gateway=gateway)
        context.pythonExec = python
        context.setLogLevel("ERROR")
        if not local:
            self._ship_code(context)
        warm_up = Run("warm-up", urgent=True)
        slots = list(range(self._limits().urgent))
        warmed: dict[int, None] = {}
        warm_up.collect(
            context,
            slots,
            _import_code,
            warmed.__setitem__,
            tries=self._tries,
            lanes=self._lanes,
            jobs=self._jobs,
        )
        return context

    @property
    def may_lose_tasks(self) -> bool:
        """Return whether a task may still run that Spark has given up, and has run again elsewhere."""
        return not self._is_local

    @property
    def _is_local(self) -> bool:
        return self._master.startswith("local")

    def _limits(self) -> Limits:
        context = self._context
        if context is None:
            raise RuntimeError("the Spark session is not started")
        if not self._is_local:
            return cluster_limits(context.defaultParallelism)
        found = _LOCAL.fullmatch(self._master)
        cores = found["cores"] if found else "1"
        if cores != "*":
            return local_limits(int(cores))
        # Java knows the limits of a container, which this Python does not.
        jvm: Any = getattr(context, "_jvm", None)
        return local_limits(int(jvm.java.lang.Runtime.getRuntime().availableProcessors()))

    @property
    def _tries(self) -> int:
        """How often Spark runs a task that fails: in local mode the master says it."""
        if self._is_local:
            found = _LOCAL.fullmatch(self._master)
            return int(found["tries"] or 1) if found else 1
        return int(self._conf["spark.task.maxFailures"])

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
            self._session.restarts()
            try:
                self.start()
            except BaseException:
                # The next run finds no JVM, and tries again.
                self._session.started(dead)
                raise

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
    # Java would begin with a 64th of the machine's memory and collect nothing before that is full; the driver needs
    # little, and gives back what it does not.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms32m -XX:MaxNewSize=32m"
    " -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40",
    # What Spark remembers of jobs that have ended is for its web interface, which is off.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
}


def _jvm_died() -> bool:
    from pyspark import SparkContext

    gateway = getattr(SparkContext, "_gateway", None)
    try:
        return gateway is None or gateway.proc.wait(timeout=_DEATH_SECONDS) is not None
    except subprocess.TimeoutExpired:
        return False


def _import_code(_: int) -> None:
    # The clients of all stores are nearly all that the tasks of any migration import.
    import clients.stores  # noqa: F401  # pyright: ignore[reportUnusedImport] - the import is what is wanted
