"""Java programs that answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pulsar_devstack.answering import AnsweringProgram
from pulsar_devstack.jvm import JavaProgram
from pulsar_devstack.toolchain import DATA, Toolchain

JAVA_SOURCES = DATA / "java"
"""Where programs lie that not only tests use, and what answers for all of them."""
# Such programs live for seconds: what a start costs counts.
_LIGHT = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


class JavaTool(AnsweringProgram):
    """One Java machine that answers; leaving the `with` block ends it.

    Args:
        source: `Name.java`, with a class that answers by `JsonLines`.
        tools: Java and the jars.
        folder: where its log goes.
        options: of the Java machine.
        shared: further source files that it uses.

    Attributes:
        log: what it writes to standard error.
    """

    def __init__(
        self,
        source: Path,
        tools: Toolchain,
        folder: Path,
        *,
        options: tuple[str, ...] = (),
        shared: Sequence[Path] = (),
    ) -> None:
        program = JavaProgram(source, tools, shared=[JAVA_SOURCES / "JsonLines.java", *shared])
        self.log = folder / f"java-{source.stem.lower()}.log"
        super().__init__(program.command(options=(*_LIGHT, *options)), self.log)
