"""Write docs/known_defects.md from models/defects.toml: `python -m deploy.known_defects_page`."""

from __future__ import annotations

from pathlib import Path

from models.defects import PAGE, Defect, Product, known_defects

ROOT = Path(__file__).parents[1]

_INTRO = """\
# Known defects of the servers

After this page you know which defects of Pulsar, BookKeeper and Oxia matter during a migration, and what to do.
The precheck of each migration and `pulsar-migrate doctor` name those of the releases that they see, and the report
repeats them. This page is generated from `models/defects.toml` by `python -m deploy.known_defects_page`.

- A defect is a warning, unless the migration itself can lose data through it: then the precheck refuses
  (`DEFECT_<id>`). To accept the loss, name its id in `accept_defects` of the input.
- Brokers report their release. If those of a cluster differ, the oldest decides what the migration relies on, and the
  defects of all are named. Servers of BookKeeper and Oxia do not report theirs: compare yours with the tables.
- Numbers are issues and pull requests of apache/pulsar, unless another project is named.
"""
_HEADS = (
    "| id | affects | what happens, and why it matters | what to do | reference |",
    "|---|---|---|---|---|",
)


def page() -> str:
    """Return the text of the page."""
    lines = [_INTRO]
    for product in Product:
        lines += [f"## {product.display}", "", *_HEADS]
        lines += [_row(defect) for defect in known_defects() if defect.product is product]
        lines.append("")
    lines += ["## By migration", ""]
    for migration in sorted({name for defect in known_defects() for name in defect.migrations}):
        defects = [defect for defect in known_defects() if migration in defect.migrations]
        listed = ", ".join(f"`{defect.id}`{_refused(defect, migration)}" for defect in defects)
        lines.append(f"- **{migration.replace('/', ', ')}**: {listed}")
    return "\n".join(lines) + "\n"


def _row(defect: Defect) -> str:
    cells = (f"`{defect.id}`", _affected(defect), f"{defect.symptom} {defect.why}", defect.advice, defect.reference)
    return f"| {' | '.join(cells)} |"


def _refused(defect: Defect, migration: str) -> str:
    """Return the note that a migration is refused, with its mode where that alone is."""
    if migration in defect.refused:
        return " (refused)"
    modes = [name.partition("/")[2] for name in defect.refused if name.startswith(f"{migration}/")]
    return f" (refused: {', '.join(modes)})" if modes else ""


def _affected(defect: Defect) -> str:
    since = f"from {', '.join(defect.since)}" if defect.since else ""
    fixed = f"before {', '.join(defect.fixed_in)}" if defect.fixed_in else "all; no known repair"
    setting = f"if `{defect.setting}` is `{defect.value}`" if defect.setting else ""
    return ", ".join(filter(None, (since, fixed, setting)))


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page())
