"""Write the generated pages of docs/: `python -m deploy.generated_pages`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from cli.commands.plans import schema_text
from cli.plan_files import SCHEMAS, plan_schema
from deploy.explanations import Explanation, Group, explanations
from models import defects, releases
from models.coverage import table
from models.coverage.table import COLUMNS, Feature, Outcome, coverage
from models.defects import Defect, Product, known_defects
from models.lifecycle.failures import FailureKind
from models.releases import (
    DEFAULTS,
    LINES,
    NAMESPACE_POLICIES,
    TESTED,
    TESTED_ZOOKEEPER,
    TOPIC_POLICIES,
    Behaviour,
    PolicyField,
    parse_release,
)
from page.guide import BATCH, guides
from process.exit_codes import MEANINGS, ExitCode, code_of_failure
from worker.catalog import ALL, KINDS, Registered

ROOT = Path(__file__).parents[1]

_DEFECTS = """\
# Known defects of the servers

This page lists defects of Pulsar, BookKeeper and Oxia that matter during a migration, and what to do about them.
The precheck of each migration and `pulsar-migrate doctor` name the defects of the releases that they find. The report
repeats them. This page is generated from `models/defects.toml` by `python -m deploy.generated_pages`.

- A defect is usually a warning. If the migration itself can lose data through it, it is the blocker `DEFECT_<id>`. To
  accept the loss, name the id in `accept_defects` of the input.
- Brokers report their release. If those of a cluster differ, the oldest decides what the migration relies on, and the
  defects of all are named. Servers of BookKeeper and Oxia do not report theirs: compare yours with the tables.
- Numbers are issues and pull requests of apache/pulsar, unless another project is named.
- Differences between releases that are not defects are in [releases.md](releases.md).
"""
_DEFECT_HEADS = ("id", "affects", "what happens", "why it matters", "what to do", "reference")

_RELEASES = """\
# What differs between releases

This page lists what brokers of 5.0, 4.2 and 4.0 do differently, if it matters during a migration. Prechecks and
`pulsar-migrate doctor` name the differences between the brokers of one cluster. For a blue-green migration they also
name those between blue and green. This page is generated from `models/releases.py` by
`python -m deploy.generated_pages`.

- `yes` means every release of the line; `4.2.4` means that release and later ones of its line.
- Defects, and the releases that repair them, are in [known_defects.md](known_defects.md).
- Servers need Java: {java}.
"""
_COVERAGE = """\
# What moves, what does not, and what is refused

This page says what happens to each feature of Pulsar in each migration. The dry run of a migration and
`pulsar-migrate features` name the features that your cluster uses. This page is generated from `models/coverage` by
`python -m deploy.generated_pages`.

- *carried*: the migration moves it, or keeps it working; the text says how that is verified.
- *untouched*: it stays as it is.
- *decision*: the precheck stops until you set `"accept": ["<feature>"]`, or the named field of the input. The report
  repeats what you accepted.
- *refused*: the precheck stops. The checks are codes of blockers; some of them refuse only some uses of the feature.
- An item that is in no table is unknown: a setting of brokers, a policy, a path of metadata, or a field of a topic's
  statistics. The precheck stops with `UNKNOWN_FEATURE`, unless you accept the item by its name.
- Migrations of many topics, and operations that change topics, have the table of `scalable-topic`. Controllers compare
  a cluster when they create their topic.
- Items of brokers 4.0.8, 4.2.4 and 5.0.1 that do not matter are in `models/coverage/without_effect.toml`.
"""
_COVERAGE_HEADS = ("feature", "what it is", "outcome", "how or why", "checks")
_BLOCKERS = """\
# Blockers, failures and exit codes

This page says what a code in a plan, a report or a log means, and what to do. Search the page for the code.
It is generated from `deploy/explanations.toml` by `python -m deploy.generated_pages`.

- A *blocker* is a reason why a migration cannot start. The precheck and the dry run list all of them.
- A *failure* ends a workflow. Its type says what kind of problem it is.
- An *exit code* is how `pulsar-migrate` ends.

A blocker is printed with its cause and its cure, with the names and values of your cluster. The tables here have the
general case. A code with a link has more on another page.

```
1 blocker(s):
1. [SOURCE_EMPTY] zk:127.0.0.1:2181/test holds no metadata. Cure: check the address and the chroot
```

If there are more than 100, the first 99 are listed, and `MORE` counts the others by their codes. *Warnings* do not stop
a migration.

Some checks are repeated before the point of no return, because their result can change. If such a check then finds a
blocker, the migration ends with `ParticipantsNotReady`, which names the same codes. In a blue-green migration the batch
is not flipped, and counts as failed; the other batches continue.
"""
_BREAK_GLASS = """\
# If Temporal and all workers are lost

This page says what to do in each phase of each migration if neither Temporal nor a worker can be brought back soon.
[The page](page.md) of a migration shows the steps of its phase. This page is generated from `page/guide.toml` by
`python -m deploy.generated_pages`.

- Usually, do nothing: bring Temporal and a worker back, and the migration continues where it was.
- The status of a migration, the page, and the search attribute `MigrationPhase` name the phase.
- Names in capitals in a command are yours: `ZOOKEEPER` and `CHROOT` are those of `metadataStoreUrl`, `BLUE` and
  `BROKER` are brokers, and `ID` is the workflow id.
"""
_COMPATIBILITY = """\
# Supported releases

This page says whether your servers are supported, and what happens if they are not. It is generated from
`models/releases.py` and the locks of the development stack, by `python -m deploy.generated_pages`.

## Pulsar

| line | tested with | metadata store | bookie cluster | blue-green | scalable topics | topic controller |
|---|---|---|---|---|---|---|
"""
_OTHER_RELEASES = """\
| your cluster has | what happens |
|---|---|
| another patch release, or a build of a vendor | `UNTESTED_RELEASE`, until you set `"allow_untested_versions": true` |
| brokers of different releases | `MIXED_RELEASES`, until you set the same; then the oldest decides |
| a milestone, or a release of another line | `UNSUPPORTED_RELEASE` |

- A later patch release is assumed to have everything that an earlier one of its line has.
- A topic controller creates no topic on an untested release until you set the same. For a topic that exists it warns,
  and continues.
- `pulsar-migrate doctor` and each precheck name what they find.
- [Differences between releases](releases.md) lists what the lines do differently.
- [Known defects](known_defects.md) lists what to watch for. A defect that can lose data in a migration is a
  [blocker](blockers.md#defects).

## Stores and bookies

Tests use these servers:

"""
_OTHER_SERVERS = """
- **ZooKeeper** {zookeeper} was tested. Servers of other lines are `UNTESTED_RELEASE` too. The worker needs 3.6 or
  newer, for reads during the copy.
- **Oxia** must be 0.16 or newer: older servers ignore the version ids that they must keep. The precheck tests it.
- **Oxia** and **BookKeeper** servers do not report their release. Compare yours with the
  [known defects](known_defects.md#oxia).
- Bookies of the tests are those of the Pulsar release, not of a BookKeeper distribution.

Which store a metadata migration can move:

| from | to | mode |
|---|---|---|
| ZooKeeper | Oxia | `live` or `offline`, on Pulsar 4.2 and 5.0 |
| ZooKeeper | another ZooKeeper | `offline`, on Pulsar 4.0, 4.2 and 5.0 |
| Oxia | ZooKeeper | `offline`, on Pulsar 4.2 and 5.0 |

## Temporal

All tests use the development server of Temporal {temporal}; other servers were not tested.
[Worker versioning](operations.md#rolling-updates) needs 1.28 or newer.

## Java and Python

| what | needs | tests use |
|---|---|---|
| worker, gateway, command line | Python {python} | the same |
| worker | Java 17 or newer, for Spark | PySpark {spark} |
| library of Temporal | `temporalio` {sdk_oldest} or newer | {sdk} |
{java}
"""
_PARTICIPANTS = """\
### ParticipantsNotReady

The message says which of these it is:

- Metadata store: brokers or bookies were not ready in `preparation_timeout`. See their logs. Can they reach the target?
- Metadata store: in ten attempts the worker did not know all changes of the source at the cut-over. Keep a worker
  running, and start again.
- Scalable topic: clients were not ready in `client_timeout`. The message names them.
- Each migration: a check after the precheck found a blocker. Do what its cure says, and start again.
"""
_FAILURES = """\
A failed migration fails its workflow with one of these types. `Unreachable` and `Contention` are retried until a
deadline ends them. All others are final. `details` of a failure name the server, path, ledger and entry that it is
about, where there is one.
"""
_DONE_WITH_FAILURES = """\
If some items could not be moved, a migration can still end: its outcome is `done with failures`. Its workflow does not
fail. `failed_items` in its report names each item, and `pulsar-migrate` exits with 8.
"""
_EXIT_CODES = """\
`start --wait`, `status --watch` and `report` end with the exit code of the migration. If no worker starts the
migration within 90 s, `start --wait` ends with 7. The migration stays started, and continues when a worker runs.
"""
_UNUSABLE = """\
A check that cannot read its data has a code of two parts, for example `SOURCE_UNREACHABLE`.
A bookie cluster migration uses only the second part, except for `CENSUS_…`.
"""
_DEFECT_CODES = """\
These [known defects](known_defects.md) can lose data during the migration. The code is `DEFECT_` and the id.
The cure is a release that repairs the defect, or `"accept_defects": ["ID"]` to accept the loss.
"""
_FEATURE_CODES = """\
The code is the id of the feature. *Decision*: set `"accept": ["ID"]` to accept the feature as it is. *Refused*: only
the cure below the table helps. [coverage.md](coverage.md) has the reasons, and all features that a migration carries.
Migrations of many topics, and operations that change topics, have the column of `scalable-topic`.
"""
# Kinds that always matter together.
_SCALABLE = "scalable-topic, scalable-namespace, scalable-operation"
_ALL = ", ".join(KINDS)


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
        "These are used if `broker.conf` does not contain the setting. Class names are shown without their package.",
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


def blockers_page() -> str:
    """Return the text of the page of blockers, failures and exit codes."""
    texts = explanations()
    shared = [group for group in texts.groups if len(_packages(group)) > 1]
    lines = [_BLOCKERS, "## Failures", "", _FAILURES]
    failures = (
        (_code(kind, texts.failures[kind]), str(code_of_failure(kind).value), *texts.failures[kind][:2])
        for kind in FailureKind
    )
    lines += [*_table(("type", "exit code", "what it means", "what to do"), failures), "", _PARTICIPANTS]
    lines += [_DONE_WITH_FAILURES, "## Exit codes", "", _EXIT_CODES]
    codes = ((str(code.value), f"{MEANINGS[code]} (`{code.name}`)") for code in ExitCode)
    lines += [*_table(("code", "meaning"), codes), "", "## Blockers of several migrations", ""]
    lines += [*_table(("code", "migrations", *_BLOCKER_HEADS), _blocker_rows(shared, with_kinds=True)), ""]
    for package, kinds in _kinds_by_package().items():
        groups = [group for group in texts.groups if _packages(group) == {package}]
        heads = ("code", "migrations", *_BLOCKER_HEADS) if len(kinds) > 1 else ("code", *_BLOCKER_HEADS)
        rows = _blocker_rows(groups, with_kinds=len(kinds) > 1)
        lines += [
            f"## Blockers of {', '.join(kinds)}",
            "",
            *filter(None, [_NOTES.get(package)]),
            *_table(heads, rows),
            "",
        ]
    lines += ["## What could not be read", "", _UNUSABLE]
    prefixes = ((f"`{code}_…`", prefix.what, prefix.migrations) for code, prefix in texts.prefixes.items())
    lines += [*_table(("first part", "what it is", "migrations"), prefixes), ""]
    suffixes = ((f"`…{code}`", text.means, text.cure) for code, text in texts.suffixes.items())
    lines += [*_table(("second part", "what it means", "what to do"), suffixes), ""]
    refusing = ((f"`DEFECT_{row.id}`", _migrations(row.refused), row.symptom) for row in known_defects() if row.refused)
    lines += ["## Defects", "", _DEFECT_CODES, *_table(("code", "migrations", "what happens"), refusing), ""]
    asking = [row for row in coverage().features if any(row.cell(kind).by_census for kind in COLUMNS)]
    features = ((f"`{row.id}`", row.title, *(_outcomes(row, outcome) for outcome in _BY_CENSUS)) for row in asking)
    heads = ("code", "feature", *(str(outcome) for outcome in _BY_CENSUS))
    lines += ["## Features", "", _FEATURE_CODES, *_table(heads, features), ""]
    lines += [f"- `{row.id}`: {row.cure}." for row in asking]
    return "\n".join(lines) + "\n"


_NOTES = {
    "bookie_cluster": '`attribution`: with `"routing": "attribution"` only.\n',
    "metadata_store": "`live` and `offline`: only in that mode.\n",
    "scalable_topic": (
        "If many topics are migrated, a blocker of one topic does not stop the others: the plan names that topic,\n"
        "with its first blocker.\n"
    ),
}
"""What is said above the blockers of a package."""


def break_glass_page() -> str:
    """Return the text of the page of steps without Temporal and workers."""
    lines = [_BREAK_GLASS]
    for kind, guide in guides().items():
        lines += [f"## {'A batch of blue-green' if kind == BATCH else kind}", ""]
        phases = (*guide.phases, *guide.rollback)
        for entry in guide.break_glass:
            own = [f"`{phase}`" for phase in phases if guide.steps_in(phase) is entry]
            if not own:
                continue
            lines += [f"### {kind}: {', '.join(own)}", "", entry.state, ""]
            for number, step in enumerate(entry.of("ID"), 1):
                lines += [f"{number}. {step.text}", ""]
                lines += (
                    ["   ```", *(f"   {command}" for command in step.commands), "   ```", ""] if step.commands else []
                )
    return "\n".join(lines).rstrip("\n") + "\n"


def compatibility_page() -> str:
    """Return the text of the page of supported releases."""
    rows = [_support(line) for line in reversed(LINES)]
    data = ROOT / "devstack/pulsar_devstack/data"
    oxia = _version(data / "oxia/go.mod", r"oxia/common v([\d.]+)")
    servers = [
        (
            tested,
            _jar(tested, "bookkeeper:bookkeeper-server"),
            _jar(tested, "zookeeper:zookeeper-jute"),
            oxia if parse_release(tested).has(Behaviour.LIVE_MIGRATION) else "not tested",
        )
        for tested in reversed(TESTED)
    ]
    project, locked, lowest = ROOT / "pyproject.toml", ROOT / "requirements.lock", ROOT / "requirements-lowest.lock"
    pythons = re.findall(r"Python :: (3\.\d+)", project.read_text())
    java = [
        (f"servers of Pulsar {line}", f"Java {parse_release(f'{line}.0').minimum_java} or newer", "") for line in LINES
    ]
    text = _OTHER_SERVERS.format(
        zookeeper=TESTED_ZOOKEEPER,
        temporal=_version(data / "temporal_cli/go.mod", r"go\.temporal\.io/server v([\d.]+)"),
        python=", ".join(pythons),
        spark=_version(locked, r"^pyspark==([\d.]+)"),
        sdk=_version(locked, r"^temporalio==([\d.]+)"),
        sdk_oldest=_version(lowest, r"^temporalio==([\d.]+)"),
        java="\n".join(map(_line, java)),
    )
    lines = [_COMPATIBILITY.rstrip("\n"), *map(_line, rows), "", _OTHER_RELEASES.rstrip("\n"), ""]
    lines += _table(("Pulsar", "BookKeeper", "ZooKeeper", "Oxia"), servers)
    return "\n".join(lines) + "\n" + text


def _support(line: str) -> tuple[str, ...]:
    """Return the cells of a line of Pulsar: which migrations it is supported in."""
    release = next(tested for tested in TESTED if tested.startswith(f"{line}."))
    live = parse_release(release).has(Behaviour.LIVE_MIGRATION)
    scalable = parse_release(release).has(Behaviour.SCALABLE_TOPICS)
    newest = line == LINES[-1]
    return (
        f"{line} LTS" if line == LINES[0] else line,
        release,
        "`live`, `offline`" if live else "ZooKeeper to ZooKeeper, `offline`",
        "yes",
        "from and to it" if newest else f"to {LINES[-1]}",
        "yes" if scalable else "no",
        "yes",
    )


def _jar(release: str, name: str) -> str:
    """Return the version of a library in the lock of a release's servers."""
    lock = ROOT / f"devstack/pulsar_devstack/data/jars/pulsar-{release.rpartition('.')[0]}.lock"
    return _version(lock, rf"^org\.apache\.{name}:([\d.]+) ")


def _version(file: Path, pattern: str) -> str:
    """Return the version that a file names."""
    match = re.search(pattern, file.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{file.name} does not name {pattern}")
    return match[1]


_BLOCKER_HEADS = ("what is wrong", "what to do")
_BY_CENSUS = (Outcome.DECISION, Outcome.REFUSED)
BLOCKERS_PAGE = "docs/blockers.md"


def schema_page(kind: Registered) -> str:
    """Return the JSON Schema of the plan files of a kind."""
    return schema_text(plan_schema(kind))


PAGES = {
    defects.PAGE: defects_page,
    releases.PAGE: releases_page,
    table.PAGE: coverage_page,
    BLOCKERS_PAGE: blockers_page,
    "docs/compatibility.md": compatibility_page,
    "docs/break_glass.md": break_glass_page,
    **{f"{SCHEMAS}/{name}.json": partial(schema_page, kind) for name, kind in ALL.items()},
}
"""What writes each page, by its path in the repository."""


def _kinds_by_package() -> dict[str, list[str]]:
    """Return the kinds of each package of migrations, and the topic controller's."""
    packages: dict[str, list[str]] = {}
    for kind in KINDS.values():
        packages.setdefault(kind.package, []).append(kind.name)
    return packages


def _packages(group: Group) -> set[str]:
    return {KINDS[name].package if name in KINDS else name for name in group.migrations}


def _blocker_rows(groups: Iterable[Group], *, with_kinds: bool) -> list[tuple[str, ...]]:
    """Return the cells of blockers, by code."""
    rows: list[tuple[str, ...]] = []
    for group in groups:
        kinds = (_migrations(group.migrations),) if with_kinds else ()
        rows += [(_code(code, text), *kinds, text.means, text.cure) for code, text in group.blockers.items()]
    return sorted(rows, key=lambda cells: cells[0].strip("[`"))


def _code(code: str, text: Explanation) -> str:
    return f"[`{code}`]({text.page})" if text.page else f"`{code}`"


def _migrations(names: Iterable[str]) -> str:
    return ", ".join(names).replace(_ALL, "all migrations").replace(_SCALABLE, "scalable topics")


def _outcomes(feature: Feature, outcome: Outcome) -> str:
    kinds = (kind for kind in COLUMNS if feature.cell(kind).by_census and feature.cell(kind).outcome is outcome)
    return ", ".join(kinds)


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
    effect = "it is a difference that blocks" if policy.relied_on else "it is omitted, with a note"
    return (*_since(policy.firsts), effect)


def _default_cell(value: str | None) -> str:
    return "not there" if value is None else f"`{value.rpartition('.')[2]}`"


def _defect_cells(defect: Defect) -> tuple[str, ...]:
    return (f"`{defect.id}`", _affected(defect), defect.symptom, defect.why, defect.advice, defect.reference)


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
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(page())
