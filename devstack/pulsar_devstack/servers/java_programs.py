"""Small Java programs on the classes of ZooKeeper, BookKeeper and Pulsar."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pulsar_devstack.errors import ProvisionFailed
from pulsar_devstack.servers.cache import cache_folder
from pulsar_devstack.servers.child_programs import AnsweringProgram
from pulsar_devstack.servers.toolchain import DATA, Toolchain

JAVA_SOURCES = DATA / "java"
"""Programs that are not only for tests, and their common protocol."""
# Such programs live for seconds: what a start costs counts.
_LIGHT = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_LOGGING = DATA / "stderr-log4j2.properties"
_COMPILE_SECONDS = 300.0


class JavaProgram:
    """A source file with a `main`, compiled and ready to run.

    What libraries log goes to standard error, so standard output is the program's own.

    Args:
        source: `Name.java` with the class `Name` in no package.
        tools: Java and the jars.
        shared: further source files that it uses.
        cache: a folder for compiled classes; by default that of the user, shared with other checkouts.

    Raises:
        ProvisionFailed: the source does not compile against these jars.
    """

    def __init__(
        self, source: Path, tools: Toolchain, *, shared: Sequence[Path] = (), cache: Path | None = None
    ) -> None:
        self._java = str(tools.java)
        folders = (tools.jars, *tools.more_jars)
        jars = ":".join(str(jar) for folder in folders for jar in sorted(folder.glob("*.jar")))
        sources = [source, *shared]
        content = b"".join(file.read_bytes() for file in sources)
        key = hashlib.sha256(content + jars.encode()).hexdigest()[:16]
        classes = (cache or cache_folder() / "classes") / f"{source.stem.lower()}-{key}"
        if not classes.exists():
            _compile(self._java, jars, sources, classes)
        self._program = ["-cp", ":".join([str(classes), *(f"{folder}/*" for folder in folders)]), source.stem]

    def command(self, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """Return the command line.

        Args:
            arguments: those of `main`.
            options: of the Java machine, such as `-Xmx256m`.
        """
        logging = f"-Dlog4j2.configurationFile={_LOGGING}"
        return [self._java, *options, logging, *self._program, *arguments]


def _compile(java: str, jars: str, sources: Sequence[Path], classes: Path) -> None:
    classes.parent.mkdir(parents=True, exist_ok=True)
    # Compiled aside and renamed when complete: others may compile the same, and a broken result must not remain.
    fresh = Path(tempfile.mkdtemp(prefix=f"{classes.name}.", dir=classes.parent))
    try:
        # The compiler of this very Java, whichever `javac` may be on the PATH; it takes no `*` in a class path.
        javac = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        command = [*javac, "-nowarn", "-proc:none", "-cp", jars, "-d", str(fresh), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
        if done.returncode:
            raise ProvisionFailed(f"{sources[0].name} does not compile:\n{done.stderr}")
        try:
            fresh.rename(classes)
        except OSError:
            if not classes.exists():
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


class JavaTool(AnsweringProgram):
    """One Java machine that answers; leaving the `with` block ends it.

    Args:
        source: `Name.java`, with a class that answers by `JsonLines`.
        tools: Java and the jars.
        folder: of its log.
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
