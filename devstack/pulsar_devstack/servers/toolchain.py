"""The programs that a stack runs on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
"""Locks, Go modules and the servers' common files."""


@dataclass(frozen=True)
class Toolchain:
    """Everything that starting a stack needs.

    Attributes:
        pulsar: the version of the brokers.
        java: the `java` program.
        java_version: its major version.
        jars: the folder of the jars of ZooKeeper, BookKeeper and Pulsar.
        test_server: Temporal's test server, as `WorkflowEnvironment.start_time_skipping` takes it.
        temporal: the `temporal` CLI, whose `server start-dev` is the dev server with the Web UI.
        oxia: an Oxia server that takes the flags of `oxia standalone`.
        archives: a folder of loaded classes, one `<kind>.jsa` for each kind of JVM, which starts faster with it.
        more_jars: folders of further jars, for Java programs next to the servers.
        recording: whether JVMs write their archive when they end, instead of reading it.
    """

    pulsar: str
    java: Path
    java_version: int
    jars: Path
    test_server: Path
    temporal: Path
    oxia: Path
    archives: Path | None = None
    more_jars: tuple[Path, ...] = ()
    recording: bool = False
