"""Pulsar's own classes (`Peer.java`): the coordinator that we compare with, and a participant for both sides."""

from __future__ import annotations

from pathlib import Path

from pulsar_devstack.servers.java_programs import JavaProgram
from pulsar_devstack.servers.provision import Toolchain


class Peer:
    """`Peer.java`, ready to run.

    Args:
        tools: Java and Pulsar's jars.
        cache: a folder for the compiled classes.

    Raises:
        ProvisionFailed: the source does not compile against these jars.
    """

    def __init__(self, tools: Toolchain, cache: Path) -> None:
        self._program = JavaProgram(Path(__file__).with_name("Peer.java"), tools, cache=cache)

    def coordinator(self, source: str, target: str) -> list[str]:
        """Return the command line of Pulsar's MigrationCoordinator."""
        return self._program.command("coordinator", source, target, options=("-Xmx1g",))

    def participant(self, source: str) -> list[str]:
        """Return the command line of the program that plays a broker of the cluster."""
        return self._program.command("participant", source, options=("-Xmx256m",))
