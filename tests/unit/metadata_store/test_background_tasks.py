"""Work that a process does of itself at set times."""

from __future__ import annotations

import threading
from itertools import repeat

from activities.metadata_store.background_tasks import BackgroundTasks
from clients.errors import StoreConflict, StoreUnreachable

_TIMEOUT = 10.0


def test_a_store_that_cannot_be_reached_is_asked_again() -> None:
    """The work is repeated until it says that it is done, and not beyond."""
    answers: list[bool | StoreUnreachable] = [StoreUnreachable("away"), False, True]
    done = threading.Event()

    def work() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, StoreUnreachable):
            raise answer
        if answer:
            done.set()
        return answer

    BackgroundTasks().schedule("work", repeat(0.01), work)
    assert done.wait(_TIMEOUT)
    assert answers == []


def test_work_of_one_name_is_scheduled_once_and_can_be_cancelled() -> None:
    """A second schedule of the same name is ignored; a cancelled one does nothing, and its name is free again."""
    tasks, ran = BackgroundTasks(), threading.Event()
    tasks.schedule("work", [_TIMEOUT * 100], lambda: True)
    tasks.schedule("work", [0.0], lambda: ran.set() or True)
    tasks.cancel("work")
    assert not ran.is_set()
    tasks.schedule("work", [0.0], lambda: ran.set() or True)
    assert ran.wait(_TIMEOUT)
    tasks.close()


def test_a_conflict_ends_the_work() -> None:
    """Work that finds another owner is not repeated."""
    calls: list[int] = []

    def work() -> bool:
        calls.append(1)
        raise StoreConflict("another one's")

    tasks = BackgroundTasks()
    tasks.schedule("work", [0.0, 0.0], work)
    for thread in threading.enumerate():
        if thread.name == "work":
            thread.join(_TIMEOUT)
    assert calls == [1]
