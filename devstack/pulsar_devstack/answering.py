"""Programs that answer: one request and one answer, in JSON, on each line."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pulsar_devstack.children import Child

_SECONDS = 120.0


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
        environment: variables beside those of this process.
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
        answer = json.loads(self._child.await_line("{", _SECONDS))
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        return answer["result"]
