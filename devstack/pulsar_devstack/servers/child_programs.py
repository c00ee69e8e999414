"""Programs that are started, waited for and given orders, over their standard input and output."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pulsar_devstack.servers.processes import spawn_with_pipes

_END_SECONDS = 30.0
# Clients may wait for minutes for the outcome of what they sent.
_ANSWER_SECONDS = 300.0


class ChildFailed(Exception):
    """A program did not start, or failed; the message has the end of its log."""


class Child:
    """One program with standard error in a log; leaving the `with` block ends it, gently first.

    When this process ends without leaving the block, the kernel kills the program.

    Args:
        command: program and arguments.
        log: file for its standard error.
        environment: variables in addition to this process's.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        self._process = spawn_with_pipes(command, log=log, environment={**os.environ, **(environment or {})})
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, name=log.stem, daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def order(self, word: str) -> None:
        """Write one line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def end_of_orders(self) -> None:
        """Close its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def await_line(self, beginning: str, seconds: float) -> str:
        """Wait for a line of its standard output with this prefix; skip other lines.

        Raises:
            ChildFailed: it ended before, or there was no such line in `seconds`.
        """
        deadline = time.monotonic() + seconds
        try:
            while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
                if line.startswith(beginning):
                    return line
        except queue.Empty:
            raise ChildFailed(f"no {beginning!r} in {seconds:.0f} s; the end of its log:\n{self._tail()}") from None
        raise ChildFailed(f"ended without {beginning!r}; the end of its log:\n{self._tail()}")

    def figures(self, seconds: float) -> dict[str, float]:
        """Return the JSON object that it prints in one line when it is done.

        Raises:
            ChildFailed: it ended before, or did not print one in `seconds`.
        """
        return json.loads(self.await_line("{", seconds))

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


class Refused(Exception):
    """A program could not do what it was asked for.

    Attributes:
        kind: the simple name of its exception, such as `BKLedgerFencedException`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class AnsweringProgram:
    """One program that answers; leaving the `with` block ends it.

    Args:
        command: program and arguments.
        log: file for its standard error.
        environment: variables in addition to this process's.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._child = Child(command, log, environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, trace)

    def kill(self) -> None:
        """End it as a crash does."""
        os.kill(self._child.pid, signal.SIGKILL)

    def ask(self, op: str, **request: Any) -> Any:
        """Send one request and return its result.

        Raises:
            Refused: what the program met.
            ChildFailed: the program has ended, or does not answer.
        """
        self._child.order(json.dumps({"op": op, **request}))
        answer = json.loads(self._child.await_line("{", _ANSWER_SECONDS))
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        return answer["result"]
