"""Choice of the broker for a change that must not arrive late, by the answers to the check before it."""

from __future__ import annotations

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import (
    AdminConflict,
    AdminDenied,
    AdminError,
    AdminNotFound,
    AdminServerError,
    AdminUnreachable,
    AdminUntrusted,
)
from clients.pulsar.admin.late_requests import change_or_never

_A, _B = "http://a:1", "http://b:1"


def _changed(answers: dict[str, type[AdminError] | None]) -> list[str]:
    """Return the brokers that are asked for a change, by the error that each answers to the look."""
    asked: list[str] = []

    def connect(admin: PulsarAdmin) -> None:
        if kind := answers[admin.urls[0]]:
            raise kind("connect", method="GET", url=admin.urls[0])

    def change(admin: PulsarAdmin) -> None:
        asked.append(admin.urls[0])

    change_or_never(AdminAccess(), list(answers), connect=connect, fence=lambda: None, change=change)
    return asked


@pytest.mark.parametrize("kind", [None, AdminNotFound, AdminServerError, AdminDenied, AdminConflict])
def test_every_answer_opens_the_connection(kind: type[AdminError] | None) -> None:
    """A broker that has answered is asked for the change, whatever it said: it says 500 of a topic that is gone."""
    assert _changed({_A: kind}) == [_A]
    assert _changed({_A: AdminUnreachable, _B: kind}) == [_B]


def test_a_broker_that_fails_is_asked_last() -> None:
    """A broker that may fail at everything is asked only if no other can be."""
    assert _changed({_A: AdminServerError, _B: None}) == [_B]
    assert _changed({_A: AdminServerError, _B: AdminUnreachable}) == [_A]


@pytest.mark.parametrize("kind", [AdminUnreachable, AdminUntrusted])
def test_without_a_connection_nothing_is_asked(kind: type[AdminError]) -> None:
    """The error is raised where no connection was opened."""
    with pytest.raises(kind, match="connect"):
        _changed({_A: kind})
