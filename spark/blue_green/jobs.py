"""The bulk jobs of the blue-green migration: copy the messages of topics, and compare copies.

While writes are held back their tasks run in this process: what is left is little, and nobody must wait for a Spark
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

Look = Callable[[TopicName], TopicCopy | None]
Task = Callable[[CopyEnds, TopicCopy, Callable[[], None]], CopyPart]

_HERE = 8


def copy(
    engine: SparkEngine,
    ends: CopyEnds,
    topics: Sequence[TopicName],
    look: Look,
    *,
    tag: str,
    on_part: Callable[[TopicName, CopyPart], None],
    check: Callable[[], None],
) -> None:
    """Copy topics, each in order by one task after the other, and many at once.

    Args:
        engine: the session.
        ends: both clusters.
        topics: without partitions, or partitions.
        look: asked before each part what there is to copy of a topic; None for nothing more. Called in any thread.
        tag: for `SparkEngine.cancel`.
        on_part: called with each part that is done, in any thread.
        check: called in this thread about twice a second; what it raises ends the copy.

    Raises:
        StoreError: the first that a task or a look raised; the others are stopped. What was copied stays, and the job
            can be repeated.
    """
    _run(engine, ends, topics, look, topic_tasks.copy_unit, tag=tag, on_part=on_part, check=check)


def compare(
    engine: SparkEngine,
    ends: CopyEnds,
    topics: Sequence[TopicName],
    look: Look,
    *,
    tag: str,
    on_part: Callable[[TopicName, CopyPart], None],
    check: Callable[[], None],
) -> None:
    """Compare the copies of topics with blue in full; only reads. Arguments and errors are those of `copy`."""
    _run(engine, ends, topics, look, topic_tasks.compare_unit, tag=tag, on_part=on_part, check=check)


def width(engine: SparkEngine, ends: CopyEnds, tag: str) -> int:
    """How many topics are copied, or compared, at once; waits for the session where it is needed."""
    return _HERE if ends.urgent else max(1, engine.width(tag=tag))


def _run(
    engine: SparkEngine,
    ends: CopyEnds,
    topics: Sequence[TopicName],
    look: Look,
    task: Task,
    *,
    tag: str,
    on_part: Callable[[TopicName, CopyPart], None],
    check: Callable[[], None],
) -> None:
    given_up = threading.Event()

    def here(unit: TopicCopy) -> CopyPart:
        return task(ends, unit, partial(_go_on, given_up))

    def there(unit: TopicCopy) -> CopyPart:
        return engine.run([unit], partial(_on_executor, task, ends), tag=tag)[0]

    def work(topic: TopicName) -> None:
        while (unit := look(topic)) is not None:
            part = here(unit) if ends.urgent else there(unit)
            on_part(topic, part)
            if not part.remaining:
                return

    def give_up() -> None:
        given_up.set()
        engine.cancel(tag)

    run_chains(dict.fromkeys(topics, ()), work, width=width(engine, ends, tag), check=check, give_up=give_up)


def _on_executor(task: Task, ends: CopyEnds, unit: TopicCopy) -> CopyPart:
    # Spark ends the task itself.
    return task(ends, unit, lambda: None)


def _go_on(given_up: threading.Event) -> None:
    if given_up.is_set():
        raise StoreContention("the copy was given up")
