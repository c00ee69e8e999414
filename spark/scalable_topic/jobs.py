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

_TRIES = 5
_PAUSE = 1.0


def copy(
    engine: SparkEngine,
    job: CopyOut,
    segments: Mapping[int, Collection[int]],
    look: Callable[[int], SegmentCopy | None],
    *,
    tag: str,
    on_part: Callable[[int, CopyPart], None],
    check: Callable[[], None],
) -> None:
    """Copy segments up to their present ends, many at once, and each only behind all from which it came.

    So the order of each key is kept: what a parent holds was sent before what its children hold.

    Args:
        engine: the session.
        job: the copy.
        segments: each with its parents.
        look: asked before each part what there is to copy of a segment; None for nothing more. Called in any thread.
        tag: for `SparkEngine.cancel`.
        on_part: called with each part that is done, in any thread.
        check: called in this thread about twice a second; what it raises ends the copy.

    Raises:
        StoreError: the first that a task or a look raised; the others are stopped. What was copied stays, and the job
            can be repeated.
    """
    given_up = threading.Event()

    def step(segment_id: int) -> bool:
        if (unit := look(segment_id)) is None:
            return False
        (part,) = engine.run([unit], partial(tasks.copy_unit, job), tag=tag)
        on_part(segment_id, part)
        return part.left

    def work(segment_id: int) -> None:
        while not given_up.is_set() and _patiently(partial(step, segment_id), given_up):
            pass

    _run(engine, segments, work, given_up, tag=tag, check=check)


def check(
    engine: SparkEngine,
    job: CopyOut,
    parts: Collection[int],
    look: Callable[[int], PartCheck],
    *,
    tag: str,
    on_part: Callable[[int, CheckedPart], None],
    check: Callable[[], None],
) -> None:
    """Read partitions of the regular topic up to their ends, many at once; only reads.

    Args:
        engine: the session.
        job: the copy.
        parts: numbers of partitions.
        look: asked before each part where it begins. Called in any thread.
        tag: see `copy`, as for `on_part`, `check` and errors.
        on_part: see there.
        check: see there.
    """
    given_up = threading.Event()

    def step(number: int) -> bool:
        (part,) = engine.run([look(number)], partial(tasks.check_unit, job), tag=tag)
        on_part(number, part)
        return part.left and not part.difference

    def work(number: int) -> None:
        while not given_up.is_set() and _patiently(partial(step, number), given_up):
            pass

    _run(engine, dict.fromkeys(parts, ()), work, given_up, tag=tag, check=check)


def _patiently(step: Callable[[], bool], given_up: threading.Event) -> bool:
    """Take a step, again and again while brokers move its topics; all others would have to begin again with it."""
    for left in reversed(range(_TRIES)):
        try:
            return step()
        except RetryableError:
            if not left or given_up.wait(_PAUSE):
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
