"""Check that clients can use green with their credentials, by Pulsar's binary protocol.

A redirected client keeps its credentials. So green must allow the lookups that blue allows; but green may not know the
key of the client's token, its role, or the authority of its certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.topics import topics_of
from activities.lifecycle.precheck import Findings
from activities.lifecycle.runtime import Runtime
from activities.pulsar.credentials_check import unusable_credentials
from clients.errors import StoreDenied, StoreNotFound
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.wire.lookup import connect, greet
from models.blue_green.input import BlueGreenInput
from models.lifecycle.failures import Blocker

_CURE = "let green accept the clients' tokens or certificates, and give their role the same permissions as on blue"


def check_clients(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> None:
    """Connect to green as clients, and look up a topic in each namespace that both clusters have.

    Args:
        task: the step.
        findings: receives a blocker for each refusal, and for each failed check.
        namespaces: namespaces that move.
    """
    for credentials in task.input.client_credentials:
        findings.check(
            f"{task.input.green_cluster}, with the clients' credentials {credentials!r},",
            lambda credentials=credentials: findings.blockers.extend(_refusals(task, credentials, namespaces)),
            of="GREEN_CLIENTS",
        )


def require_clients(task: AnyBlueGreenTask, namespaces: Sequence[str]) -> None:
    """Require that clients may use green as they use blue, after green has all namespaces.

    Raises:
        StoreDenied: green refuses clients what blue grants them.
        StoreError: a broker does not answer.
    """
    refusals = [refusal for name in task.input.client_credentials for refusal in _refusals(task, name, namespaces)]
    if refusals:
        raise StoreDenied(" ".join(map(str, refusals)))


def _refusals(task: AnyBlueGreenTask, credentials: str, namespaces: Sequence[str]) -> Iterator[Blocker]:
    access, blue, green = task.runtime.wire_of(credentials), task.input.blue, task.input.green
    who = f"clients with the credentials {credentials!r}"
    if why := _refusal(lambda: greet(green.brokers_url, access)):
        yield _blocker(f"{who} cannot connect to {green.brokers_url}: {why}")
        return
    for namespace in namespaces:
        task.context.check()
        topic = _a_topic(task, namespace)
        # A client without access to a namespace on blue needs none on green.
        if topic is None or _refusal(lambda topic=topic: connect(blue.brokers_url, topic, access).close()):
            continue
        if why := _refusal(lambda topic=topic: connect(green.brokers_url, topic, access).close()):
            yield _blocker(f"{who} may use {namespace} only on {task.input.cluster}: {why}")


def _refusal(ask: Callable[[], None]) -> str:
    """Return why a broker refuses credentials; empty if it accepts them."""
    try:
        ask()
    except StoreDenied as error:
        return str(error)
    except StoreNotFound:
        # The topic does not exist yet. A client without permission gets StoreDenied instead.
        return ""
    return ""


def _a_topic(task: AnyBlueGreenTask, namespace: str) -> TopicName | None:
    """Return a topic of a namespace of blue; None for none, or if green does not have the namespace yet."""
    try:
        task.green.admin.namespaces.policies(namespace)
        return next(iter(topics_of(task.blue.admin, namespace)), None)
    except AdminNotFound:
        return None


def _blocker(cause: str) -> Blocker:
    return Blocker(code="GREEN_CLIENTS", cause=f"{cause}.", cure=_CURE)


def lacking_credentials(runtime: Runtime, input: BlueGreenInput) -> list[Blocker]:
    """Return blockers for credentials that this worker lacks or cannot use."""
    clusters = (("BLUE", input.blue.credentials), ("GREEN", input.green.credentials))
    return unusable_credentials(runtime, (*clusters, *(("CLIENT", name) for name in input.client_credentials)))
