"""The documentation agrees with the code in names, links and commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter
from temporalio import workflow
from typer.main import get_command

from cli.app import app
from models.base import Figures
from models.lifecycle.input import MigrationInput
from models.lifecycle.names import SEARCH_ATTRIBUTES
from models.lifecycle.status import Undo
from models.lifecycle.verbs import Verb
from models.settings import Settings
from worker import catalog as migrations
from worker.catalog import ENTITIES, KINDS, Kind, Registered

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench/README.md"])
OPERATIONS = (ROOT / "docs/operations.md").read_text()
MONITORING = (ROOT / "docs/monitoring.md").read_text()
LIFECYCLE = (ROOT / "docs/lifecycle.md").read_text()
BOOKIES = (ROOT / "docs/bookie_cluster.md").read_text()

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)


def section(text: str, heading: str) -> str:
    """Return the text under a heading, up to the next one of its level."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of all tables of a section, without code marks."""
    lines = [line.strip("|").split("|") for line in section(text, heading).splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in row] for row in lines]


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Yield every command line of a program in the pages, split into words, with the page's name."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        blocks = [line.strip().removeprefix("$ ") for block in _BLOCK.findall(text) for line in block.splitlines()]
        for line in [*blocks, *_INLINE.findall(_BLOCK.sub("", text))]:
            if line.startswith(f"{program} ") and "…" not in line:
                yield page.name, shlex.split(line, comments=True)


_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
TEMPORAL = list(commands("temporal"))
OURS = list(commands("pulsar-migrate"))
COMMANDS: Any = get_command(app)


def option(command: list[str], name: str) -> str | None:
    """Return the value of an option, if it is given."""
    return command[command.index(name) + 1] if name in command else None


def kind_of(page: str, command: list[str]) -> Registered:
    """Return the kind that a `temporal` line is about: an entity on its own page, else that of the workflow id."""
    entities = {f"{kind.package}.md": kind for kind in ENTITIES.values()}
    migration = (option(command, "--workflow-id") or "").partition("/")[0]
    return entities.get(page) or KINDS[migration]


def definition(kind: Registered) -> Any:
    """Return Temporal's definition of a workflow, with its signals, queries and updates."""
    definitions = [workflow._Definition.must_from_class(workflow_class) for workflow_class in migrations.workflows()]
    (mine,) = [definition for definition in definitions if definition.name == kind.workflow]
    return mine


def page_name(kind: Kind[Any]) -> str:
    """Return the name of a migration's page."""
    return Path(kind.page).name


def page(kind: Kind[Any]) -> str:
    """Return the text of a migration's page."""
    return (ROOT / kind.page).read_text()


def example(kind: Kind[Any]) -> MigrationInput:
    """Return the plan of the first start in a migration's page."""
    starts = [
        command for name, command in TEMPORAL if name == page_name(kind) and command[1:3] == ["workflow", "start"]
    ]
    return kind.input.model_validate_json(next(filter(None, (option(command, "--input") for command in starts))))


@every_kind
def test_every_field_of_the_plan_is_described_with_its_default(kind: Kind[Any]) -> None:
    """The input reference has one row for each field of the plan, and no other; each default is the code's own."""
    table = {row[0]: row[1] for row in rows(page(kind), "Input") if row[0] not in ("field", "---")}
    assert set(table) == set(kind.input.model_fields)
    values = example(kind).model_dump(mode="json")
    for name, field in kind.input.model_fields.items():
        if field.is_required():
            assert table[name] == "required", name
        elif table[name] == "none":
            assert field.default is None, name
        else:
            documented = kind.input.model_validate({**values, name: json.loads(table[name])})
            assert getattr(documented, name) == field.default, name


@every_kind
@pytest.mark.parametrize("verb", Verb)
def test_every_verb_is_explained(kind: Kind[Any], verb: Verb) -> None:
    """Each verb has a row with what it does, and a command in each migration's cheat sheet."""
    assert verb in [row[0] for row in rows(LIFECYCLE, "Verbs")]
    cheat = section(page(kind), "Cheat sheet")
    assert f"--name {verb}" in cheat
    assert f"pulsar-migrate {verb} {kind.name}/" in cheat


@every_kind
def test_phases_and_undo_classes_are_those_of_the_code(kind: Kind[Any]) -> None:
    """The phases table holds every phase, and the lifecycle page every undo class."""
    assert [row[0] for row in rows(page(kind), "Phases") if row[0].isupper()] == [*kind.phases]
    assert set(Undo) <= {row[0] for row in rows(LIFECYCLE, "Phases")}


def test_settings_and_search_attributes_are_those_of_the_code() -> None:
    """Every setting of the worker has a row with its default, and every search attribute one."""
    table = {row[0]: row[1] for row in rows(OPERATIONS, "Worker settings") if row[0].startswith("PULSAR_MIGRATE_")}
    dumped = Settings.model_construct().model_dump(mode="json")
    expected = {f"PULSAR_MIGRATE_{name.upper()}": value for name, value in dumped.items()}
    assert set(table) == {*expected, "PULSAR_MIGRATE_LOG"}
    for name, value in expected.items():
        assert table[name] == (value if isinstance(value, str) else json.dumps(value)), name
    attributes = {row[0]: row[2] for row in rows(MONITORING, "Search attributes")}
    assert set(SEARCH_ATTRIBUTES) <= set(attributes)


@every_kind
def test_every_migration_is_listed(kind: Kind[Any]) -> None:
    """The README's table, to which the other pages refer, names each migration and links to its page."""
    table = {row[1]: row for row in rows((ROOT / "README.md").read_text(), "Migrations") if row[0].startswith("[")}
    assert set(table) == {f"{kind.name}`, `{kind.workflow}" for kind in KINDS.values()}
    assert f"({kind.page})" in table[f"{kind.name}`, `{kind.workflow}"][0]


def test_every_invariant_of_the_proposal_is_kept_by_something_that_is_tested() -> None:
    """PIP-477 names seventeen invariants; the page says for each how it is kept, where, and which tests show it."""
    table = {row[0]: row for row in rows(BOOKIES, "Invariants") if re.fullmatch(r"I\d+", row[0])}
    assert list(table) == [f"I{number}" for number in range(1, 18)]
    shown = dict(re.findall(r"^- \*\*(I\d+)\*\*\n((?:  - .*\n)+)", BOOKIES, re.MULTILINE))
    for number, row in table.items():
        assert all(row), number
        assert _TEST.search(shown[number]), f"{number} names no test"


@every_kind
@pytest.mark.parametrize("heading", ["facts", "figures", "certificate"])
def test_results_are_those_of_the_code(kind: Kind[Any], heading: str) -> None:
    """The page explains every fact, every figure and all that the certificate says, and nothing else."""
    _, _, text = section(page(kind), "Status and report").partition(f"\n### {heading.capitalize()}\n")
    explained = set(re.findall(r"^\| `(\w+)` \|", text.partition("\n### ")[0], re.MULTILINE))
    assert explained == set(_fields(kind.models[heading.removesuffix("s")]))


def _fields(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        for inner in get_args(field.annotation):
            if isinstance(inner, type) and issubclass(inner, Figures):
                yield from _fields(inner)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    """Every test that a page names is there."""
    for name, function in _TEST.findall(page.read_text()):
        assert (ROOT / name).exists(), name
        if function:
            assert f"def {function}(" in (ROOT / name).read_text(), f"{name}::{function}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    """Every link to a file names one that is there, and every fragment a heading or an anchor of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", page.read_text())):
        if target.startswith("http"):
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if fragment:
            assert fragment in anchors(file.read_text()), target


def anchors(text: str) -> set[str]:
    """Return the fragments of a page: its headings, as GitHub writes them, and its own anchors."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize(("page", "command"), TEMPORAL, ids=lambda value: value if isinstance(value, str) else "")
def test_commands_of_temporal_name_what_there_is(page: str, command: list[str]) -> None:
    """Workflow types, signals, queries and updates in `temporal` lines exist, and their inputs are taken."""
    given = option(command, "--input")
    if command[1:3] == ["workflow", "start"] and option(command, "--type"):
        kind = kind_of(page, command)
        assert option(command, "--type") == kind.workflow, page
        assert option(command, "--task-queue") == Settings.model_fields["task_queue"].default
        input = kind.input.model_validate_json(given or "")
        assert option(command, "--workflow-id") == input.workflow_id
    elif command[1:3] == ["workflow", "signal"]:
        assert option(command, "--name") in {*Verb} & set(definition(kind_of(page, command)).signals), page
        assert given is None or isinstance(json.loads(given), str)
    elif command[1:4] == ["workflow", "update", "execute"]:
        updates = definition(kind_of(page, command)).updates
        name = option(command, "--name") or ""
        assert name in updates, page
        (argument,) = updates[name].arg_types
        TypeAdapter(argument).validate_json(given or "")
    elif command[1:3] == ["workflow", "query"]:
        assert option(command, "--type") in definition(kind_of(page, command)).queries, page


@every_kind
def test_the_pages_show_every_update_query_and_verb(kind: Kind[Any]) -> None:
    """The commands of a migration's page cover its updates, queries and verbs, so that the tests above see them all."""
    mine = [command for name, command in TEMPORAL if name == page_name(kind)]
    named = {
        (command[2], option(command, "--name") or option(command, "--type")) for command in mine if len(command) > 2
    }
    described = definition(kind)
    assert {("update", name) for name in described.updates} <= named
    assert {("query", name) for name in described.queries} <= named
    assert {("signal", verb.value) for verb in Verb} <= named


@pytest.mark.parametrize(("page", "command"), OURS, ids=lambda value: value if isinstance(value, str) else "")
def test_our_commands_parse(page: str, command: list[str]) -> None:
    """Each `pulsar-migrate` line of the pages is taken by the command line's own parser."""
    group: Any = COMMANDS
    rest = command[1:]
    if rest and rest[0].startswith("--"):
        assert any(rest[0] in parameter.opts for parameter in group.params), page
        return
    while rest and hasattr(group, "commands"):
        if rest[0] == "plan.yaml":
            # A plan names its kind. Which one matters only for options.
            rest[0] = "metadata-store"
        assert rest[0] in group.commands, page
        group = group.commands[rest.pop(0)]
    # The text also mentions commands by their bare name.
    if rest:
        assert group.make_context(group.name, rest).command is group
