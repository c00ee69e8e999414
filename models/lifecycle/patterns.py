"""Patterns of names in inputs, in which `*` stands for any part of a name and every other character for itself."""

from __future__ import annotations

import re
from functools import lru_cache


def matches(name: str, pattern: str) -> bool:
    """Return whether a name fits a pattern.

    Brackets and question marks are parts of names of topics: they stand for themselves.

    Args:
        name: of a namespace or a topic.
        pattern: as it stands in an input.
    """
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
