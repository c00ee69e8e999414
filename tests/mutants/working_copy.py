"""Runs tests on changed copies of the tree; the tree itself is only read."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.mutants.marks import ROOT
from tests.mutants.mutant import Mutant

_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "out")
_PYTEST = ["-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--exhaustive"]
# A mutant may wait for what never comes.
_AT_LEAST, _TIMES_LONGER = 30.0, 5
_FOR_ALL_TESTS = 900.0
_TESTS_FAILED, _TOO_LONG = 1, -1
_PYTEST_DID_NOT_WORK = range(2, 6)


class Run(NamedTuple):
    """How a selection of tests ended: pytest's exit code, what it printed, and how long it took."""

    code: int
    output: str
    seconds: float

    @property
    def passed(self) -> bool:
        """True if all tests passed."""
        return self.code == 0

    @property
    def noticed(self) -> bool:
        """True if a test failed, never ended, or ended the process of the tests; False if pytest did not work."""
        return not self.passed and self.code not in _PYTEST_DID_NOT_WORK

    @property
    def by(self) -> str:
        """Name of the test that failed."""
        if self.code == _TOO_LONG:
            return "its tests did not end"
        if self.code != _TESTS_FAILED:
            return f"the process of the tests ended with {self.code}"
        lines = (line.split() for line in self.output.splitlines())
        return next((words[1] for words in lines if len(words) > 1 and words[0] in ("FAILED", "ERROR")), "")


class WorkingCopy:
    """Copy of the tree in which one mutant after the other is tried; a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True)
        self._tree = Path(self._folder.name) / "tree"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        shutil.copytree(ROOT, self._tree, ignore=_LEFT_OUT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._end_leftovers()
        self._folder.cleanup()

    def unchanged(self, tests: tuple[str, ...]) -> Run:
        """Run tests on the code as it is."""
        return self._run(tests, _FOR_ALL_TESTS, compiled=True)

    def changed(self, mutant: Mutant, usual: float) -> Run:
        """Run a mutant's tests, which take so many seconds without it."""
        file = self._tree / mutant.mark.file
        original = file.read_bytes(), file.stat()
        file.write_text(mutant.applied(self._tree))
        # Python matches compiled code with a file by its second and size; this second is unique.
        os.utime(file, (original[1].st_mtime + 10, original[1].st_mtime + 10))
        try:
            return self._run(mutant.selection, max(_AT_LEAST, _TIMES_LONGER * usual), compiled=False)
        finally:
            file.write_bytes(original[0])
            os.utime(file, ns=(original[1].st_atime_ns, original[1].st_mtime_ns))

    def _run(self, tests: tuple[str, ...], limit: float, *, compiled: bool) -> Run:
        # The path comes first, also in processes that tests start: what is installed is the tree, not its copy.
        variables = {**os.environ, "PYTHONPATH": str(self._tree), "PYTHONDONTWRITEBYTECODE": "" if compiled else "1"}
        begun = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, *_PYTEST, *tests],
            cwd=self._tree,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = self._process.communicate(timeout=limit)
            code = self._process.returncode
        except subprocess.TimeoutExpired:
            self._end()
            output, code = "", _TOO_LONG
        self._end_leftovers()
        return Run(code, output, time.monotonic() - begun)

    def _end_leftovers(self) -> None:
        """End processes of tests that a mutant did not end; their environment has the copy's path."""
        mine = f"PYTHONPATH={self._tree}".encode()
        for environment in Path("/proc").glob("[0-9]*/environ"):
            # It has ended since, or belongs to another user.
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if any(variable.startswith(mine) for variable in environment.read_bytes().split(b"\0")):
                    os.kill(int(environment.parent.name), signal.SIGKILL)

    def _end(self) -> None:
        if self._process and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
