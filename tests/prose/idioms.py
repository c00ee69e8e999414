"""Banned idioms, found by codespell with the dictionary `banned_words.txt`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.prose.problem import Problem

_HERE = Path(__file__).parent
_DICTIONARY = _HERE / "banned_words.txt"
_FIRST_CHECKED = "Check for banned idioms, docstrings and names"
"""Subject of the commit since which messages are checked: earlier ones cannot be changed."""
_SUFFIXES = {".py", ".md", ".toml", ".proto", ".yaml", ".yml", ".cfg", ".sh"}
_NOT_OURS = re.compile(r"_pb2\.pyi?$|^tests/histories/|^tests/prose/|\.lock$")
_REPORT = re.compile(r"^(?P<path>.*?):(?P<line>\d+): (?P<word>.+?) ==> (?P<instead>.*)$")
# Usual English that contains a banned word: a position that is meant literally, for example.
_USUAL = (
    r"\b[Tt]here (is|are|was|were) no\b|\b(is|are|was|were) no (longer|(more|less|later|earlier|older|newer) than)\b|"
    r"\bbehind (a|an|the|its|their|one|this|that) ([\w-]+ )?"
    r"(balancers?|prox(y|ies)|firewalls?|NATs?|gateways?|address(es)?)\b"
    r"|\b(falls?|fell|fallen|falling|lags?|lagged|lagging|far|bytes|entries|messages|seconds) behind\b"
)


def tracked(paths: Sequence[str]) -> list[Path]:
    """Return the files of ours below these paths that contain text and are under version control."""
    listing = subprocess.run(["git", "ls-files", "--", *paths], capture_output=True, text=True, check=True, timeout=60)
    return [
        Path(name)
        for name in listing.stdout.splitlines()
        if (Path(name).suffix in _SUFFIXES or Path(name).name == "Makefile") and not _NOT_OURS.search(name)
    ]


def in_files(paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield the banned idioms of files."""
    if paths:
        yield from _reported(_codespell(*(str(path) for path in paths)), None)


def in_commits() -> Iterator[Problem]:
    """Yield the banned idioms of commit messages; none where this is not a clone."""
    log = subprocess.run(
        ["git", "log", "--format=%h%x00%s%n%b%x01"], capture_output=True, text=True, check=False, timeout=60
    )
    for commit in log.stdout.split("\x01"):
        name, _, message = commit.strip().partition("\x00")
        if not message or message.startswith(_FIRST_CHECKED):
            return
        yield from _reported(_codespell("-", text=message), Path(f"commit {name}"))


def _codespell(*arguments: str, text: str | None = None) -> str:
    """Return what codespell prints; a line for each word, or for text two: the text, and the word."""
    command = [sys.executable, "-m", "codespell_lib", "--regex", _pattern()]
    command += ["--dictionary", str(_DICTIONARY), "--ignore-regex", _USUAL, "--disable-colors", "--quiet-level", "35"]
    result = subprocess.run(
        [*command, *arguments], input=text, capture_output=True, text=True, check=False, timeout=120
    )
    if result.returncode not in (0, 65):
        raise RuntimeError(f"codespell failed with exit code {result.returncode}: {result.stderr}")
    return result.stdout


def _pattern() -> str:
    """Return the expression for a word, together with the one after it where the dictionary has such a pair."""
    words = [line.partition("->")[0] for line in _DICTIONARY.read_text().splitlines()]
    seconds = sorted({word for pair in words for word in re.split(r"[ _-]", pair)[1:]})
    return rf"[A-Za-z]+(?:[ _-](?:{'|'.join(seconds)})(?![A-Za-z]))?"


def _reported(output: str, name: Path | None) -> Iterator[Problem]:
    for line in output.splitlines():
        if match := _REPORT.match(line):
            path = name or Path(match["path"].removeprefix("./"))
            yield Problem(path, int(match["line"]), "idiom", f"{match['word']!r}; write: {match['instead']}")
