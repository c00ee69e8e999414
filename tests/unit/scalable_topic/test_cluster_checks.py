"""Checks of broker settings and addresses in PRECHECK."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.lifecycle.precheck import Findings
from activities.scalable_topic.checks.cluster import (
    check_addresses,
    check_auto_scale,
    check_auto_scale_again,
    check_broker,
    check_registration,
)
from clients.pulsar.admin.errors import AdminPreconditionFailed, AdminUnreachable
from models.scalable_topic.auto_scale import AutoScale

GOOD = {"scalableTopicsEnabled": "true", "httpServerIdleTimeout": "30000"}


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        (GOOD, []),
        ({"scalableTopicsEnabled": "true"}, []),
        ({**GOOD, "scalableTopicsEnabled": "false"}, ["NOT_SUPPORTED"]),
        ({}, ["NOT_SUPPORTED"]),
        ({**GOOD, "httpServerIdleTimeout": "60000"}, ["IDLE_CONNECTIONS"]),
        ({**GOOD, "httpServerIdleTimeout": "0"}, ["IDLE_CONNECTIONS"]),
    ],
)
def test_settings_under_which_topics_are_left_as_they_are(settings: dict[str, str], codes: list[str]) -> None:
    """Brokers without scalable topics, or with long idle connections, are blockers."""
    findings = Findings()
    check_broker(findings, "broker-1", settings)
    assert [blocker.code for blocker in findings.blockers] == codes


@pytest.mark.parametrize(
    ("registration", "codes"),
    [
        (b'{"pulsarServiceUrl": "pulsar://a:1", "pulsarServiceUrlTls": "pulsar+ssl://a:1"}', []),
        (b'{"pulsarServiceUrl": null, "pulsarServiceUrlTls": "pulsar+ssl://a:1"}', ["NO_PLAIN_ADDRESS"]),
        (b'{"pulsarServiceUrlTls": "pulsar+ssl://a:1"}', ["NO_PLAIN_ADDRESS"]),
    ],
)
def test_brokers_that_cannot_answer_lookups(registration: bytes, codes: list[str]) -> None:
    """Brokers without a plain address are a blocker."""
    findings = Findings()
    check_registration(findings, "broker-1", registration)
    assert [blocker.code for blocker in findings.blockers] == codes


@pytest.mark.parametrize(
    ("urls", "blocked"),
    [
        (["http://127.0.0.1:8080"], False),
        (["http://localhost:8080"], False),
        (["http://127.0.0.1:8080", "http://192.0.2.1:8080"], True),
        (["https://pulsar.example.invalid"], True),
        (["http://broker-2.example.invalid:8080"], False),
    ],
)
def test_addresses_that_lead_to_no_broker(urls: list[str], blocked: bool) -> None:
    """The address of a proxy is a blocker, since it could delay a request; addresses of brokers pass."""
    findings = Findings()
    check_addresses(findings, urls, ["http://127.0.0.1:8081", "http://broker-2.example.invalid:8080"])
    assert [blocker.code for blocker in findings.blockers] == (["ADMIN_ADDRESS"] if blocked else [])


class _Cluster:
    """Brokers that take an auto-scale policy, refuse it, or do not answer, by name, and namespaces with their own."""

    def __init__(self, brokers: dict[str, Exception | None], policies: dict[str, dict[str, Any]]) -> None:
        self.asked: list[tuple[str, str]] = []
        self._brokers, self._policies = brokers, policies
        self.findings = Findings()

    def _broker(self, name: str) -> Any:
        def require_policy(namespace: str, _: object) -> None:
            self.asked.append((name, namespace))
            if error := self._brokers[name]:
                raise error

        return SimpleNamespace(scalable_topics=SimpleNamespace(require_policy=require_policy))

    def task(self) -> Any:
        """Return an attempt on the cluster."""

        def policies(namespace: str) -> Any:
            return SimpleNamespace(raw={"scalableTopicAutoScalePolicy": self._policies[namespace]})

        def each(items: Any, work: Any) -> list[Any]:
            return [work(item) for item in items]

        admin = SimpleNamespace(namespaces=SimpleNamespace(policies=policies))
        brokers = [(name, self._broker(name)) for name in self._brokers]
        cluster = SimpleNamespace(writable_brokers=lambda: brokers)
        return cast("Any", SimpleNamespace(admin=admin, each=each, cluster=cluster))


_REFUSED = AdminPreconditionFailed("too few", method="POST", url="http://b", status=412)
_SILENT = AdminUnreachable("no answer", method="POST", url="http://a")


def test_brokers_are_asked_once_for_namespaces_alike() -> None:
    """Each broker gets one request per distinct policy of the namespaces."""
    cluster = _Cluster({"a": None, "b": _REFUSED}, {"n/1": {}, "n/2": {"maxSegments": 3}, "n/3": {}})
    check_auto_scale(cluster.task(), AutoScale(), cluster.findings, ["n/1", "n/2", "n/3"])
    assert cluster.asked == [("a", "n/1"), ("a", "n/2"), ("b", "n/1"), ("b", "n/2")]
    assert [blocker.cause for blocker in cluster.findings.blockers] == [
        f"b refuses the auto-scale policy for topics of {names}: too few" for names in ("n/1, n/3", "n/2")
    ]


def test_a_broker_that_is_silent_stops_no_flip() -> None:
    """A flip asks brokers until one answers."""
    cluster = _Cluster({"a": _SILENT, "b": _REFUSED, "c": _REFUSED}, {})
    check_auto_scale_again(cluster.task(), AutoScale(), cluster.findings, "n/1")
    assert cluster.asked == [("a", "n/1"), ("b", "n/1")]
    assert [blocker.code for blocker in cluster.findings.blockers] == ["AUTO_SCALE_REFUSED"]
