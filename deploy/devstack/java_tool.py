"""Java programs that answer: one request and one answer, in JSON, on each line."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy.devstack.children import Child
from deploy.devstack.jvm import JavaProgram
from deploy.devstack.toolchain import DATA, Toolchain

JAVA_SOURCES = DATA / "java"
"""Where programs lie that not only tests use, and what answers for all of them."""
_SECONDS = 120.0
# Such programs live for seconds: what a start costs counts.
_LIGHT = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


class JavaClientError(Exception):
    """A Java client refused.

    Attributes:
        kind: the simple name of its exception, such as `BKLedgerFencedException`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class JavaTool:
    """One Java machine that answers; leaving the `with` block ends it.

    Args:
        source: `Name.java`, with a class that answers by `JsonLines`.
        tools: Java and the jars.
        folder: where its log goes.
        options: of the Java machine.
    """

    def __init__(self, source: Path, tools: Toolchain, folder: Path, *, options: tuple[str, ...] = ()) -> None:
        program = JavaProgram(source, tools, shared=[JAVA_SOURCES / "JsonLines.java"])
        self._child = Child(program.command(options=(*_LIGHT, *options)), folder / f"java-{source.stem.lower()}.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, trace)

    def ask(self, op: str, **request: Any) -> Any:
        """Send one request and return its result.

        Raises:
            JavaClientError: what the client threw.
            ChildFailed: the program has ended, or does not answer.
        """
        self._child.order(json.dumps({"op": op, **request}))
        answer = json.loads(self._child.await_line("{", _SECONDS))
        if "error" in answer:
            raise JavaClientError(answer["error"], answer["message"])
        return answer["result"]
