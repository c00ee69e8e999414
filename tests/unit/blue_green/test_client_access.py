"""Clients' credentials are tried on green. Both clusters are doubles here; real ones are in test_secure.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.blue_green.checks import access
from activities.blue_green.checks.access import check_clients, require_clients
from activities.blue_green.context import BlueGreenTask
from activities.lifecycle.precheck import Findings
from clients.errors import StoreDenied, StoreError, StoreNotFound, StoreUnreachable
from clients.pulsar.admin.errors import AdminNotFound

BLUE, GREEN = "pulsar://blue", "pulsar://green"


class Double:
    """Both clusters, with a topic in each namespace; a client is refused as said."""

    def __init__(self, refused: dict[tuple[str, str], StoreError], lacking: str = "") -> None:
        self.asked: list[tuple[str, str]] = []
        self._refused, self._lacking = refused, lacking
        names = SimpleNamespace(names=self._topics)
        policies = SimpleNamespace(policies=self._policies)
        self.task = cast(
            "BlueGreenTask",
            SimpleNamespace(
                input=SimpleNamespace(
                    cluster="b",
                    green_cluster="g",
                    client_credentials=("app",),
                    blue=SimpleNamespace(brokers_url=BLUE),
                    green=SimpleNamespace(brokers_url=GREEN),
                ),
                runtime=SimpleNamespace(wire_of=str),
                context=SimpleNamespace(check=lambda: None),
                blue=SimpleNamespace(admin=SimpleNamespace(topics=names)),
                green=SimpleNamespace(admin=SimpleNamespace(namespaces=policies)),
            ),
        )

    def greet(self, url: str, _: object) -> None:
        """Connect."""
        self._ask(url, "")

    def connect(self, url: str, topic: Any, _: object) -> Any:
        """Look a topic up."""
        self._ask(url, topic.namespace_path)
        return SimpleNamespace(close=lambda: None)

    def _ask(self, url: str, namespace: str) -> None:
        self.asked.append((url, namespace))
        if error := self._refused.get((url, namespace)):
            raise error

    def _topics(self, namespace: str) -> list[str]:
        return [f"{namespace}/topic"]

    def _policies(self, namespace: str) -> None:
        if namespace == self._lacking:
            raise AdminNotFound("no such namespace", method="GET", url="")


def double(
    monkeypatch: pytest.MonkeyPatch, refused: dict[tuple[str, str], StoreError] | None = None, lacking: str = ""
) -> Double:
    """Return a double in place of the binary protocol."""
    made = Double(refused or {}, lacking)
    monkeypatch.setattr(access, "greet", made.greet)
    monkeypatch.setattr(access, "connect", made.connect)
    return made


def causes(made: Double) -> list[str]:
    """Return codes and causes of the precheck's blockers."""
    findings = Findings()
    check_clients(made.task, findings, ["a/one", "a/two"])
    return [f"{blocker.code} {blocker.cause}" for blocker in findings.blockers]


def test_green_must_grant_what_blue_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Green is checked only for what clients may use on blue; a topic that does not exist yet is not a refusal."""
    no = StoreDenied("no permission")
    assert causes(double(monkeypatch)) == []
    (cause,) = causes(double(monkeypatch, {(GREEN, "a/two"): no}))
    assert cause == "GREEN_CLIENTS clients with the credentials 'app' may use a/two only on b: no permission."
    assert causes(double(monkeypatch, {(GREEN, "a/two"): no, (BLUE, "a/two"): no})) == []
    assert causes(double(monkeypatch, {(GREEN, "a/one"): StoreNotFound("no topic")})) == []


def test_missing_namespaces_are_checked_once_they_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace that does not exist yet is not checked."""
    made = double(monkeypatch, {(GREEN, "a/one"): StoreDenied("no permission")}, lacking="a/one")
    assert causes(made) == []
    assert made.asked == [(GREEN, ""), (BLUE, "a/two"), (GREEN, "a/two")]


def test_clients_that_cannot_connect_are_not_checked_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token or a certificate that green refuses is one blocker."""
    made = double(monkeypatch, {(GREEN, ""): StoreDenied("no such key")})
    (cause,) = causes(made)
    assert cause == "GREEN_CLIENTS clients with the credentials 'app' cannot connect to pulsar://green: no such key."
    assert made.asked == [(GREEN, "")]


def test_a_broker_that_does_not_answer_is_not_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The precheck reports it as unreachable; PROVISION is repeated, and ends only with a refusal."""
    away = {(GREEN, "a/two"): StoreUnreachable("no answer")}
    (cause,) = causes(double(monkeypatch, {**away}))
    assert cause.startswith("GREEN_CLIENTS_UNREACHABLE")
    with pytest.raises(StoreUnreachable):
        require_clients(double(monkeypatch, {**away}).task, ["a/one", "a/two"])
    with pytest.raises(StoreDenied, match="may use a/two only on b"):
        require_clients(double(monkeypatch, {(GREEN, "a/two"): StoreDenied("no")}).task, ["a/one", "a/two"])
    require_clients(double(monkeypatch).task, ["a/one", "a/two"])
