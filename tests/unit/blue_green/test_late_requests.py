"""Requests that no later attempt would undo are made only where a late one cannot arrive."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_FILES = (
    *sorted((_ROOT / "activities/blue_green").rglob("*.py")),
    *sorted((_ROOT / "activities/pulsar").glob("*.py")),
    *(_ROOT / "activities/scalable_topic" / name for name in ("cluster.py", "conversion/topic.py")),
    _ROOT / "activities/scalable_topic/operations/copy_out/target.py",
)

#: Such requests, by the part of the admin interface.
_REMOVING = {
    # A late creation would come back after its clients have deleted it, and keep all messages.
    "subscriptions": {"create", "delete", "skip_all", "reset_to"},
    "topics": {"delete", "delete_partitioned", "terminate", "unload"},
    "schemas": {"delete"},
    "namespaces": {"delete", "unload", "set_migrated"},
    "tenants": {"delete"},
}


def _removals(tree: ast.AST, admins: frozenset[str] = frozenset()) -> Iterator[tuple[int, str, bool]]:
    """Return line, name and safety of each request that removes something.

    Safe is one to the admin interface that a `change=` gets: that of `admins` is bound to a connection.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(tree, ast.keyword) and tree.arg == "change" and isinstance(node, ast.Lambda):
            names = admins | {node.args.args[0].arg}
        else:
            names = admins
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and node.attr in _REMOVING.get(node.value.attr, ())
        ):
            admin = node.value.value
            yield node.lineno, ast.unparse(node), isinstance(admin, ast.Name) and admin.id in names
        # An alias, as `subscriptions = task.blue.admin.subscriptions`, would hide what is called.
        if isinstance(node, ast.Assign) and _is_part(node.value):
            yield node.lineno, ast.unparse(node), False
        yield from _removals(node, names)


def _is_part(value: ast.expr) -> bool:
    """Return whether this is a part of an admin interface; that of an answer has a call before it."""
    return isinstance(value, ast.Attribute) and value.attr in _REMOVING and not isinstance(value.value, ast.Call)


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_a_request_that_removes_something_never_arrives_late(file: Path) -> None:
    """Each request that removes something is the `change` of `change_or_never`, which does not send it late."""
    removals = list(_removals(ast.parse(file.read_text())))
    assert [f"{file.name}:{line}: {name}" for line, name, safe in removals if not safe] == []


def test_removals_are_found() -> None:
    """The check sees requests: there are at least sixteen of them, each of them safe."""
    every = [removal for file in _FILES for removal in _removals(ast.parse(file.read_text()))]
    assert len(every) >= 16
    bare = "def work(task):\n    task.blue.admin.topics.delete(1)\n    parts = task.green.admin.subscriptions\n"
    assert [line for line, _, safe in _removals(ast.parse(bare)) if not safe] == [2, 3]
