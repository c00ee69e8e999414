"""FLIP of a batch that an earlier run has flipped in part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green import namespace_redirect
from activities.blue_green.batch import flip
from activities.blue_green.context import BatchTask, NamespaceGuard
from models.blue_green.claims import Stage
from models.blue_green.input import IdleSubscriptions
from models.blue_green.results import Flipped


class _Guard:
    """A namespace with its record, flag and topics."""

    def __init__(self, namespace: str, stage: Stage, *, flag: bool = False, terminated: bool = False) -> None:
        self.namespace, self.stage, self.flag, self.terminated = namespace, stage, flag, terminated

    def require(self) -> _Guard:
        """Return the record."""
        return self

    def note(self, **_: object) -> None:
        """Change the record."""


@pytest.mark.parametrize("reloading", [False, True])
def test_a_flip_that_was_lost_without_its_flag_is_continued(
    monkeypatch: pytest.MonkeyPatch, *, reloading: bool
) -> None:
    """LOAD of the next run lifted its limit, which FLIP must not take for the change of an operator."""
    guards = [
        _Guard("t/new", Stage.THROTTLED),
        _Guard("t/lost-before-its-flag", Stage.FLIPPED),
        _Guard("t/flagged", Stage.FLIPPED, flag=True, terminated=True),
        _Guard("t/reloading", Stage.FLIPPED, flag=not reloading, terminated=True),
    ]
    by_name = {guard.namespace: guard for guard in guards}
    seen: dict[str, list[str]] = {}
    quiet: list[object] = []

    def see(name: str, answer: object = None) -> None:
        def call(_task: object, items: list[NamespaceGuard], *_: object, **more: object) -> object:
            seen[name] = [guard.namespace for guard in items]
            quiet.extend(value for key, value in more.items() if key == "quiet_since")
            return answer

        monkeypatch.setattr(flip, name, call, raising=False)

    def read_flag(_: object, namespace: str) -> bool:
        return by_name[namespace].flag

    def has_terminated_topics(_: object, namespace: str) -> bool:
        return by_name[namespace].terminated

    def nothing(*_: object) -> None:
        return None

    for module in (flip, namespace_redirect):
        monkeypatch.setattr(module, "read_flag", read_flag)
    monkeypatch.setattr(namespace_redirect, "has_terminated_topics", has_terminated_topics)
    for name in ("_require_url", "require_answers"):
        monkeypatch.setattr(flip, name, nothing)
    for name in ("_require_green", "await_movable", "provision_late", "repeat_final_copy"):
        see(name)
    see("require_quiet", 2.0)
    see("hold_writes", 1.0)
    see("redirect_clients", Flipped(topics=1, seconds=0.0))
    task: Any = SimpleNamespace(
        guards=guards,
        store=None,
        input=SimpleNamespace(idle_subscriptions=IdleSubscriptions.WAIT),
        attempt=SimpleNamespace(run_id="run-2"),
    )
    flip.flip(cast("BatchTask", task))
    begun = ["t/new", "t/lost-before-its-flag"]
    assert seen == {
        "_require_green": begun,
        "await_movable": begun,
        "provision_late": begun,
        "repeat_final_copy": [guard.namespace for guard in guards],
        "require_quiet": begun,
        "hold_writes": ["t/reloading"] if reloading else [],
        "redirect_clients": [guard.namespace for guard in guards],
    }
    assert quiet == [1.0 if reloading else 2.0], "the check for writes seems older than it is"
