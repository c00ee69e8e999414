"""The names that applications may import are those that the README documents."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pulsar_scalable
from pulsar_scalable import aio, errors

_TOP = Path(__file__).parents[2]
_README = (_TOP / "README.md").read_text()
_ROW = re.compile(r"^\| `(pulsar_scalable[.\w]*)` \| (.+) \|$", re.MULTILINE)
_ROWS = [(module, set(re.findall(r"`(\w+)`", names))) for module, names in _ROW.findall(_README)]
_DOCUMENTED = {module: set[str]().union(*(names for other, names in _ROWS if other == module)) for module, _ in _ROWS}

_SNIPPETS = {
    f"README-{number}": text for number, text in enumerate(re.findall(r"```python\n(.*?)```", _README, re.DOTALL))
}
_PROGRAMS = _SNIPPETS | {file.name: file.read_text() for file in sorted((_TOP / "examples").glob("*.py"))}


def test_exported_names_are_documented() -> None:
    """`pulsar_scalable` exports the names that the README lists, and no other."""
    assert set(pulsar_scalable.__all__) == _DOCUMENTED["pulsar_scalable"]


def test_asyncio_names_are_documented() -> None:
    """The README lists every public class of `pulsar_scalable.aio`."""
    classes = {
        name for name, value in vars(aio).items() if isinstance(value, type) and value.__module__ == aio.__name__
    }
    assert {name for name in classes if not name.startswith("_")} == _DOCUMENTED["pulsar_scalable.aio"]


@pytest.mark.parametrize("program", _PROGRAMS.values(), ids=_PROGRAMS.keys())
def test_programs_import_documented_names(program: str) -> None:
    """Examples and the README's programs import only what is documented."""
    exceptions = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)
    }
    allowed = _DOCUMENTED | {"pulsar_scalable.errors": exceptions}
    imports = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith("pulsar_scalable")]
    assert ours
    assert [name.name for node in ours for name in node.names if name.name not in allowed[node.module or ""]] == []
