"""Checks that are repeated before a batch moves, since days may have passed: of its namespaces, and of green."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from activities.blue_green.checks.clusters import check_replication, check_running
from activities.blue_green.checks.copies import check_copies
from activities.blue_green.checks.green import check_deletion
from activities.blue_green.checks.names import check_shadows, check_terminated
from activities.blue_green.checks.settings import check_settings, read_brokers, refused_topics
from activities.blue_green.checks.use import check_expiry, expirations_of
from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.listing import scalable_topics
from activities.blue_green.provisioning.inventory import NamespaceInventory, read_namespace
from activities.blue_green.topics import check_topic
from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.await_on_brokers import LOOK_EVERY
from activities.pulsar.brokers import BrokerView
from activities.pulsar.coverage import require_unblocked
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.topic_inventory import TopicInventory
from clients.errors import StoreError
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.namespaces import Policies
from clients.pulsar.names import TopicName

_SAMPLE = 16
"""Number of topics of a batch that are checked, spread over all; each broker is checked as well."""


def green_not_ready_reason(task: AnyBlueGreenTask, namespaces: Sequence[str], topics: Sequence[TopicName]) -> str:
    """Return why clients of these namespaces must not be redirected to green now; empty if they may.

    Wait up to `quiesce_timeout`, since some reasons pass, such as a broker that is replaced.
    """
    deadline = task.context.deadline(task.input.quiesce_timeout.total_seconds())
    while (reason := next(_reasons(task, namespaces, topics), "")) and not deadline.passed:
        task.context.pause(LOOK_EVERY)
    return reason


def _reasons(task: AnyBlueGreenTask, namespaces: Sequence[str], topics: Sequence[TopicName]) -> Iterator[str]:
    name = task.input.green_cluster
    try:
        yield from _of_brokers(task)
        # Waves may take weeks: a broker may have been restarted with other settings, or replaced.
        findings = Findings()
        check_running(task, findings)
        yield from map(str, findings.blockers)
        yield from (
            f"{namespace} has scalable topics, and its flag would disconnect their clients: {', '.join(names)}"
            for namespace in namespaces
            if (names := scalable_topics(task, namespace))
        )
        flag = task.green.admin.clusters.migration(name)
        if flag and flag.migrated:
            yield f"the flag of {name} is set, so both clusters would redirect clients to each other"
        for broker, admin in task.green.brokers():
            yield from (f"{broker} {why}" for why in _sent_back(admin, namespaces))
        step = max(len(topics) // _SAMPLE, 1)
        # A missing topic is created for its first client.
        states = task.each(topics[::step], lambda topic: check_topic(task.green.admin, topic))
        yield from (f"{state.topic} is not served there" for state in states if state.blocked)
    except StoreError as error:
        yield str(error)


def _of_brokers(task: AnyBlueGreenTask) -> Iterator[str]:
    services = task.green.registrations()
    if not services:
        yield "no broker is registered"
    with BrokerView(task.green.access) as view:
        for service, problem in zip(services, task.each(services, view.health), strict=True):
            if problem:
                yield f"{service.name}: {problem}"


def _sent_back(admin: PulsarAdminReader, namespaces: Sequence[str]) -> Iterator[str]:
    for namespace in namespaces:
        if admin.namespaces.policies(namespace).migrated:
            yield f"redirects clients of {namespace}, so both clusters would redirect them to each other"


def recheck_namespaces(
    task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard], *, before_copy: bool = False
) -> list[tuple[NamespaceGuard, list[TopicInventory]]]:
    """Repeat PRECHECK's checks of replication, shadow and terminated topics, expiry, deletion, settings and features.

    Args:
        task: the step.
        guards: guards of the namespaces.
        before_copy: check backlogs as well. What is idle later is not copied.

    Returns:
        The topics of blue whose subscriptions expire on green, by namespace.

    Raises:
        ApplicationError: `ParticipantsNotReady`, where PRECHECK would have refused it.
    """
    expiring: list[tuple[NamespaceGuard, list[TopicInventory]]] = []
    if not guards:
        return expiring
    findings, census = Findings(), FeatureCensus(task.input.cluster)
    settings, brokers = task.green.admin.brokers.runtime_configuration(), read_brokers(task)
    for guard in guards:
        blue = read_namespace(task.blue.admin, guard.namespace, task.context.check)
        if blue is None:
            continue
        check_replication(task, findings, blue)
        check_shadows(findings, task.input.green_cluster, blue)
        check_terminated(task, findings, blue)  # mutant: blue-green/topics-that-clients-terminated-pass
        check_expiry(task, findings, blue, settings)
        if before_copy:
            check_copies(task, findings, blue, settings)
        policies = _policies_on_green(task, guard.namespace)
        check_deletion(task, findings, blue, policies, settings)
        green = policies and NamespaceInventory(guard.namespace, policies, {})
        # A topic's own policy may allow it; PROVISION does not change what only green has.
        if green and (refused := refused_topics(blue, green, brokers)):
            green = read_namespace(task.green.admin, guard.namespace, task.context.check, only=refused)
        check_settings(task, findings, blue, green, brokers)  # mutant: blue-green/settings-are-compared-once
        expiring.append((guard, [blue.topics[name] for name in expirations_of(blue, settings)]))
        for topic in blue.topics.values():
            census.add_topic(topic)
    census.check(findings, task.input.kind, task.input.accept, [BROKERS_UNKNOWN])
    require_unblocked(findings)
    return expiring


def expiring_topics(
    task: AnyBlueGreenTask, guards: Sequence[NamespaceGuard]
) -> list[tuple[NamespaceGuard, list[TopicInventory]]]:
    """Return the topics of blue whose subscriptions expire on green, by namespace."""
    if not guards:
        return []
    settings = task.green.admin.brokers.runtime_configuration()
    namespaces = ((guard, read_namespace(task.blue.admin, guard.namespace, task.context.check)) for guard in guards)
    return [
        (guard, [blue.topics[name] for name in expirations_of(blue, settings)]) for guard, blue in namespaces if blue
    ]


def _policies_on_green(task: AnyBlueGreenTask, namespace: str) -> Policies | None:
    try:
        return task.green.admin.namespaces.policies(namespace)
    except AdminNotFound:
        return None
