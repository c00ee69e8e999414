"""Waits of the provisioning of a namespace are shown, and end with its activity."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from activities.blue_green.provisioning import namespaces
from activities.blue_green.provisioning.deltas import Delta, missing
from activities.lifecycle.context import ActivityContext, Cancelled
from clients.pulsar.admin.errors import AdminServerError
from clients.pulsar.admin.late_requests import FencedAdmin
from models.blue_green.differences import Provisioned
from models.lifecycle.status import WaitKind
from models.releases import parse_release


class _Paused(ActivityContext):
    """Ends each pause at once, and remembers why it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[tuple[WaitKind, str]] = []

    def pause(self, seconds: float) -> None:
        """Skip the pause; see `ActivityContext.pause`."""
        del seconds
        waiting = self.report().waiting
        assert waiting is not None
        self.reasons.append((waiting.kind, waiting.why))
        self.check()


def provision(context: ActivityContext) -> Provisioned:
    """Provision a namespace of which nothing is read."""
    admin = cast("Any", None)
    return namespaces.provision_namespace(
        admin,
        cast("Any", type("Admin", (), {"session": None, "urls": ("http://green",)})),
        "acme/orders",
        names={},
        release=parse_release("4.0.0"),
        fence=lambda: None,
        change_or_never=cast("Any", None),
        align=False,
        context=context,
    )


def refuse(green: FencedAdmin) -> None:
    """Answer 500 to a change."""
    del green
    raise AdminServerError("not yet", method="PUT", url="http://green", status=500)


def differ(monkeypatch: pytest.MonkeyPatch, *rounds: list[Delta]) -> None:
    """Make each read of both sides return the differences of the next round."""
    readings = iter(rounds)

    def read(*_args: object, **_options: object) -> list[Delta]:
        return next(readings)

    monkeypatch.setattr(namespaces, "_deltas", read)


def test_waits_tell_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that green cannot make yet, and the time until brokers show it, are waits with a reason."""
    refusals = iter([True, False])

    def change(green: FencedAdmin) -> None:
        if next(refusals):
            refuse(green)

    differ(monkeypatch, [missing("topic orders", "3 partitions", "topic", change)], [])
    context = _Paused()
    assert provision(context).created == {"topic": 1}
    assert context.reasons == [
        (WaitKind.STORE, "green to accept topic orders: PUT http://green answered 500: not yet"),
        (WaitKind.STORE, "green's brokers to show what was set for acme/orders"),
    ]
    assert context.report().waiting is None


def test_a_wait_ends_with_its_activity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation ends the wait before a change is tried again, however long that wait is."""
    monkeypatch.setattr(namespaces, "_RETRY_PAUSES", (600.0,))
    differ(monkeypatch, [missing("topic orders", "3 partitions", "topic", refuse)])
    context = ActivityContext()
    threading.Timer(0.05, context.cancel).start()
    with pytest.raises(Cancelled):
        provision(context)
