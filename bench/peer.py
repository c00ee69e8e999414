"""Runs Pulsar's own classes (`Peer.java`): the coordinator that we compare with, and a participant for both sides."""

from __future__ import annotations

import hashlib
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_HERE = Path(__file__).parent
_SOURCE = _HERE / "Peer.java"
_LOGGING = _HERE / "peer-log4j2.properties"
_START_SECONDS = 120.0
_COMPILE_SECONDS = 300.0


class PeerError(Exception):
    """The peer did not start, or did not come to its end; its log says why."""


class PeerCode:
    """`Peer.java`, ready to run: compiled where there is a `javac`, else launched from its source."""

    def __init__(self, java: str, classpath: str, cache: Path) -> None:
        """`classpath`: Pulsar's jars; `cache`: a folder for the compiled classes.

        Raises:
            PeerError: the source does not compile against these jars.
        """
        javac = shutil.which(str(Path(java).with_name("javac"))) or shutil.which("javac")
        if javac is None:
            self._program = ["-cp", classpath, str(_SOURCE)]
        else:
            classes = cache / f"peer-{hashlib.sha256(_SOURCE.read_bytes() + classpath.encode()).hexdigest()[:16]}"
            if not (classes / "Peer.class").exists():
                _compile(javac, classpath, classes)
            self._program = ["-cp", f"{classes}:{classpath}", "Peer"]
        self._java = java

    def command(self, heap: str, mode: str, *arguments: str) -> list[str]:
        """The command line of one mode, with at most `heap` (such as `1g`) of Java heap."""
        options = [f"-Xmx{heap}", f"-Dlog4j2.configurationFile={_LOGGING}"]
        return [self._java, *options, *self._program, mode, *arguments]


def _compile(javac: str, classpath: str, classes: Path) -> None:
    classes.mkdir(parents=True, exist_ok=True)
    command = [javac, "-nowarn", "-proc:none", "-cp", classpath, "-d", str(classes), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    if done.returncode:
        raise PeerError(f"{_SOURCE.name} does not compile:\n{done.stderr}")


class PeerProcess:
    """One running mode of the peer; leaving the `with` block kills it if it still runs."""

    def __init__(self, command: list[str], log: Path) -> None:
        """Start `command`, with its standard error in `log`."""
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, name="peer", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id of the Java machine."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def await_ready(self) -> None:
        """Wait until it has its connections and waits for orders.

        Raises:
            PeerError: it ended, or was not ready in two minutes.
        """
        self._expect(_START_SECONDS, "READY")

    def go(self) -> None:
        """Let the coordinator start its migration."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Let the participant end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def result(self, seconds: float) -> dict[str, float]:
        """The figures that it prints at its end.

        Raises:
            PeerError: it ended without them, or did not end in `seconds`.
        """
        return json.loads(self._expect(seconds, "{"))

    def _expect(self, seconds: float, beginning: str) -> str:
        try:
            line = self._lines.get(timeout=seconds)
            while line is not None and not line.startswith(beginning):
                line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise PeerError(f"the peer said nothing for {seconds:.0f} s; see {self._log}") from None
        if line is None:
            raise PeerError(f"the peer ended too early:\n{self._log.read_text()[-2_000:]}")
        return line

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)
