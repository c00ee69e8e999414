"""docs/blockers.md explains the blockers and failures that the code gives, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from activities.lifecycle import precheck
from deploy.explanations import explanations
from models.coverage.table import COLUMNS, coverage
from models.lifecycle.failures import FailureKind
from worker.catalog import ENTITIES, KINDS, Registered

ROOT = Path(__file__).parents[3]
EXPLAINED = {(kind, code) for group in explanations().groups for kind in group.migrations for code in group.blockers}
CODES = {code for _, code in EXPLAINED}
MIGRATIONS: dict[str, Registered] = {**KINDS, **ENTITIES}
# Calls that take a code: the position of the argument, and its name.
CALLS = {
    "block": (0, "code"),
    "block_for": (1, "code"),
    "Blocker": (None, "code"),
    "refuse_untested": (1, "code"),
    "claimed": (2, "code"),
    "check_store": (None, "taken"),
}
# Blockers whose codes are ids of defects and features, or patterns for others.
NOT_EXPLAINED = {"MORE", "DEFECT_*"}


@cache
def modules() -> dict[str, ast.Module]:
    """Return the parsed modules of activities, by their names."""
    files = sorted(ROOT.glob("activities/**/*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): ast.parse(file.read_text()) for file in files}


@cache
def constants() -> dict[str, str]:
    """Return the text constants of all modules by name."""
    nodes = (node for module in modules().values() for node in module.body if isinstance(node, ast.Assign))
    pairs = ((target, node.value) for node in nodes for target in node.targets)
    return {
        target.id: value.value
        for target, value in pairs
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


@cache
def given(name: str) -> frozenset[str]:
    """Return the codes that a module gives to blockers; `*` replaces the part that is known only at run time."""
    module = modules()[name]
    codes: set[str] = set()
    for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
        position, keyword = CALLS.get(called(call), (None, ""))
        arguments = [argument.value for argument in call.keywords if argument.arg == keyword]
        if position is not None:
            arguments += call.args[position : position + 1]
        for argument in arguments:
            codes.update(texts(argument, module))
    for function in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
        pairs = zip(reversed(function.args.args), reversed(function.args.defaults), strict=False)
        pairs = [*pairs, *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)]
        codes.update(
            text
            for parameter, default in pairs
            if parameter.arg in ("code", "taken") and default is not None
            for text in texts(default, module)
        )
    return frozenset(codes)


def called(call: ast.Call) -> str:
    """Return the name of the function or method that is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def texts(value: ast.expr, module: ast.Module) -> Iterator[str]:
    """Yield the texts that an expression can have, with `*` for the parts that are not known."""
    if isinstance(value, ast.Constant):
        if isinstance(value.value, str):
            yield value.value
    elif isinstance(value, ast.IfExp):
        yield from texts(value.body, module)
        yield from texts(value.orelse, module)
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(piece.value) if isinstance(piece, ast.Constant) else "*" for piece in value.values)
    elif isinstance(value, ast.Name) and value.id in constants():
        yield constants()[value.id]
    elif isinstance(value, ast.Name):
        for node in ast.walk(module):
            if isinstance(node, ast.Assign) and any(
                isinstance(to, ast.Name) and to.id == value.id for to in node.targets
            ):
                yield from texts(node.value, module)
            elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == value.id:
                yield from (text for other in node.comparators for text in texts(other, module))


def matching(patterns: Iterable[str]) -> set[str]:
    """Return the explained codes that match one of the patterns."""
    expressions = [re.compile(pattern.replace("*", "[A-Z]+")) for pattern in patterns]
    return {code for code in CODES if any(expression.fullmatch(code) for expression in expressions)}


def modules_of(package: str) -> set[str]:
    """Return the modules of a package of activities, and those that they import."""
    wanted = {name for name in modules() if name.startswith(f"activities.{package}.")}
    reached: set[str] = set()
    while wanted:
        name = wanted.pop()
        reached.add(name)
        imports = (node for node in ast.walk(modules()[name]) if isinstance(node, ast.ImportFrom) and node.module)
        wanted |= ({node.module for node in imports if node.module} & modules().keys()) - reached
    return reached


@pytest.mark.parametrize("name", modules())
def test_each_code_of_a_blocker_is_explained(name: str) -> None:
    """Each code that a module gives is in explanations.toml; a migration's own codes are explained for it."""
    codes = given(name) - NOT_EXPLAINED
    kinds = [kind.name for kind in MIGRATIONS.values() if name.startswith(f"activities.{kind.package}.")]
    own = {code for kind, code in EXPLAINED if kind in kinds} if kinds else CODES
    assert [code for code in codes if not matching([code]) & own] == []


@pytest.mark.parametrize("kind", MIGRATIONS.values(), ids=lambda kind: kind.name)
def test_each_explained_code_is_given(kind: Registered) -> None:
    """A migration has activities that can give each code that is explained for it."""
    codes = {code for name in modules_of(kind.package) for code in given(name)}
    assert {code for name, code in EXPLAINED if name == kind.name} <= matching(codes)


def test_codes_are_explained_for_migrations_that_exist() -> None:
    """Each group names kinds of the catalog, and a kind has one explanation of a code."""
    groups = explanations().groups
    assert {name for name, _ in EXPLAINED} <= MIGRATIONS.keys()
    assert len(EXPLAINED) == sum(len(group.migrations) * len(group.blockers) for group in groups)


def test_codes_of_what_could_not_be_read_are_explained() -> None:
    """Both parts of such a code are explained: which thing a check could not read, and why."""
    prefixes = {
        text
        for module in modules().values()
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and called(call) == "check"
        for argument in call.keywords
        if argument.arg == "of"
        for text in texts(argument.value, module)
    }
    explained = set(explanations().prefixes)
    assert explained == {
        code for code in explained for text in prefixes if re.fullmatch(text.replace("*", "\\w+"), code)
    }
    assert all(any(re.fullmatch(text.replace("*", "\\w+"), code) for code in explained) for text in prefixes)
    assert set(explanations().suffixes) == {code for code, _ in vars(precheck)["_CODES"].values()}


def test_failures_are_those_of_the_code() -> None:
    """Each type of a failure is explained, in the order of the code."""
    assert list(explanations().failures) == [str(kind) for kind in FailureKind]


def test_codes_of_the_coverage_table_are_explained() -> None:
    """A blocker that the coverage table names is explained for that migration."""
    named = {(kind, code) for row in coverage().features for kind in COLUMNS for code in row.cell(kind).codes}
    assert {(kind, code) for kind, code in named if code.isupper()} <= EXPLAINED
