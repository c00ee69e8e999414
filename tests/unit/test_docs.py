"""What the documentation says about names, links and commands is what the code has."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from temporalio import workflow
from typer.main import get_command

from models.metadata_store import MetadataStorePlan, Phase
from models.migration import SEARCH_ATTRIBUTES, FailureKind, Speed, Steering, Undo, Verb, WindowChange
from models.settings import Settings
from worker import migrations
from worker.cli import app
from worker.exits import MEANINGS, ExitCode

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
OPERATORS = (ROOT / "docs/metadata-store.md").read_text()
LIFECYCLE = (ROOT / "docs/lifecycle.md").read_text()

# Arguments of updates, as the workflows take them.
ARGUMENTS: dict[str, type[Any]] = {"steer": Steering, "change_window": WindowChange, "set_throttle": Speed}


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of all tables of a section, without code marks."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in row] for row in found]


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Every command line of a program in the pages, with the page's name, in words."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        blocks = [line.strip().removeprefix("$ ") for block in _BLOCK.findall(text) for line in block.splitlines()]
        for line in [*blocks, *_INLINE.findall(_BLOCK.sub("", text))]:
            if line.startswith(f"{program} ") and "…" not in line:
                yield page.name, shlex.split(line, comments=True)


_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
TEMPORAL = list(commands("temporal"))
OURS = list(commands("pulsar-migrate"))


def option(words: list[str], name: str) -> str | None:
    """The value of an option, if it is given."""
    return words[words.index(name) + 1] if name in words else None


def definition() -> Any:
    """What Temporal knows of the workflow's signals, queries and updates."""
    (found,) = migrations.workflows()
    return workflow._Definition.must_from_class(found)


def test_every_field_of_the_plan_is_described_with_its_default() -> None:
    """The input reference has one row for each field of the plan, and no other; each default is the code's own."""
    table = {row[0]: row[1] for row in rows(OPERATORS, "Input") if row[0] not in ("field", "---")}
    assert set(table) == set(MetadataStorePlan.model_fields)
    example = MetadataStorePlan(cluster="c", source="zk:a:1", target="oxia://a:1")
    for name, field in MetadataStorePlan.model_fields.items():
        if field.is_required():
            assert table[name] == "required", name
        elif table[name] == "none":
            assert field.default is None, name
        else:
            documented = MetadataStorePlan.model_validate({**example.model_dump(), name: json.loads(table[name])})
            assert getattr(documented, name) == field.default, name


@pytest.mark.parametrize("verb", Verb)
def test_every_verb_is_explained(verb: Verb) -> None:
    """Each verb has a row with what it does, and a command in the cheat sheet."""
    assert verb in [row[0] for row in rows(LIFECYCLE, "Verbs")]
    cheat = OPERATORS.partition("\n## Cheat sheet\n")[2].partition("\n## ")[0]
    assert f"--name {verb}" in cheat
    assert f"pulsar-migrate {verb}" in cheat


def test_failures_and_exit_codes_are_those_of_the_code() -> None:
    """The tables hold every failure kind and every exit code with its meaning, and nothing else."""
    first = [row[0] for row in rows(OPERATORS, "Failures and exit codes")]
    heads = {"type", "code", "---"}
    assert [cell for cell in first if not cell.isdigit() and cell not in heads] == [str(kind) for kind in FailureKind]
    codes = {int(row[0]): row[1] for row in rows(OPERATORS, "Failures and exit codes") if row[0].isdigit()}
    assert codes == {code.value: f"{MEANINGS[code]} (`{code.name}`)" for code in ExitCode}


def test_phases_and_undo_classes_are_those_of_the_code() -> None:
    """The phases table holds every phase, and the lifecycle page every undo class."""
    assert [row[0] for row in rows(OPERATORS, "Phases") if row[0].isupper()] == [*Phase]
    assert set(Undo) <= {row[0] for row in rows(LIFECYCLE, "Phases")}


def test_settings_and_search_attributes_are_those_of_the_code() -> None:
    """Every setting of the worker has a row with its default, and every search attribute one."""
    table = {row[0]: row[1] for row in rows(OPERATORS, "Worker settings") if row[0].startswith("PULSAR_MIGRATE_")}
    dumped = Settings.model_construct().model_dump(mode="json")
    expected = {f"PULSAR_MIGRATE_{name.upper()}": value for name, value in dumped.items()}
    assert set(table) == {*expected, "PULSAR_MIGRATE_LOG"}
    for name, value in expected.items():
        assert table[name] == (value if isinstance(value, str) else json.dumps(value)), name
    assert set(SEARCH_ATTRIBUTES) <= {row[0] for row in rows(LIFECYCLE, "Search attributes")}


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
    """Fragments that a page has: its headings, as GitHub writes them, and its own anchors."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize(("page", "words"), TEMPORAL, ids=lambda value: value if isinstance(value, str) else "")
def test_commands_of_temporal_name_what_there_is(page: str, words: list[str]) -> None:
    """Workflow types, signals, queries and updates in `temporal` lines exist, and their inputs are taken."""
    known = definition()
    given = option(words, "--input")
    if words[1:3] == ["workflow", "start"] and option(words, "--type"):
        assert option(words, "--type") == known.name, page
        assert option(words, "--task-queue") == Settings.model_fields["task_queue"].default
        plan = MetadataStorePlan.model_validate_json(given or "")
        assert option(words, "--workflow-id") == plan.workflow_id
    elif words[1:3] == ["workflow", "signal"]:
        assert option(words, "--name") in {*Verb} & set(known.signals), page
        assert given is None or isinstance(json.loads(given), str)
    elif words[1:4] == ["workflow", "update", "execute"]:
        name = option(words, "--name") or ""
        assert name in known.updates, page
        TypeAdapter(ARGUMENTS[name]).validate_json(given or "")
    elif words[1:3] == ["workflow", "query"]:
        assert option(words, "--type") in known.queries, page


def test_the_pages_show_every_update_and_verb() -> None:
    """The commands of the pages cover every update and every verb's signal, so the tests above see them all."""
    named = {(words[2], option(words, "--name")) for _, words in TEMPORAL if len(words) > 2}
    assert {("update", name) for name in definition().updates} <= named
    assert {("signal", verb.value) for verb in Verb} <= named


@pytest.mark.parametrize(("page", "words"), OURS, ids=lambda value: value if isinstance(value, str) else "")
def test_our_commands_parse(page: str, words: list[str]) -> None:
    """Each `pulsar-migrate` line of the pages is taken by the command line's own parser."""
    command: Any = get_command(app)
    rest = words[1:]
    while rest and hasattr(command, "commands"):
        assert rest[0] in command.commands, page
        command = command.commands[rest.pop(0)]
    # The text also mentions commands by their bare name.
    if rest:
        assert command.make_context(command.name, rest).command is command
