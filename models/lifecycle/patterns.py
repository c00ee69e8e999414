"""Patterns of names in inputs: `*` matches any text, every other character matches itself."""

from __future__ import annotations

import re
from functools import lru_cache


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern.

    Brackets and question marks match themselves, since names of topics may contain them.

    Args:
        name: of a namespace or a topic.
        pattern: from an input.
    """
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
