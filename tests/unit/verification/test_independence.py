"""Verifications by request share no code with the copies that they check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted(file for layer in ("clients", "activities") for file in (ROOT / layer / "verification").rglob("*.py"))
OURS = frozenset(("models", "clients", "activities", "spark", "workflows"))
SHARED = frozenset(
    (
        # Connections with credentials, and their errors.
        "clients.bookie_access",
        "clients.bookkeeper.transport",
        "clients.closeable",
        "clients.deadline",
        "clients.errors",
        "clients.oxia.access",
        "clients.oxia.link",
        "clients.zookeeper.coordination",
        # Messages that are generated from the servers' own definitions.
        "clients.bookkeeper.ledger_metadata_pb2",
        "clients.oxia.oxia_pb2",
    )
)


def imported(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # A module may be imported from its package.
            package = (ROOT / node.module.replace(".", "/")).is_dir()
            yield from (f"{node.module}.{alias.name}" if package else node.module for alias in node.names)


def is_allowed(module: str) -> bool:
    """Return whether a verification may import a module."""
    if module.split(".", maxsplit=1)[0] not in OURS or module.startswith("models."):
        return True
    own = ("clients.verification.", "activities.verification.", "activities.lifecycle.")
    return module.startswith(own) or module in SHARED


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_code_of_a_copy_is_imported(file: Path) -> None:
    """Each file imports models, its own package, connections and generated messages only."""
    assert [module for module in imported(file) if not is_allowed(module)] == []


@pytest.mark.parametrize(
    "module", ["clients.stores", "clients.store", "clients.zookeeper.scan", "spark.metadata_store.tasks"]
)
def test_the_code_of_copies_is_not_allowed(module: str) -> None:
    """Readers and jobs of copies are refused."""
    assert not is_allowed(module)


@pytest.mark.parametrize("file", [file for file in FILES if file.parts[-3] == "clients"], ids=lambda file: file.stem)
def test_readers_have_no_word_of_a_write(file: Path) -> None:
    """No reader names a request that changes something on a server."""
    named = {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
    writes = {"create", "create_async", "set", "set_async", "delete", "delete_async", "transaction", "ensure_path"}
    writes |= {"PutRequest", "DeleteRequest", "WriteRequest", "CreateSessionRequest"}
    assert not named & writes
