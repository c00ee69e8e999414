"""The Spark engine of a process: its session, and runs of functions on it."""

from __future__ import annotations

import contextlib
import importlib
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
from spark.protection import PROTECTION, is_local
from spark.run import Run
from spark.session import Session
from spark.slots import LOCAL_SLOTS, Limits, SlotScheduler, cluster_limits, local_limits

if TYPE_CHECKING:
    from pyspark import SparkContext

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

# A dying JVM breaks its connections shortly before its process ends.
_DEATH_SECONDS = 0.5
_LOCAL = re.compile(r"local\[(?P<cores>\*|\d+)(,\s*(?P<tries>\d+))?\]")
_SHIPPED = ("models", "clients", "spark", "pulsar_wire")


class SparkEngine:
    """Engine that runs functions over items on executors, and cancels such runs.

    Runs wait for the session, which may be started in another thread.

    Args:
        master: `local[*]`, `spark://host:port`, `k8s://…` or `yarn`.
        driver_memory: heap of the driver's JVM.
        conf: further Spark settings.
        environment: names of environment variables that Spark inherits, next to the usual ones and its own.
    """

    def __init__(
        self,
        master: str,
        *,
        driver_memory: str = "512m",
        conf: dict[str, str] | None = None,
        environment: Sequence[str] = (),
    ) -> None:
        self._master = master
        self._environment = environment
        self._conf = {"spark.driver.memory": driver_memory, **PROTECTION, **_DEFAULTS, **(conf or {})}
        self._context: SparkContext | None = None
        self._session = Session()
        self._slots = SlotScheduler(self._limits)
        self._jobs = ThreadPoolExecutor(LOCAL_SLOTS, thread_name_prefix="spark")
        self._runs: list[Run] = []
        # Executors fetch the code from here as long as the session lives.
        self._code: tempfile.TemporaryDirectory[str] | None = None
        self._restarting = threading.Lock()

    def start(self) -> None:
        """Start the session and let every executor import the code; takes some seconds."""
        try:
            context = self._start()
        except BaseException as error:
            self._session.mark_failed(error)
            raise
        self._session.mark_ready(context)

    def width(self, *, tag: str) -> int:
        """Return how many tasks of one run may run at once; wait for the session, as a run with this tag does."""
        with self._registered(Run(tag, urgent=False)) as run:
            self._session.wait(run.stopped)
            return self._slots.limits.each

    def run(
        self, items: Sequence[ItemT], task: Callable[[ItemT], ResultT], *, tag: str, urgent: bool = False
    ) -> list[ResultT]:
        """Run `task` for every item on the executors; return the results in the order of the items.

        Args:
            items: plain data, one task each.
            task: a function that an executor can import, or a closure over plain data.
            tag: name by which another thread cancels the run.
            urgent: whether clients or brokers are blocked until the run ends; it then waits for no other run.

        Raises:
            StoreError: the first one of a task, as soon as that task has ended; the other tasks are stopped.
            RunStopped: the run was cancelled.
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
        """Run `task` as `run` does, but hand each result to `take` instead of collecting them.

        Args:
            items: see `run`, as for `task`, `tag` and `urgent`.
            task: see there.
            take: called with each item and its result, one call at a time, in any order.
            tag: see there.
            urgent: see there.
        """
        self._run(items, task, lambda index, result: take(items[index], result), tag=tag, urgent=urgent)

    def counted(self, tag: str) -> int:
        """Return how many records the finished tasks of the runs with this tag reported; 0 without a run."""
        return sum(run.counted for run in list(self._runs) if run.tag == tag)

    def waits_for(self, tag: str) -> str:
        """Return what the runs with this tag wait for before their first task; empty if they do not wait."""
        if not any(run.tag == tag for run in list(self._runs)):
            return ""
        if not self._session.ready:
            return "Spark, which is starting"
        return "a Spark slot; copies of other migrations use all of them" if self._slots.waits(tag) else ""

    def cancel(self, tag: str) -> None:
        """Stop the runs with this tag; harmless where there are none."""
        for run in list(self._runs):
            if run.tag == tag:
                run.stopped.set()

    def hold(self, tag: str) -> None:
        """Start no more tasks of the runs with this tag, also of later ones, until `release`; urgent runs continue."""
        self._slots.hold(tag)

    def release(self, tag: str) -> None:
        """Start tasks of the runs with this tag again; harmless if they are not held."""
        self._slots.release(tag)

    def stop(self) -> None:
        """End the session and its JVM."""
        self._session.mark_failed(RuntimeError("the Spark session was stopped"))
        self._jobs.shutdown(wait=False, cancel_futures=True)
        if self._context is not None:
            self._context.stop()
            self._context = None
        if self._code is not None:
            self._code.cleanup()

    def new_tag(self, name: str) -> str:
        """Return a tag that no other run has."""
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
                run.collect(context, items, task, take, tries=self._tries, slots=self._slots, jobs=self._jobs)
            except StoreError:
                raise
            except Exception as error:
                if _jvm_died():
                    self._restart_jvm(context)
                    # Another attempt helps: the JVM is new, and jobs compare before they write.
                    raise StoreUnreachable("the Spark driver's JVM died; it was started again") from error
                raise

    @contextlib.contextmanager
    def _registered(self, run: Run) -> Generator[Run]:
        """Register a run while the block runs, so that it can be found by its tag."""
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
            # Python workers of local mode import the code from here; other masters get an archive.
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
            # A throttled task needs no core, so the slot scheduler limits the tasks, not Spark's core count.
            master = f"local[{LOCAL_SLOTS},{self._tries}]"
        conf = SparkConf().setMaster(master).setAppName("pulsar-migrate").setAll(list(self._conf.items()))
        if local:
            # Otherwise there is one for each slot.
            conf.setIfMissing("spark.rpc.netty.dispatcher.numThreads", "4")
        # PySpark keeps the gateway for the life of the process, also for later sessions.
        gateway = getattr(SparkContext, "_gateway", None) or start_gateway(conf, variables, self._environment)
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
            slots=self._slots,
            jobs=self._jobs,
        )
        return context

    @property
    def may_lose_tasks(self) -> bool:
        """Return whether a task may still run that Spark has given up, and has run again elsewhere."""
        return not self._is_local

    @property
    def _is_local(self) -> bool:
        return is_local(self._master)

    def _limits(self) -> Limits:
        context = self._context
        if context is None:
            raise RuntimeError("the Spark session is not started")
        if not self._is_local:
            return cluster_limits(context.defaultParallelism)
        match = _LOCAL.fullmatch(self._master)
        cores = match["cores"] if match else "1"
        if cores != "*":
            return local_limits(int(cores))
        # Java knows the limits of a container, which this Python does not.
        jvm: Any = getattr(context, "_jvm", None)
        return local_limits(int(jvm.java.lang.Runtime.getRuntime().availableProcessors()))

    @property
    def _tries(self) -> int:
        """Return how often Spark runs a failing task; in local mode the master's name has it."""
        if self._is_local:
            match = _LOCAL.fullmatch(self._master)
            return int(match["tries"] or 1) if match else 1
        return int(self._conf["spark.task.maxFailures"])

    def _restart_jvm(self, dead: SparkContext) -> None:
        """Start a new JVM, once for all runs that noticed the death of the old one."""
        from pyspark import SparkContext

        with self._restarting:
            if self._context is not dead:
                return
            with contextlib.suppress(Exception):
                dead.stop()
            # PySpark keeps one gateway for the life of the process, and has no public way to drop it.
            for name in ("_gateway", "_jvm", "_active_spark_context"):
                setattr(SparkContext, name, None)
            self._session.mark_restarting()
            try:
                self.start()
            except BaseException:
                # The next run finds no JVM, and tries again.
                self._session.mark_ready(dead)
                raise

    def _ship_code(self, context: SparkContext) -> None:
        self._code = tempfile.TemporaryDirectory(prefix="pulsar-migrate-")
        archive = Path(self._code.name) / "pulsar_migrate_code.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for package in _SHIPPED:
                folder = Path(str(importlib.import_module(package).__file__)).resolve().parent
                for path in sorted(folder.rglob("*.py")):
                    packed.write(path, path.relative_to(folder.parent))
        context.addPyFile(str(archive))


_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # Executors start in a working directory that may hold modules with the names of ours.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # A task that writes must not run twice at once.
    "spark.speculation": "false",
    "spark.task.maxFailures": "4",
    # Java would begin with a 64th of the machine's memory and collect nothing before that is full; the driver needs
    # little, and releases the rest.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms32m -XX:MaxNewSize=32m"
    " -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40",
    # Spark keeps ended jobs for its web interface only, which is off.
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
