"""Fresh clusters for one test after another, each started while the tests look at the end of the one before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from deploy.devstack.stack import Stack


class StackPool:
    """Fresh clusters.

    Args:
        make: starts one.
        wanted: how many tests take one.
    """

    def __init__(self, make: Callable[[], Stack], wanted: int) -> None:
        self._make, self._wanted = make, wanted
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stacks")
        self._next: Future[Stack] | None = None
        self._used: Stack | None = None

    @property
    def current(self) -> Stack:
        """The one that was taken last.

        Raises:
            AssertionError: none was.
        """
        assert self._used, "no cluster was taken"
        return self._used

    def prepare(self) -> None:
        """Begin to start the next one, if any more are wanted."""
        if self._wanted and not self._next:
            self._next = self._thread.submit(self._make)

    def take(self) -> Stack:
        """A fresh one; the one before ends."""
        # One test may be run more often than was counted.
        self._wanted = max(1, self._wanted)
        self.prepare()
        if self._used:
            self._used.down(graceful=False)
        assert self._next
        self._wanted -= 1
        self._used, self._next = self._next.result(), None
        return self._used

    def close(self) -> None:
        """Wait for what is being started; whoever made the stacks ends them."""
        if self._next:
            self._next.exception()
        self._thread.shutdown()
