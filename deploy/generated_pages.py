"""Write docs/known_defects.md, docs/releases.md and docs/coverage.md: `python -m deploy.generated_pages`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from models import defects, releases
from models.coverage import table
from models.coverage.table import COLUMNS, Feature, coverage
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
_COVERAGE = """\
# What moves, what does not, and what is refused

After this page you know what becomes of each feature of Pulsar in each migration. The dry run of a migration and
`pulsar-migrate features` say which of them your cluster uses. This page is generated from `models/coverage` by
`python -m deploy.generated_pages`.

- *carried*: the migration moves it, or keeps it working; the text says how that is verified.
- *untouched*: it stays as it is.
- *decision*: the precheck stops until you set `"accept": ["<feature>"]`, or the named field of the input. The report
  repeats what you accepted.
- *refused*: the precheck stops. The checks are codes of blockers; some refuse only what cannot be carried.
- What is in no table is unknown: a setting of brokers, a policy, a path of metadata, or a field of a topic's
  statistics. The precheck stops with `UNKNOWN_FEATURE`, unless you accept the item by its name.
- Migrations of many topics, and operations that change topics, have the table of `scalable-topic`. Controllers compare
  a cluster when they create their topic.
- What was read from brokers 4.0.8, 4.2.4 and 5.0.1 and does not matter is in `models/coverage/without_effect.toml`.
"""
_COVERAGE_HEADS = ("feature", "what it is", "outcome", "how or why", "checks")
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


def coverage_page() -> str:
    """Return the text of the page of features, a table for each migration."""
    lines = [_COVERAGE]
    features = coverage().features
    for kind in COLUMNS:
        lines += [f"## {kind}", "", *_table(_COVERAGE_HEADS, (_feature_cells(row, kind) for row in features)), ""]
    lines += ["## How they are seen", ""]
    lines += [f"- `{row.id}`: {_shown_by(row)}" for row in features]
    return "\n".join(lines) + "\n"


PAGES = {defects.PAGE: defects_page, releases.PAGE: releases_page, table.PAGE: coverage_page}
"""What writes each page, by its path in the repository."""


def _feature_cells(feature: Feature, kind: str) -> tuple[str, ...]:
    cell = feature.cell(kind)
    checks = ", ".join(f"`{code}`" for code in cell.codes) or (f"`{feature.id}`" if cell.by_census else "")
    return (f"`{feature.id}`", feature.title, cell.outcome, cell.text, checks)


def _shown_by(feature: Feature) -> str:
    return ", ".join(f"`{item}`" for item in feature.items) or f"nothing: {feature.unseen}"


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
