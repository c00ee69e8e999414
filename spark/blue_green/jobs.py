"""The bulk jobs of the blue-green migration: copy the messages of topics, and compare copies.

While writes are blocked the tasks run in this process: little remains to copy, and clients must not wait for a Spark
session that starts, as it does after the death of a worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from clients.errors import StoreContention
from clients.pulsar.names import TopicName
from spark.blue_green import tasks as topic_tasks
from spark.blue_green.spec import CopyEnds, CopyPart, TopicCopy
from spark.chains import run_chains
from spark.engine import SparkEngine

NextCopy = Callable[[TopicName], TopicCopy | None]
Task = Callable[[CopyEnds, TopicCopy, Callable[[], None]], CopyPart]

_LOCAL_WIDTH = 8


def copy(
    engine: SparkEngine,
    ends: CopyEnds,
    topics: Sequence[TopicName],
    next_copy: NextCopy,
    *,
    tag: str,
    on_part: Callable[[TopicName, CopyPart], None],
    check: Callable[[], None],
) -> None:
    """Copy topics, many at once; the tasks of one topic run one after the other.

    Args:
        engine: the Spark engine.
        ends: both clusters.
        topics: without partitions, or partitions.
        next_copy: returns what to copy of a topic next; None when nothing remains. Called in any thread.
        tag: for `SparkEngine.cancel`.
        on_part: called with each finished part, in any thread.
        check: called in this thread about twice a second; an exception of it ends the copy.

    Raises:
        StoreError: the first one of a task or of `next_copy`; the others are stopped. Copies stay, and the job
            can be repeated.
    """
    _run(engine, ends, topics, next_copy, topic_tasks.copy_unit, tag=tag, on_part=on_part, check=check)


def compare(
    engine: SparkEngine,
    ends: CopyEnds,
    topics: Sequence[TopicName],
    next_copy: NextCopy,
    *,
    tag: str,
    on_part: Callable[[TopicName, CopyPart], None],
    check: Callable[[], None],
) -> None:
    """Compare the copies of topics with blue in full; read only. Arguments and errors are those of `copy`."""
    _run(engine, ends, topics, next_copy, topic_tasks.compare_unit, tag=tag, on_part=on_part, check=check)


def width(engine: SparkEngine, ends: CopyEnds, tag: str) -> int:
    """Return how many topics are copied or compared at once; wait for the Spark session if it is needed."""
    return _LOCAL_WIDTH if ends.urgent else max(1, engine.width(tag=tag))


def _run(
    engine: SparkEngine,
    ends: CopyEnds,
    topics: Sequence[TopicName],
    next_copy: NextCopy,
    task: Task,
    *,
    tag: str,
    on_part: Callable[[TopicName, CopyPart], None],
    check: Callable[[], None],
) -> None:
    given_up = threading.Event()

    def run_here(unit: TopicCopy) -> CopyPart:
        return task(ends, unit, partial(_check_given_up, given_up))

    def run_on_executor(unit: TopicCopy) -> CopyPart:
        return engine.run([unit], partial(_on_executor, task, ends), tag=tag)[0]

    def work(topic: TopicName) -> None:
        while (unit := next_copy(topic)) is not None:
            copied = run_here(unit) if ends.urgent else run_on_executor(unit)
            on_part(topic, copied)
            if not copied.remaining:
                return

    def give_up() -> None:
        given_up.set()
        engine.cancel(tag)

    run_chains(dict.fromkeys(topics, ()), work, width=width(engine, ends, tag), check=check, give_up=give_up)


def _on_executor(task: Task, ends: CopyEnds, unit: TopicCopy) -> CopyPart:
    # Spark stops the task itself.
    return task(ends, unit, lambda: None)


def _check_given_up(given_up: threading.Event) -> None:
    if given_up.is_set():
        raise StoreContention("the copy was given up")
