"""Lines that must not be missing carry their mutants' names in the source: `# mutant: name`, or on a line above."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

ROOT = Path(__file__).parents[2]
_MARK = re.compile(r"# mutant: ([\w/-]+(?:, [\w/-]+)*)$")
_NO_SOURCE = {"tests", "build", "dist", "out"}
_JOINED = re.compile(r"(?:and|or|if) ")


class Stale(Exception):
    """The list of mutants does not fit the source any more; the message says what to correct."""


class Mark(NamedTuple):
    """Line of the source that a mutant changes: the file, relative to the root, and the line number."""

    file: str
    line: int


@cache
def marks(root: Path = ROOT) -> dict[str, Mark]:
    """Return the marks in the source by mutant.

    Raises:
        Stale: a mutant is marked twice.
    """
    marks_by_name: dict[str, Mark] = {}
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and folder.name not in _NO_SOURCE and not folder.name.startswith("."):
            for path in sorted(folder.rglob("*.py")):
                for name, line in _marked(path.read_text()):
                    mark = Mark(str(path.relative_to(root)), line)
                    if name in marks_by_name:
                        raise Stale(f"{name}: marked in {marks_by_name[name]} and in {mark}; a mutant has one line")
                    marks_by_name[name] = mark
    return marks_by_name


def _marked(text: str) -> Iterator[tuple[str, int]]:
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if mark := _MARK.search(line):
            target = number
            while lines[target].lstrip().startswith("#"):
                target += 1
            yield from ((name, target + 1) for name in mark[1].split(", "))


Change = Callable[[str, int], str]
"""Returns the text of a file with the line of this number changed."""


def drop(text: str, line: int) -> str:
    """Drop a statement, a branch, an operand, an argument, an element or the condition of a comprehension."""
    tree, target = _parsed(text, line)
    match target.node:
        case ast.If() | ast.While():
            target.node.test = ast.Constant(value=False)
        case ast.For():
            target.node.iter = ast.Tuple(elts=[])
        case ast.stmt():
            target.replace(ast.Pass())
        case _:
            target.remove()
    return ast.unparse(tree)


def any_version(text: str, line: int) -> str:
    """Write over any stored version, instead of the version that was read."""
    tree, target = _parsed(text, line)
    versions = _AnyVersion()
    target.replace(versions.visit(target.node))
    if versions.count != 1:
        raise ValueError(f"has {versions.count} versions, not one")
    return ast.unparse(tree)


def without(operand: int) -> Change:
    """Return the change that drops one operand of the line's first `and` or `or`."""

    def change(text: str, line: int) -> str:
        tree, target = _parsed(text, line)
        del next(node for node in ast.walk(target.node) if isinstance(node, ast.BoolOp)).values[operand]
        return ast.unparse(tree)

    return change


def without_last_argument(text: str, line: int) -> str:
    """Drop the last argument of the line's outermost call."""
    tree, target = _parsed(text, line)
    call = next(node for node in ast.walk(target.node) if isinstance(node, ast.Call))
    (call.keywords or call.args).pop()
    return ast.unparse(tree)


def unfiltered(text: str, line: int) -> str:
    """Drop the conditions of the line's comprehensions."""
    tree, target = _parsed(text, line)
    for node in ast.walk(target.node):
        if isinstance(node, ast.comprehension):
            node.ifs = []
    return ast.unparse(tree)


def becomes(expression: str) -> Change:
    """Return the change that gives the line another value, condition, iterable, error type or statement."""

    def change(text: str, line: int) -> str:
        tree, target = _parsed(text, line)
        statement = ast.parse(expression).body[0]
        value = statement.value if isinstance(statement, ast.Expr) else None
        match target.node:
            case ast.If() | ast.While() if value:
                target.node.test = value
            case ast.For() if value:
                target.node.iter = value
            case ast.ExceptHandler() if value:
                target.node.type = value
            case ast.Return() | ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.keyword() if value:
                target.node.value = value
            case ast.stmt():
                target.replace(statement)
            case _:
                target.replace(value or statement)
        return ast.unparse(tree)

    return change


def swap(old: str, new: str) -> Change:
    """Return the change that replaces a part of the line, for where no other change makes sense."""

    def change(text: str, line: int) -> str:
        lines = text.splitlines(keepends=True)
        if (count := lines[line - 1].count(old)) != 1:
            raise ValueError(f"has {count} times {old!r}, not once")
        lines[line - 1] = lines[line - 1].replace(old, new)
        return ast.unparse(ast.parse("".join(lines)))

    return change


class _AnyVersion(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST:
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.endswith("version"):
            self.count += 1
            return ast.Constant(value=-1)
        return super().visit(node)


class _Target(NamedTuple):
    """Node of a mark, and its position in the parent."""

    node: ast.AST
    parent: ast.AST
    field: str

    def replace(self, other: ast.AST) -> None:
        children: list[ast.AST] = getattr(self.parent, self.field)
        children[:] = [other if child is self.node else child for child in children]

    def remove(self) -> None:
        """Remove it from a list; a dictionary loses its value too."""
        children: list[ast.AST] = getattr(self.parent, self.field)
        index = next(index for index, child in enumerate(children) if child is self.node)
        del children[index]
        if isinstance(self.parent, ast.Dict):
            del self.parent.values[index]


def _parsed(text: str, line: int) -> tuple[ast.Module, _Target]:
    """Return the tree, and the outermost node of a list that begins where the line does."""
    tree = ast.parse(text)
    source = text.splitlines()[line - 1]
    column = len(source) - len(source.lstrip())
    joined = _JOINED.match(source, column)
    columns = {column, joined.end() if joined else column}
    for parent in ast.walk(tree):
        for field in parent._fields:
            children = getattr(parent, field)
            for node in cast("list[ast.AST]", children) if isinstance(children, list) else ():
                if getattr(node, "lineno", 0) == line and getattr(node, "col_offset", -1) in columns:
                    return tree, _Target(node, parent, field)
    raise ValueError("has nothing to change")
