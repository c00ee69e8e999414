"""The Spark session of a worker: results, typed errors, cancellation, and a driver that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from clients.errors import LedgerUnreadable, StoreConflict, StoreUnreachable
from spark.engine import SparkEngine
from spark.fence import CopyHeld
from spark.slots import LOCAL_SLOTS
from tests.support.lifecycle.planted import SecretWatch, contents
from tests.support.waiting import timeout_for, wait_for, wait_until_equal

_LONG = 60.0


@pytest.fixture(scope="module")
def engine() -> Iterator[SparkEngine]:
    """A local session with two slots."""
    started = SparkEngine("local[2]")
    started.start()
    yield started
    started.stop()


def _refuse(number: int) -> int:
    raise StoreConflict(f"number {number} is taken: by whom?")


def _unreadable(ledger: int) -> None:
    raise LedgerUnreadable("no replica has a valid copy", ledger_id=ledger, entry_id=3)


def _fail_during_long_tasks(item: str) -> None:
    if item == "3":
        _refuse(3)
    _take_long(item)


def _divide(number: int) -> float:
    return 1 / number


def _release_slot_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        raise CopyHeld
    return marker


def _take_long(marker: str) -> None:
    Path(marker).touch()
    time.sleep(_LONG)


def _meet(marker: str) -> int:
    """Wait for the other task of a run of two."""
    Path(marker).touch()
    wait_until_equal("the other task", lambda: len(list(Path(marker).parent.iterdir())), 2, 30)
    return 2


def test_a_session_starts_without_a_fork_and_moves_no_environment() -> None:
    """Neither handlers of forks nor a changed environment meet calls under way: both have ended workers (seen).

    An existing variable is written in place, which is safe for readers of other variables.
    """
    program = """
import os, sys
harm = []
os.register_at_fork(before=lambda: harm.append("fork"))
def look(event, arguments):
    if event == "os.unsetenv" or (event == "os.putenv" and arguments[0] not in os.environb):
        harm.append((event, arguments[0]))
from spark import environment
from spark.engine import SparkEngine
environment.preset_spark_env()
sys.addaudithook(look)
engine = SparkEngine("local[1]")
engine.start()
print(harm, engine.run([-7], abs, tag="one"))
engine.stop()
print(harm)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.splitlines() == ["[] [7]", "[]"]


def test_secrets_are_in_no_program_and_no_file(tmp_path: Path) -> None:
    """Programs of Spark have no secret in their environments and command lines, nor have files that they leave."""
    mark = "planted-7d21e0"
    program = f"""
import sys
from functools import partial
from pydantic import SecretStr
from clients.pulsar.admin.auth import Token
from clients.pulsar.wire.access import WireAccess
from spark import environment
from spark.engine import SparkEngine
def of_both(access, item):
    return item
mark = sys.stdin.readline().strip()
environment.preset_spark_env()
engine = SparkEngine("local[2]", conf={{"spark.hadoop.planted": mark, "spark.local.dir": {str(tmp_path / "local")!r}}})
engine.start()
access = WireAccess(auth=Token(SecretStr(mark)))
engine.run([1, 2], partial(of_both, access), tag="one")
print("ran", flush=True)
sys.stdin.readline()
engine.stop()
"""
    own = {**os.environ, "PULSAR_MIGRATE_ADMIN_TOKEN": mark, "TMPDIR": str(tmp_path), "TEMPORAL_API_KEY": mark}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own
    ) as running:
        assert running.stdin
        assert running.stdout
        running.stdin.write(f"{mark}\n")
        running.stdin.flush()
        assert running.stdout.readline() == "ran\n"
        with SecretWatch(lambda: [running.pid], [mark], [tmp_path]) as watch:
            pass
        running.stdin.write("\n")
        running.stdin.flush()
    assert not watch.found
    # The JVM, and the processes that run tasks.
    assert len([program for program in watch.programs if b"java" in program]) == 1
    assert [program for program in watch.programs if b"pyspark.daemon" in program]


def test_a_local_session_has_few_threads(engine: SparkEngine) -> None:
    """The slots of a local session cost no threads."""
    assert engine.run([-1], abs, tag="threads") == [1]
    # Workers of other tests have drivers as well; the one of this process is its child.
    children = [child for task in Path("/proc/self/task").iterdir() for child in contents(task / "children").split()]
    programs = [Path("/proc", child.decode()) for child in children]
    (driver,) = [program for program in programs if b"SparkSubmit" in contents(program / "cmdline")]
    assert len([*(driver / "task").iterdir()]) < LOCAL_SLOTS / 2


def test_results_come_in_the_order_of_the_items(engine: SparkEngine) -> None:
    """Each item gets its result, in its place, however many there are."""
    assert engine.run(list(range(-20, 0)), abs, tag="order") == list(range(20, 0, -1))
    assert engine.run([], abs, tag="none") == []


def test_a_held_task_runs_again(engine: SparkEngine, tmp_path: Path) -> None:
    """A held run starts no task; one that has given its slot back starts again, and its result counts once."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    engine.hold("held")
    with ThreadPoolExecutor() as pool:
        held = pool.submit(engine.run, [first, second], _release_slot_once, tag="held")
        assert engine.run([-1], abs, tag="other") == [1]
        assert not held.done()
        assert not engine.waits_for("held")
        assert not Path(first).exists()
        engine.release("held")
        assert held.result(timeout_for(30)) == [first, second]


def test_a_typed_error_reaches_the_driver(engine: SparkEngine) -> None:
    """An exception of a task arrives with its type and its whole message."""
    with pytest.raises(StoreConflict, match=r"^number 3 is taken: by whom\?$"):
        engine.run([3], _refuse, tag="error")


def test_fields_of_an_error_cross_the_executors(engine: SparkEngine) -> None:
    """An exception of a task keeps its fields: nothing is parsed from Spark's text."""
    with pytest.raises(LedgerUnreadable) as raised:
        engine.run([7, 8], _unreadable, tag="fields")
    assert raised.value.ledger_id in (7, 8)
    assert raised.value.entry_id == 3
    assert engine.run([-1], abs, tag="fields") == [1]


def test_an_error_stops_the_other_tasks(engine: SparkEngine, tmp_path: Path) -> None:
    """A run whose first task fails does not wait for the second one."""
    begun = time.monotonic()
    with pytest.raises(StoreConflict, match="is taken"):
        engine.run([str(tmp_path / "long"), "3"], _fail_during_long_tasks, tag="stopped")
    assert time.monotonic() - begun < _LONG - 10


def test_a_defect_keeps_sparks_text(engine: SparkEngine) -> None:
    """An exception other than a store's error also ends the run, with its text."""
    with pytest.raises(Exception, match="ZeroDivisionError"):
        engine.run([0], _divide, tag="defect")


def test_a_run_is_cancelled_by_its_tag(engine: SparkEngine, tmp_path: Path) -> None:
    """A cancelled run ends long before its tasks would."""
    marker = tmp_path / "running"
    ends: list[Exception] = []

    def run() -> None:
        try:
            engine.run([str(marker)], _take_long, tag="long")
        except Exception as error:  # noqa: BLE001 - any error of a cancelled job
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for("the task", marker.exists, 30)
    engine.cancel("long")
    thread.join(_LONG - 10)
    assert not thread.is_alive()
    assert "cancelled" in str(ends[0])


def test_runs_of_others_do_not_wait(engine: SparkEngine, tmp_path: Path) -> None:
    """While the tasks of several runs hold all cores for long, another run has its own at once, as many as ever."""
    runs = {f"long-{run}": [tmp_path / f"{run}-{task}" for task in range(2)] for run in range(3)}
    with ThreadPoolExecutor(3) as pool:
        long = [pool.submit(engine.run, list(map(str, ones)), _take_long, tag=tag) for tag, ones in runs.items()]
        try:
            wait_for("all tasks", lambda: all(marker.exists() for ones in runs.values() for marker in ones), 60)
            folder = tmp_path / "pair"
            folder.mkdir()
            assert engine.run([str(folder / "a"), str(folder / "b")], _meet, tag="short") == [2, 2]
            assert not any(future.done() for future in long)
        finally:
            for tag in runs:
                engine.cancel(tag)
        assert all("cancelled" in str(future.exception()) for future in long)


def test_runs_wait_for_the_session(tmp_path: Path) -> None:
    """A run that starts too early waits for the session, reports it, and can be stopped during the wait."""
    early = SparkEngine("local[2]")
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(early.run, [-1], abs, tag="early")
        wait_until_equal("the wait", lambda: early.waits_for("early"), "Spark, which is starting", 10)
        assert early.waits_for("other") == ""
        early.cancel("early")
        assert "cancelled" in str(waiting.exception(10))
        early.stop()
        with pytest.raises(RuntimeError, match="there is no Spark session"):
            early.run([-1], abs, tag="late")


def test_a_driver_that_dies_is_restarted(engine: SparkEngine) -> None:
    """After a kill -9 of the driver's JVM one run fails as one that may be repeated, and the next one works."""
    for pid in _spark_children():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(StoreUnreachable, match="started again"):
        engine.run([1], abs, tag="dead")
    assert engine.run([-1, -2], abs, tag="alive") == [1, 2]


def _spark_children() -> list[int]:
    pids: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"org.apache.spark" in (stat.parent / "cmdline").read_bytes():
                pids.append(int(stat.parent.name))
    assert pids, "the session has no JVM"
    return pids
