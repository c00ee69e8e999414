"""Rules for Python: how docstrings start, and names that say nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.prose.problem import Problem

_HERE = Path(__file__).parent
_VERBS = frozenset((_HERE / "verbs.txt").read_text().split())
_QUESTIONS = frozenset({"What", "Whether", "Who", "Whom", "Whose", "Which", "Whatever", "All", "Those", "Where", "Why"})
_EMPTY_NAMES = frozenset({"one", "found", "told", "left", "part", "look", "kept", "known"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def problems(path: Path) -> Iterator[Problem]:
    """Yield the docstrings and names of a module that break the rules."""
    tree = ast.parse(path.read_text(), path.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstring(path, node)
        for name, line in _bound(node):
            if name.strip("_") in _EMPTY_NAMES:
                yield Problem(path, line, "name", f"{name!r} does not say what it holds")


def _docstring(path: Path, node: ast.Module | ast.ClassDef | _Function) -> Iterator[Problem]:
    text = ast.get_docstring(node)
    if not text:
        return
    first = text.split()[0].strip("`.,;:")
    line = node.body[0].lineno
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_noun(node):
        if first not in _VERBS:
            yield Problem(path, line, "docstring", f"{node.name} starts with {first!r}, not with a verb of verbs.txt")
    elif first in _QUESTIONS and not (first == "Whether" and isinstance(node, ast.FunctionDef)):
        yield Problem(path, line, "docstring", f"starts with {first!r}; name the thing, or say what it does")


def _is_noun(function: _Function) -> bool:
    """Return whether a function is described by a noun or a sentence: a property, a fixture, or a test."""
    decorators = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
    return function.name.startswith("test_") or "property" in decorators or "fixture" in decorators


def _bound(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node binds, each with its line."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name, node.lineno
