"""The bulk jobs of a copy of a scalable topic: copy its segments, and read what was copied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial

from clients.errors import RetryableError
from spark.chains import run_chains
from spark.engine import SparkEngine
from spark.scalable_topic import tasks
from spark.scalable_topic.spec import CheckedPart, CopyOut, CopyPart, PartCheck, SegmentCopy

_MOST_TRIES = 5
_RETRY_SECONDS = 1.0


def copy(
    engine: SparkEngine,
    job: CopyOut,
    segments: Mapping[int, Collection[int]],
    next_copy: Callable[[int], SegmentCopy | None],
    *,
    tag: str,
    on_part: Callable[[int, CopyPart], None],
    check: Callable[[], None],
) -> None:
    """Copy segments up to their current ends, many at once, but each only after its parents.

    This keeps the order of each key: messages of a parent were sent before those of its children.

    Args:
        engine: the Spark engine.
        job: the copy.
        segments: each segment with its parents.
        next_copy: returns what to copy of a segment next; None when nothing remains. Called in any thread.
        tag: for `SparkEngine.cancel`.
        on_part: called with each finished part, in any thread.
        check: called in this thread about twice a second; an exception of it ends the copy.

    Raises:
        StoreError: the first one of a task or of `next_copy`; the others are stopped. Copies stay, and the job can be
                repeated.
    """
    given_up = threading.Event()

    def step(segment_id: int) -> bool:
        if (unit := next_copy(segment_id)) is None:
            return False
        (copied,) = engine.run([unit], partial(tasks.copy_unit, job), tag=tag)
        on_part(segment_id, copied)
        return copied.remaining

    def work(segment_id: int) -> None:
        while not given_up.is_set() and _retry(partial(step, segment_id), given_up):
            pass

    _run(engine, segments, work, given_up, tag=tag, check=check)


def check(
    engine: SparkEngine,
    job: CopyOut,
    parts: Collection[int],
    next_check: Callable[[int], PartCheck],
    *,
    tag: str,
    on_part: Callable[[int, CheckedPart], None],
    check: Callable[[], None],
) -> None:
    """Read partitions of the regular topic up to their ends, many at once; read only.

    Args:
        engine: the Spark engine.
        job: the copy.
        parts: numbers of partitions.
        next_check: returns where the next part of a partition starts. Called in any thread.
        tag: see `copy`, as for `on_part`, `check` and errors.
        on_part: see there.
        check: see there.
    """
    given_up = threading.Event()

    def step(number: int) -> bool:
        (checked,) = engine.run([next_check(number)], partial(tasks.check_unit, job), tag=tag)
        on_part(number, checked)
        return checked.remaining and not checked.difference

    def work(number: int) -> None:
        while not given_up.is_set() and _retry(partial(step, number), given_up):
            pass

    _run(engine, dict.fromkeys(parts, ()), work, given_up, tag=tag, check=check)


def _retry(step: Callable[[], bool], given_up: threading.Event) -> bool:
    """Run a step, with retries while brokers move its topics: a failure would make all others start again."""
    for more_tries in reversed(range(_MOST_TRIES)):
        try:
            return step()
        except RetryableError:
            if not more_tries or given_up.wait(_RETRY_SECONDS):
                raise
    return False


def _run(
    engine: SparkEngine,
    items: Mapping[int, Collection[int]],
    work: Callable[[int], None],
    given_up: threading.Event,
    *,
    tag: str,
    check: Callable[[], None],
) -> None:
    def give_up() -> None:
        given_up.set()
        engine.cancel(tag)

    run_chains(items, work, width=max(1, engine.width(tag=tag)), check=check, give_up=give_up)
