"""Banned idioms, found by codespell with the dictionary `banned_words.txt`."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.prose.problem import Problem

_HERE = Path(__file__).parent
_DICTIONARY = _HERE / "banned_words.txt"
FIRST_CHECKED = "Check the prose with the other checks"
"""Subject of the commit since which messages are checked: earlier ones cannot be changed."""
_SUFFIXES = {".py", ".md", ".toml", ".proto", ".yaml", ".yml", ".cfg", ".sh"}
_NOT_OURS = re.compile(r"_pb2\.pyi?$|^tests/histories/|^tests/prose/|/test_prose\.py$|\.lock$")
_MADE_BY_TOOLS = {"__pycache__", "build", "dist", "out"}
_REPORT = re.compile(r"^(?P<path>.*?):(?P<line>\d+): (?P<word>.+?) ==> (?P<instead>.*)$")
# Usual English that contains a banned word: a position that is meant literally, for example.
_USUAL = (
    r"\b[Tt]here (is|are|was|were) no\b|\b(is|are|was|were) no (longer|(more|less|later|earlier|older|newer) than)\b|"
    r"\bbehind (a|an|the|its|their|one|this|that) ([\w-]+ )?"
    r"(balancers?|prox(y|ies)|firewalls?|NATs?|gateways?|address(es)?)\b"
    r"|\b(falls?|fell|fallen|falling|lags?|lagged|lagging|far|bytes|entries|messages|seconds) behind\b"
)


def files_below(paths: Sequence[str]) -> list[Path]:
    """Return the files of ours below these paths that contain text; in a clone, those under version control."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "--", *paths], capture_output=True, text=True, timeout=60, check=True
        )
        names = listing.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        # An unpacked archive, or a machine without git.
        names = [str(file) for path in paths for file in _walk(Path(path))]
    return [
        Path(name)
        for name in names
        if (Path(name).suffix in _SUFFIXES or Path(name).name == "Makefile") and not _NOT_OURS.search(name)
    ]


def _walk(path: Path) -> Iterator[Path]:
    """Yield the files below a path, without those that tools make."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if not child.name.startswith(".") and child.name not in _MADE_BY_TOOLS:
                yield from _walk(child)


def in_files(paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield the banned idioms of files."""
    for line in _codespell(paths).splitlines() if paths else ():
        if match := _REPORT.match(line):
            text = f"{match['word']!r}; write: {match['instead']}"
            yield Problem(Path(match["path"].removeprefix("./")), int(match["line"]), "idiom", text)


def in_commits() -> Iterator[Problem]:
    """Yield the banned idioms of the messages of commits that no remote has: others cannot be changed any more.

    A history without `FIRST_CHECKED` is not that of the project, and is not checked.
    """
    command = ["git", "log", "--format=%h%x00%s%n%b%x01", "HEAD", "--not", "--remotes"]
    try:
        log = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return
    messages: dict[str, str] = {}
    for commit in log.stdout.split("\x01"):
        name, _, message = commit.strip().partition("\x00")
        if name:
            messages[name] = message
    checked = list(itertools.takewhile(lambda name: not messages[name].startswith(FIRST_CHECKED), messages))
    if len(checked) == len(messages):
        return
    with TemporaryDirectory() as folder:
        # A file for each message: of standard input codespell prints another form, without the name of a commit.
        for name in checked:
            Path(folder, name).write_text(messages[name])
        for problem in in_files([Path(folder, name) for name in checked]):
            yield replace(problem, path=Path(f"commit {problem.path.name}"))


def _codespell(paths: Sequence[Path]) -> str:
    """Return what codespell prints: a line for each word."""
    command = [sys.executable, "-m", "codespell_lib", "--regex", _pattern()]
    command += ["--dictionary", str(_DICTIONARY), "--ignore-regex", _USUAL, "--disable-colors", "--quiet-level", "35"]
    result = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False, timeout=120)
    if result.returncode not in (0, 65):
        raise RuntimeError(f"codespell failed with exit code {result.returncode}: {result.stderr}")
    return result.stdout


def _pattern() -> str:
    """Return the expression for the pairs of words in the dictionary, else for a single word."""
    words = [line.partition("->")[0] for line in _DICTIONARY.read_text().splitlines()]
    pairs = "|".join(re.escape(word) for word in words if not word.isalpha())
    return rf"(?i:(?<![a-z])(?:{pairs})(?![a-z])|[a-z]+)"
