"""Pulsar's own classes (`Peer.java`): the coordinator that we compare with, and a participant for both sides."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from deploy.devstack.provision import Toolchain

_HERE = Path(__file__).parent
_SOURCE = _HERE / "Peer.java"
_LOGGING = _HERE / "peer-log4j2.properties"
_COMPILE_SECONDS = 300.0


class PeerFailed(Exception):
    """The peer's source does not compile against the jars."""


class Peer:
    """`Peer.java`, ready to run: compiled where there is a `javac`, else launched from its source.

    Args:
        tools: Java and Pulsar's jars.
        cache: a folder for the compiled classes.

    Raises:
        PeerFailed: the source does not compile against these jars.
    """

    def __init__(self, tools: Toolchain, cache: Path) -> None:
        self._java = str(tools.java)
        jars = f"{tools.jars}/*"
        javac = shutil.which(str(tools.java.with_name("javac"))) or shutil.which("javac")
        if javac is None:
            self._program = ["-cp", jars, str(_SOURCE)]
            return
        classes = cache / f"peer-{hashlib.sha256(_SOURCE.read_bytes() + jars.encode()).hexdigest()[:16]}"
        if not (classes / "Peer.class").exists():
            _compile(javac, jars, classes)
        self._program = ["-cp", f"{classes}:{jars}", "Peer"]

    def coordinator(self, source: str, target: str) -> list[str]:
        """Command line of Pulsar's MigrationCoordinator."""
        return self._command("1g", "coordinator", source, target)

    def participant(self, source: str) -> list[str]:
        """Command line of what stands for the cluster's broker."""
        return self._command("256m", "participant", source)

    def _command(self, heap: str, mode: str, *arguments: str) -> list[str]:
        options = [f"-Xmx{heap}", f"-Dlog4j2.configurationFile={_LOGGING}"]
        return [self._java, *options, *self._program, mode, *arguments]


def _compile(javac: str, jars: str, classes: Path) -> None:
    classes.mkdir(parents=True, exist_ok=True)
    command = [javac, "-nowarn", "-proc:none", "-cp", jars, "-d", str(classes), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    if done.returncode:
        raise PeerFailed(f"{_SOURCE.name} does not compile:\n{done.stderr}")
