"""Rules for pages: sentences and table cells that can be read once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.prose.problem import Problem

LONGEST_SENTENCE = 35
"""Words."""
LONGEST_AVERAGE = 18
"""Words for each sentence of a page."""
LONGEST_CELL = 160
"""Characters of a table cell, without the addresses of links."""

_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[A-Z0-9`*_\[(\"'])")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
# Generated from the code, whose texts are checked there; old entries of the changelog stay as they were released.
_FREE = re.compile(r"<!-- prose: off -->.*?<!-- prose: on -->", re.DOTALL)


def problems(path: Path) -> Iterator[Problem]:
    """Yield sentences and table cells that are too long, and a page whose sentences are too long on average."""
    text = path.read_text()
    counts: list[int] = []
    for line, block in _blocks(text):
        if block.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", _plain(block)):
                if len(cell.strip()) > LONGEST_CELL:
                    yield Problem(path, line, "cell", f"{len(cell.strip())} characters: {cell.strip()[:50]}…")
            continue
        for sentence in sentences(block):
            words = len(sentence.split())
            counts.append(words)
            if words > LONGEST_SENTENCE:
                yield Problem(path, line, "sentence", f"{words} words: {sentence[:60]}…")
    if counts and (average := sum(counts) / len(counts)) > LONGEST_AVERAGE:
        yield Problem(path, 1, "sentence", f"{average:.1f} words on average; at most {LONGEST_AVERAGE}")


def sentences(block: str) -> list[str]:
    """Return the sentences of a paragraph or list item."""
    # Links are replaced after the split: a sentence may start with one whose text is a name in lower case.
    return [sentence for text in _END.split(block) if len((sentence := _plain(text.strip())).split()) > 1]


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, list items and lines of tables, each with its first line; no code and no headings."""
    text = _FREE.sub(lambda match: "\n" * match[0].count("\n"), text)
    fenced = False
    block: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        ends = fenced or not line.strip() or line.lstrip().startswith(("```", "#", "|", "<")) or _ITEM.match(line)
        if ends and block:
            yield start, " ".join(block)
            block = []
        if fenced or not line.strip() or line.lstrip().startswith(("```", "#", "<")):
            continue
        if line.lstrip().startswith("|"):
            yield number, line.strip()
            continue
        start = start if block else number
        block.append(_ITEM.sub("", line).strip())
