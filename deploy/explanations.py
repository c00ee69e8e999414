"""Texts about blockers and failures, from `explanations.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Explanation(NamedTuple):
    """The meaning of a blocker's code or a failure's type.

    Attributes:
        means: what is wrong.
        cure: what to do.
        page: which page of docs/ has more, with or without a fragment; empty for none.
    """

    means: str
    cure: str
    page: str = ""


class Group(NamedTuple):
    """Blockers that the same migrations give.

    Attributes:
        migrations: their kinds.
        blockers: by code.
    """

    migrations: tuple[str, ...]
    blockers: Mapping[str, Explanation]


class Prefix(NamedTuple):
    """The first part of the codes of what a check could not read.

    Attributes:
        migrations: which migrations give it, in words.
        what: the kind of object whose codes have this prefix.
    """

    migrations: str
    what: str


class Explanations(NamedTuple):
    """The texts about blockers and failures.

    Attributes:
        groups: with the blockers.
        prefixes: by the first part of the codes of what a check could not read.
        suffixes: by the rest of these codes.
        failures: by type.
    """

    groups: Sequence[Group]
    prefixes: Mapping[str, Prefix]
    suffixes: Mapping[str, Explanation]
    failures: Mapping[str, Explanation]


@cache
def explanations() -> Explanations:
    """Return all texts, in the order of the data."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    groups = [Group(tuple(row["migrations"]), _explained(row["blockers"])) for row in data["group"]]
    prefixes = {code: Prefix(*words) for code, words in data["prefix"].items()}
    return Explanations(groups, prefixes, _explained(data["suffix"]), _explained(data["failure"]))


def _explained(rows: Mapping[str, Sequence[str]]) -> dict[str, Explanation]:
    return {name: Explanation(*texts) for name, texts in rows.items()}
