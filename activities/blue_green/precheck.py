"""PRECHECK: count what would move, and find blockers, warnings, and risks that an operator must accept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from activities.blue_green.checks.access import check_clients, lacking_credentials
from activities.blue_green.checks.client_versions import (
    cannot_follow,
    check_redirect,
    is_known,
    is_of_cpp,
    is_untested,
    lacking_address,
)
from activities.blue_green.checks.clusters import check_clusters, check_other_clusters, check_replication
from activities.blue_green.checks.green import (
    check_failback,
    check_fit,
    check_green,
    check_isolation,
    check_resource_group,
    judge,
)
from activities.blue_green.checks.names import check_namespace_names, check_patterns, check_topics
from activities.blue_green.checks.settings import read_brokers
from activities.blue_green.checks.use import TopicUse, check_expiry, pending_acknowledgements
from activities.blue_green.context import AnyBlueGreenTask, BlueGreenTask
from activities.blue_green.failback import after_failback
from activities.blue_green.listing import namespaces_of, selected
from activities.blue_green.namespace_redirect import records, redirected_namespaces
from activities.blue_green.policies import as_before
from activities.blue_green.provisioning.differences import differences
from activities.blue_green.provisioning.inventory import NamespaceInventory, TopicInventory, read_namespace
from activities.blue_green.provisioning.ledger_ids import compare_ids
from activities.blue_green.provisioning.namespaces import ignore_own_copies
from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.coverage import covered
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.fingerprint import cluster_facts, names_fact
from activities.pulsar.releases import refuse_untested
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.admin.topic_policies import GLOBAL
from clients.pulsar.admin.topics import Client
from clients.stores import Access, open_reader
from models.blue_green.differences import DifferenceKind
from models.blue_green.input import FUNCTIONS, IdleSubscriptions
from models.blue_green.results import Precheck, Survey
from models.defects import has_defect
from models.lifecycle.failures import NAMED, summarize
from models.lifecycle.status import ProgressTask, ProgressUnit
from models.releases import TESTED_CLIENTS, Behaviour

# Subscriptions of other types refuse such acknowledgements.
_CUMULATIVE = ("Exclusive", "Failover")
_RATE = "publishRate"
# The publish limit of the flip has no effect on a topic with its own publish rate.
_REOPENS = "TERMINATE_REOPENS"
# Codes of blockers which mean that blue cannot be read, or is another cluster.
_NOT_BLUE = ("BLUE_STORE", "BLUE_BROKERS", "BLUE_CLUSTER_NAME", "BLUE_OTHER_STORE", "BLUE_NO_BROKERS")
_EXTERNAL = ("flink", "spark", "beam")


@dataclass
class _Usage:
    """Usage of all namespaces that move.

    Attributes:
        lacks_address: field of green's addresses that is not given; empty if both are.
        survey: counts, by name.
        idle: subscriptions with a backlog and without a consumer.
        non_persistent: topics that are not persistent.
        unloadable: topics that brokers cannot load.
        delayed: subscriptions with delayed messages.
        retained: topics with messages that only retention keeps.
        readers: readers and connectors, which may keep positions outside of Pulsar.
        old_clients: reasons why clients cannot follow to green, by address.
        unknown_clients: clients that do not report the version of a known library.
        untested_clients: clients of releases that were not tested.
        deduplicated: namespaces with deduplication.
        compacted: topics that are compacted.
        own_rates: topics with their own publish rate.
        may_be_cumulative: subscriptions of C++ and Python consumers that may acknowledge cumulatively.
        replicated_to: other clusters to which namespaces replicate.
        use: use of topics that a flip would break.
    """

    lacks_address: str
    survey: Counter[str] = field(default_factory=Counter[str])
    idle: list[str] = field(default_factory=list[str])
    non_persistent: list[str] = field(default_factory=list[str])
    unloadable: list[str] = field(default_factory=list[str])
    delayed: list[str] = field(default_factory=list[str])
    retained: list[str] = field(default_factory=list[str])
    readers: list[str] = field(default_factory=list[str])
    old_clients: dict[str, str] = field(default_factory=dict[str, str])
    unknown_clients: set[str] = field(default_factory=set[str])
    untested_clients: set[str] = field(default_factory=set[str])
    deduplicated: list[str] = field(default_factory=list[str])
    compacted: list[str] = field(default_factory=list[str])
    own_rates: list[str] = field(default_factory=list[str])
    may_be_cumulative: list[str] = field(default_factory=list[str])
    replicated_to: set[str] = field(default_factory=set[str])
    use: TopicUse = field(default_factory=TopicUse)


@step(BlueGreenTask, reads_only=True)
def precheck(task: BlueGreenTask) -> Precheck:
    """Check both clusters and every namespace that moves, without any change."""
    if blockers := lacking_credentials(task.runtime, task.input):
        return Precheck(blockers=tuple(blockers))
    return _check(task)


def _check(task: AnyBlueGreenTask) -> Precheck:
    findings = Findings()
    check_clusters(task, findings)
    if findings.blockers:
        return _unusable(task, findings)
    everything = namespaces_of(task.blue.admin)
    check_patterns(task.input, findings, everything)
    names = selected(task.blue.admin, task.input)
    if not names:
        patterns = ", ".join(task.input.namespaces)
        cause = f"no namespace of {task.input.cluster} matches {patterns}"
        findings.block("NOTHING_SELECTED", cause, "correct the patterns")
    names = check_namespace_names(findings, names)
    check_redirect(findings, task.blue.release, task.input.green)
    compared = read_brokers(task)
    check_green(task, findings, names, compared)
    findings.check("the isolation of namespaces", lambda: check_isolation(task, findings, names), of="GREEN")
    check_clients(task, findings, names)
    with task.blue.store() as store:
        redirected, blue_records = redirected_namespaces(task, store, names), records(store)
    # Clients use green's topics in the others.
    recreated = check_failback(task, findings, to_move := [name for name in names if name not in redirected])
    with task.green.store() as store:
        green_records = records(store)
    usage, lines, missing = _usage(task, to_move), list[str](), 0
    census, settings = FeatureCensus(task.input.cluster), task.green.admin.brokers.runtime_configuration()
    for done, name in enumerate(names):
        task.context.progress(ProgressTask.COMPARE, ProgressUnit.NAMESPACES, done, len(names), detail=name)
        if name in redirected:
            _add_redirected(task, findings, usage, name)
            continue
        blue = read_namespace(task.blue.admin, name, task.context.check)
        if blue is None:
            continue
        # Without overrides that an earlier run did not restore.
        blue = replace(blue, policies=as_before(blue.policies, blue_records.get(name), task.input.cluster))
        green = read_namespace(task.green.admin, name, task.context.check)
        if green is not None:
            green = after_failback(green, recreated, green_records.get(name), task.input.green_cluster)
        usage.replicated_to |= check_replication(task, findings, blue)
        check_fit(task, findings, blue, green, settings, compared=compared)
        check_expiry(task, findings, blue, settings)
        check_resource_group(task, findings, blue)
        blue = check_topics(task, findings, blue)
        differing = ignore_own_copies(
            task, name, differences(blue, green, names=task.names, release=task.green.release)
        )
        missing += sum(1 for difference in differing if difference.kind is DifferenceKind.MISSING)
        judge(task, findings, name, differing)
        lines += map(str, differing)
        _add(usage, blue)
        usage.use.add(task, blue)
        for topic in blue.topics.values():
            census.add_topic(topic)
    _judge(task, findings, usage)
    staying = [name for name in everything if task.input.rank(name) is None]
    survey = Survey(
        tenants=len({name.partition("/")[0] for name in names}),
        namespaces=len(names),
        not_moved=len(staying),
        idle=len(usage.idle),
        retained=len(usage.retained),
        **{name: usage.survey[name] for name in ("topics", "subscriptions", "producers", "consumers")},
    )
    result = Precheck(
        blockers=tuple(findings.blockers),
        warnings=tuple(findings.warnings),
        fingerprint=_green_facts(task, findings, names),
        questions=tuple(_questions(task, usage)),
        survey=survey,
        missing=missing,
        differences=tuple(lines[:NAMED]),
        replicated_to=tuple(sorted(usage.replicated_to)),
    )
    return _covered(task, result, census, names)


def _usage(task: AnyBlueGreenTask, namespaces: Sequence[str]) -> _Usage:
    """Return the usage of namespaces as far as the metadata store knows it."""
    with task.blue.store() as store:
        logs = [log for namespace in namespaces for log in pending_acknowledgements(store, namespace)]
    return _Usage(lacking_address(task.input.green), use=TopicUse(transaction_topics=logs))


def _unusable(task: AnyBlueGreenTask, findings: Findings) -> Precheck:
    """Return the result for clusters that cannot be used, with the coverage of blue if that can be read."""
    # Further checks would fail for the same reasons, or would check the wrong cluster.
    result = Precheck(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    if any(blocker.code.startswith(_NOT_BLUE) for blocker in findings.blockers):
        return result
    return _covered(task, result, FeatureCensus(task.input.cluster), selected(task.blue.admin, task.input))


def _green_facts(task: AnyBlueGreenTask, findings: Findings, names: Sequence[str]) -> dict[str, str]:
    """Return the facts of green that a receipt keeps, and which namespaces move."""
    facts = {"green release": str(task.green.release), "namespaces": names_fact(names)}
    store = task.input.green.store

    def read() -> None:
        with open_reader(store, task.green.stores) as reader:
            facts.update({f"green {name}": fact for name, fact in cluster_facts(reader, store).items()})

    findings.check("the metadata store of green", read, of="GREEN")
    return facts


def _covered(task: AnyBlueGreenTask, result: Precheck, census: FeatureCensus, namespaces: Sequence[str]) -> Precheck:
    store, access = task.input.blue.store, task.blue.stores
    result = task.with_throttle_warnings(result, task.input.auto_throttle, task.input.blue.credentials)
    return covered(
        result, task.input, census, lambda census: task.blue.survey(census, namespaces), store=store, access=access
    )


def _add_redirected(task: AnyBlueGreenTask, findings: Findings, usage: _Usage, name: str) -> None:
    blue, green = task.input.cluster, task.input.green_cluster
    findings.warn(f"clients of {name} are redirected to {green} already; its move is completed")
    with suppress(AdminNotFound):
        usage.replicated_to |= {*task.blue.admin.namespaces.policies(name).replication_clusters} - {blue, green}


def _add(usage: _Usage, namespace: NamespaceInventory) -> None:
    if namespace.policies.raw.get("deduplicationEnabled"):
        usage.deduplicated.append(namespace.name)
    for topic in namespace.topics.values():
        if not topic.persistent:
            usage.non_persistent.append(str(topic.name))
            continue
        usage.survey["topics"] += max(len(topic.parts), 1)
        if topic.compacted:
            usage.compacted.append(str(topic.name))
        if any(name.removeprefix(GLOBAL) == _RATE for name in topic.policies or ()):
            usage.own_rates.append(str(topic.name))
        usage.unloadable += [f"{partition.name} ({partition.load_error})" for partition in topic.unloadable]
        _add_subscriptions(usage, topic)
        for client in topic.producers:
            usage.survey["producers"] += 1
            _add_client(usage, client)
        if topic.has_messages and not any(sub.backlog for sub in topic.subscriptions.values()):
            usage.retained.append(str(topic.name))


def _add_subscriptions(usage: _Usage, topic: TopicInventory) -> None:
    for sub in topic.subscriptions.values():
        usage.survey["consumers"] += len(sub.consumers)
        for client in sub.consumers:
            _add_client(usage, client)
        if sub.type in _CUMULATIVE and any(is_of_cpp(client.client_version or "") for client in sub.consumers):
            usage.may_be_cumulative.append(f"{topic.name} ({sub.name})")
        if not sub.durable:
            usage.readers.append(f"{topic.name} ({sub.name})")
            continue
        usage.survey["subscriptions"] += 1
        if sub.backlog and not sub.consumers:
            usage.idle.append(f"{topic.name} {sub.name} ({sub.backlog:,} messages)")
        if sub.delayed:
            usage.delayed.append(f"{topic.name} {sub.name} ({sub.delayed:,} messages)")
        if any(word in sub.name.lower() for word in _EXTERNAL):
            usage.readers.append(f"{topic.name} ({sub.name})")


def _add_client(usage: _Usage, client: Client) -> None:
    version, address = client.client_version or "", client.address or "unknown address"
    if why := cannot_follow(version, lacks_address=usage.lacks_address):
        usage.old_clients[address] = why
    elif not is_known(version):
        usage.unknown_clients.add(f"{address} ({version})" if version else address)
    elif is_untested(version):
        usage.untested_clients.add(f"{address} ({version})")


def _judge_clients(task: AnyBlueGreenTask, findings: Findings, usage: _Usage) -> None:
    green = task.input.green_cluster
    if usage.old_clients:
        reasons = [f"{address}: {why}" for address, why in usage.old_clients.items()]
        findings.block("OLD_CLIENTS", f"clients cannot follow to {green}: {summarize(reasons)}", _upgrade(usage))
    if usage.untested_clients:
        tested = "; ".join(f"{library} {', '.join(lines)}" for library, lines in TESTED_CLIENTS.items())
        refuse_untested(
            findings,
            "UNTESTED_CLIENTS",
            f"{len(usage.untested_clients)} clients have releases that were not tested (tested: {tested}): "
            f"{summarize(sorted(usage.untested_clients))}",
            "upgrade them",
            task.input.accepted,
        )


def _judge(task: AnyBlueGreenTask, findings: Findings, usage: _Usage) -> None:
    _judge_clients(task, findings, usage)
    if usage.unloadable:
        cause = f"topics cannot be loaded, so they cannot be drained: {summarize(usage.unloadable)}"
        findings.block("UNLOADABLE_TOPICS", cause, "repair or delete them, or exclude their namespaces")
    usage.use.judge(task, findings)
    check_other_clusters(task, findings, usage.replicated_to)
    listed = (
        (usage.non_persistent, f"topics are not persistent; {_risk_of_non_persistent(task)}"),
        (usage.delayed, "subscriptions have delayed messages; they are drained when these messages are due"),
        (usage.retained, "topics retain messages that all subscriptions have acknowledged; these stay on blue"),
        (usage.deduplicated, "namespaces use deduplication; sequence ids start again on green"),
        (
            usage.own_rates,
            "topics have their own publish rate; their writes are not held back during the flip",
        ),
    )
    for items, what in listed:
        if items:
            findings.warn(f"{len(items)} {what}: {summarize(sorted(items))}")
    if usage.own_rates and has_defect(task.blue.release, _REOPENS) and _REOPENS not in task.input.accept_defects:
        findings.block(
            "OWN_PUBLISH_RATE",
            f"{len(usage.own_rates)} topics have their own publish rate, so they are terminated during writes. "
            f"Brokers of {task.blue.release} can lose acknowledged messages then ({_REOPENS}, #26680): "
            f"{summarize(sorted(usage.own_rates))}",
            "remove these rates until the flip is complete (pulsar-admin topicPolicies remove-publish-rate), or "
            f'upgrade blue. To accept the loss, set "accept_defects": ["{_REOPENS}"]',
        )
    if usage.idle and task.input.idle_subscriptions is IdleSubscriptions.SKIP:
        findings.warn(f"{len(usage.idle)} idle subscriptions lose their backlog (skip): {summarize(usage.idle)}")
    elif usage.idle and task.input.idle_subscriptions is IdleSubscriptions.WAIT:
        findings.warn(
            f"{len(usage.idle)} subscriptions have a backlog and no consumer; their batches wait for a consumer, up to "
            f"drain_timeout: {summarize(usage.idle)}"
        )
    elif usage.idle:
        findings.warn(
            f"{len(usage.idle)} subscriptions without consumers continue with a copy: {summarize(usage.idle)}"
        )
    if FUNCTIONS in namespaces_of(task.blue.admin):
        findings.warn(
            f"functions and connectors run on {task.input.cluster}, and {FUNCTIONS} does not move, so the flag of the "
            f"whole cluster is not set: start them on {task.input.green_cluster}"
        )


def _risk_of_non_persistent(task: AnyBlueGreenTask) -> str:
    if task.blue.release.has(Behaviour.REDIRECTS_ALL_CONSUMERS):
        return "messages that are sent to them on green before their consumers have moved are lost"
    return f"brokers of {task.blue.release} do not redirect their consumers (#26075): restart them after the flip"


def _upgrade(usage: _Usage) -> str:
    return f"upgrade them, or give {usage.lacks_address} of green" if usage.lacks_address else "upgrade them"


def _questions(task: AnyBlueGreenTask, usage: _Usage) -> Iterable[str]:
    if usage.readers and not task.input.accept_external_positions:
        yield (
            f"{len(usage.readers)} readers or connectors may keep message ids outside of Pulsar, but ids are different "
            f"on {task.input.green_cluster}: {summarize(usage.readers)}"
        )
    if question := usage.use.question:
        yield question
    if usage.unknown_clients:
        yield (
            f"{len(usage.unknown_clients)} clients do not report a library version that is known to follow to "
            f"{task.input.green_cluster}. Clients that do not follow lose {task.input.cluster} at the flip, and must "
            f"be restarted with the address of {task.input.green_cluster}: {summarize(sorted(usage.unknown_clients))}"
        )
    if usage.compacted:
        yield (
            f"{len(usage.compacted)} topics are compacted: their compacted state starts empty on "
            f"{task.input.green_cluster}, and brokers of {task.input.cluster} delete what is up to date after the "
            f"flip: {summarize(usage.compacted)}"
        )
    if usage.may_be_cumulative and compare_ids(task.input, *_stores(task)) is None:
        yield (
            f"{len(usage.may_be_cumulative)} subscriptions have C++ or Python consumers. If these acknowledge "
            f"cumulatively, they drop messages of {task.input.green_cluster} while its ledger ids are lower. The ids "
            "cannot be raised, because a cluster does not keep its ledgers in /ledgers of its metadata store. Restart "
            f"such consumers after the flip: {summarize(usage.may_be_cumulative)}"
        )


def _stores(task: AnyBlueGreenTask) -> tuple[Access, Access]:
    return task.blue.stores, task.green.stores
