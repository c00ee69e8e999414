"""The address of green for binary clients; its brokers are doubles here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.blue_green.checks import clusters
from activities.blue_green.context import BlueGreenTask
from activities.lifecycle.precheck import Findings
from clients.errors import NoServer, StoreDenied, StoreError, StoreProtocolError, StoreUnreachable

URL = "pulsar://green:6650"
_TASK = cast(
    "BlueGreenTask",
    SimpleNamespace(
        input=SimpleNamespace(green_cluster="green", green=SimpleNamespace(credentials="")),
        runtime=SimpleNamespace(wire_of=str),
    ),
)


def codes(
    monkeypatch: pytest.MonkeyPatch, attempt: int, *, owner: StoreError | str, port: StoreUnreachable | None = None
) -> list[str]:
    """Return the codes of blockers that an attempt of the precheck notes.

    Args:
        monkeypatch: replaces the connections.
        attempt: number of the attempt.
        owner: the answer to a lookup, or why there is none.
        port: why the port does not take connections; None if it does.
    """

    def look_up(*_: object) -> str:
        if isinstance(owner, StoreError):
            raise owner
        return owner

    def connect(_: str) -> StoreUnreachable | None:
        return port

    monkeypatch.setattr(clusters, "named_owner", look_up)
    monkeypatch.setattr(clusters, "obstacle", connect)
    findings, environment = Findings(), ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    check = clusters._check_broker_address  # pyright: ignore[reportPrivateUsage] - the rest asks servers
    environment.run(check, _TASK, findings, URL, [URL])
    return [blocker.code for blocker in findings.blockers]


def test_the_owner_must_be_a_broker_of_green(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup must name a broker that is registered in green."""
    assert codes(monkeypatch, 1, owner=f"{URL}/") == []
    assert codes(monkeypatch, 1, owner="pulsar://blue:6650") == ["GREEN_URL"]


@pytest.mark.parametrize("error", [StoreUnreachable("the bundle is being unloaded"), StoreUnreachable("no answer")])
def test_a_busy_broker_is_no_blocker_at_once(monkeypatch: pytest.MonkeyPatch, error: StoreUnreachable) -> None:
    """Silence of a broker ends a migration only if it comes again in the third attempt of the activity."""
    for attempt in (1, 2):
        with pytest.raises(StoreUnreachable):
            codes(monkeypatch, attempt, owner=error)
        with pytest.raises(StoreUnreachable):
            codes(monkeypatch, attempt, owner=URL, port=error)
    assert codes(monkeypatch, 3, owner=error) == ["GREEN_URL"]
    assert codes(monkeypatch, 3, owner=URL, port=error) == ["GREEN_URL"]


@pytest.mark.parametrize("error", [NoServer("nothing listens"), StoreDenied("no right"), StoreProtocolError("HTTP")])
def test_another_server_is_a_blocker_at_once(monkeypatch: pytest.MonkeyPatch, error: StoreError) -> None:
    """A wrong address does not get better by itself."""
    assert codes(monkeypatch, 1, owner=error) == ["GREEN_URL"]
