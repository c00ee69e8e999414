"""Write docs/known_defects.md and docs/releases.md from their tables: `python -m deploy.generated_pages`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from models import defects, releases
from models.defects import Defect, Product, known_defects
from models.releases import DEFAULTS, LINES, NAMESPACE_POLICIES, TOPIC_POLICIES, Behaviour, PolicyField, parse_release

ROOT = Path(__file__).parents[1]

_DEFECTS = """\
# Known defects of the servers

After this page you know which defects of Pulsar, BookKeeper and Oxia matter during a migration, and what to do.
The precheck of each migration and `pulsar-migrate doctor` name those of the releases that they see, and the report
repeats them. This page is generated from `models/defects.toml` by `python -m deploy.generated_pages`.

- A defect is a warning, unless the migration itself can lose data through it: then the precheck refuses
  (`DEFECT_<id>`). To accept the loss, name its id in `accept_defects` of the input.
- Brokers report their release. If those of a cluster differ, the oldest decides what the migration relies on, and the
  defects of all are named. Servers of BookKeeper and Oxia do not report theirs: compare yours with the tables.
- Numbers are issues and pull requests of apache/pulsar, unless another project is named.
- What releases do differently, and not wrong, is in [releases.md](releases.md).
"""
_DEFECT_HEADS = ("id", "affects", "what happens, and why it matters", "what to do", "reference")

_RELEASES = """\
# What differs between releases

After this page you know what brokers of 5.0, 4.2 and 4.0 do differently, as far as it matters during a migration.
Prechecks name what differs between brokers of one cluster, and for a blue-green migration also between blue and green;
so does `pulsar-migrate doctor`. This page is generated from `models/releases.py` by `python -m deploy.generated_pages`.

- `yes` stands for every release of the line, `4.2.4` for that release and later ones of its line.
- Defects, and the releases that repair them, are in [known_defects.md](known_defects.md).
- Servers need Java: {java}.
"""
# Kinds that always matter together.
_SCALABLE = "scalable-topic, scalable-namespace, scalable-operation"


def defects_page() -> str:
    """Return the text of the page of known defects."""
    lines = [_DEFECTS]
    for product in Product:
        rows = [_defect_cells(defect) for defect in known_defects() if defect.product is product]
        lines += [f"## {product.display}", "", *_table(_DEFECT_HEADS, rows), ""]
    lines += ["## By migration", ""]
    for migration in sorted({name for defect in known_defects() for name in defect.migrations}):
        concerning = [defect for defect in known_defects() if migration in defect.migrations]
        listed = ", ".join(f"`{defect.id}`{_refused(defect, migration)}" for defect in concerning)
        lines.append(f"- **{migration.replace('/', ', ')}**: {listed}")
    return "\n".join(lines) + "\n"


def releases_page() -> str:
    """Return the text of the page of differences between releases."""
    behaviours = [
        (row.says, *_since(row.firsts), ", ".join(row.migrations).replace(_SCALABLE, "scalable topics"), row.reference)
        for row in sorted(Behaviour, key=lambda row: row.migrations)
    ]
    policies = [
        *((f"namespace: `{name}`", *_policy_cells(policy)) for name, policy in NAMESPACE_POLICIES.items()),
        *((f"topic: `{name}`", *_policy_cells(policy)) for name, policy in TOPIC_POLICIES.items()),
    ]
    defaults = [(f"`{name}`", *map(_default_cell, default.values)) for name, default in DEFAULTS.items()]
    java = ", ".join(f"{line} {parse_release(f'{line}.0').minimum_java} or newer" for line in LINES)
    lines = [
        _RELEASES.format(java=java),
        "## What brokers do",
        "",
        *_table(("what", *LINES, "matters for", "reference"), behaviours),
        "",
        "## Policies",
        "",
        "All other policies of namespaces, topics and subscriptions are the same in all three lines.",
        "",
        *_table(("policy", *LINES, "if it is set on blue, and green does not have it"), policies),
        "",
        "## Defaults of brokers",
        "",
        "These hold where `broker.conf` does not name the setting. Names of classes are shown without their package.",
        "",
        *_table(("setting", *LINES), defaults),
    ]
    return "\n".join(lines) + "\n"


PAGES = {defects.PAGE: defects_page, releases.PAGE: releases_page}
"""What writes each page, by its path in the repository."""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(heads), f"|{'---|' * len(heads)}", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _since(firsts: Sequence[str]) -> list[str]:
    """Return a cell for each line: yes, no, or the first release."""
    by_line = {first.rpartition(".")[0]: first for first in firsts}
    return ["no" if line not in by_line else by_line[line].replace(f"{line}.0", "yes") for line in LINES]


def _policy_cells(policy: PolicyField) -> tuple[str, ...]:
    effect = "it is a difference that blocks" if policy.relied_on else "it is left out, with a note"
    return (*_since(policy.firsts), effect)


def _default_cell(value: str | None) -> str:
    return "not there" if value is None else f"`{value.rpartition('.')[2]}`"


def _defect_cells(defect: Defect) -> tuple[str, ...]:
    return (f"`{defect.id}`", _affected(defect), f"{defect.symptom} {defect.why}", defect.advice, defect.reference)


def _refused(defect: Defect, migration: str) -> str:
    """Return the note that a migration is refused, with its mode where that alone is."""
    if migration in defect.refused:
        return " (refused)"
    modes = [name.partition("/")[2] for name in defect.refused if name.startswith(f"{migration}/")]
    return f" (refused: {', '.join(modes)})" if modes else ""


def _affected(defect: Defect) -> str:
    since = f"from {', '.join(defect.since)}" if defect.since else ""
    fixed = f"before {', '.join(defect.fixed_in)}" if defect.fixed_in else "all; no known repair"
    values = " or ".join(f"`{value}`" for value in defect.values)
    setting = f"if `{defect.setting}` is {values}" if defect.setting else ""
    return ", ".join(filter(None, (since, fixed, setting)))


if __name__ == "__main__":
    for path, page in PAGES.items():
        (ROOT / path).write_text(page())
