"""PRECHECK: what would move, every blocker with its cure, and what only an operator can weigh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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
from activities.blue_green.checks.clusters import check_clusters, check_replication
from activities.blue_green.checks.green import (
    check_failback,
    check_fit,
    check_green,
    check_isolation,
    check_resource_group,
    judge,
)
from activities.blue_green.checks.names import check_namespace_names, check_patterns, check_topics
from activities.blue_green.checks.use import TopicUse, check_expiry
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
from activities.pulsar.releases import refuse_untested
from clients.pulsar.admin.topic_policies import GLOBAL
from clients.pulsar.admin.topics import Client
from clients.stores import Access
from models.blue_green.differences import DifferenceKind
from models.blue_green.input import FUNCTIONS, IdleSubscriptions
from models.blue_green.results import Precheck, Survey
from models.defects import has_defect
from models.lifecycle.failures import NAMED, some
from models.lifecycle.status import ProgressTask, ProgressUnit
from models.releases import TESTED_CLIENTS, Behaviour

# Subscriptions of other types refuse such acknowledgements.
_CUMULATIVE = ("Exclusive", "Failover")
_RATE = "publishRate"
# Writes to a topic with a rate of its own are not held back for the flip.
_REOPENS = "TERMINATE_REOPENS"
# Codes of blockers that say that blue cannot be read, or is another cluster.
_NOT_BLUE = ("BLUE_STORE", "BLUE_BROKERS", "BLUE_CLUSTER_NAME", "BLUE_OTHER_STORE", "BLUE_NO_BROKERS")
_EXTERNAL = ("flink", "spark", "beam")


@dataclass
class _Found:
    """What was found in all namespaces; `lacks_address` is the field of green's addresses that is not given."""

    lacks_address: str
    survey: Counter[str] = field(default_factory=Counter[str])
    idle: list[str] = field(default_factory=list[str])
    passing: list[str] = field(default_factory=list[str])
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
    use: TopicUse = field(default_factory=TopicUse)


@step(BlueGreenTask, reads_only=True)
def precheck(task: BlueGreenTask) -> Precheck:
    """Check both clusters and every namespace that moves; writes nothing."""
    if blockers := lacking_credentials(task.runtime, task.input):
        return Precheck(blockers=tuple(blockers))
    return _check(task)


def _check(task: AnyBlueGreenTask) -> Precheck:
    findings = Findings()
    check_clusters(task, findings)
    if findings.blockers:
        return _unusable(task, findings)
    everything = namespaces_of(task.blue)
    check_patterns(task.input, findings, everything)
    names = selected(task.blue, task.input)
    if not names:
        patterns = ", ".join(task.input.namespaces)
        findings.block("NOTHING_SELECTED", f"no namespace of {task.input.cluster} fits {patterns}", "correct them")
    names = check_namespace_names(findings, names)
    check_redirect(findings, task.blue_release, task.input.green)
    check_green(task, findings, names)
    isolated = "the isolation of namespaces"
    findings.check(isolated, lambda: check_isolation(task, findings, names), of="GREEN")
    check_clients(task, findings, names)
    made_anew = check_failback(task, findings, names)
    with task.blue_store() as store:
        begun, here = redirected_namespaces(task, store, names), records(store)
    with task.green_store() as store:
        there = records(store)
    found, lines, missing = _Found(lacking_address(task.input.green)), list[str](), 0
    census, settings = FeatureCensus(task.input.cluster), task.green.brokers.runtime_configuration()
    for done, name in enumerate(names):
        task.context.progress(ProgressTask.COMPARE, ProgressUnit.NAMESPACES, done, len(names), detail=name)
        if name in begun:
            findings.warn(f"clients of {name} are sent to {task.input.green_cluster} already; it is brought to its end")
            continue
        blue = read_namespace(task.blue, name, task.context.check)
        if blue is None:
            continue
        # What an earlier run has changed, and was ended before it put that back.
        blue = replace(blue, policies=as_before(blue.policies, here.get(name), task.input.cluster))
        green = read_namespace(task.green, name, task.context.check)
        if green is not None:
            green = after_failback(green, made_anew, there.get(name), task.input.green_cluster)
        check_replication(task, findings, blue)
        check_fit(task, findings, blue)
        check_expiry(task, findings, blue, settings)
        check_resource_group(task, findings, blue)
        blue = check_topics(task, findings, blue)
        differing = ignore_own_copies(
            task, name, differences(blue, green, names=task.names, release=task.green_release)
        )
        missing += sum(1 for one in differing if one.kind is DifferenceKind.MISSING)
        judge(task, findings, name, differing)
        lines += map(str, differing)
        _add(found, blue)
        found.use.add(task, blue)
        for topic in blue.topics.values():
            census.add_topic(topic)
    _judge(task, findings, found)
    left = [name for name in everything if task.input.rank(name) is None]
    survey = Survey(
        tenants=len({name.partition("/")[0] for name in names}),
        namespaces=len(names),
        not_moved=len(left),
        idle=len(found.idle),
        retained=len(found.retained),
        **{name: found.survey[name] for name in ("topics", "subscriptions", "producers", "consumers")},
    )
    result = Precheck(
        blockers=tuple(findings.blockers),
        warnings=tuple(findings.warnings),
        questions=tuple(_questions(task, found)),
        survey=survey,
        missing=missing,
        differences=tuple(lines[:NAMED]),
    )
    return _covered(task, result, census, names)


def _unusable(task: AnyBlueGreenTask, findings: Findings) -> Precheck:
    """Return the result where a cluster cannot be used; what blue uses is in it, if that is the right one."""
    # What else is asked would fail for the same reasons, or be asked of the wrong cluster.
    result = Precheck(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    if any(blocker.code.startswith(_NOT_BLUE) for blocker in findings.blockers):
        return result
    return _covered(task, result, FeatureCensus(task.input.cluster), selected(task.blue, task.input))


def _covered(task: AnyBlueGreenTask, result: Precheck, census: FeatureCensus, namespaces: Sequence[str]) -> Precheck:
    store, access = task.input.blue.store, task.stores(task.input.blue)
    return covered(
        result, task.input, census, lambda census: task.survey(census, namespaces), store=store, access=access
    )


def _add(found: _Found, namespace: NamespaceInventory) -> None:
    if namespace.policies.raw.get("deduplicationEnabled"):
        found.deduplicated.append(namespace.name)
    for topic in namespace.topics.values():
        if not topic.persistent:
            found.passing.append(str(topic.name))
            continue
        found.survey["topics"] += max(len(topic.parts), 1)
        if topic.compacted:
            found.compacted.append(str(topic.name))
        if any(name.removeprefix(GLOBAL) == _RATE for name in topic.policies or ()):
            found.own_rates.append(str(topic.name))
        found.unloadable += [f"{part.name} ({part.trouble})" for part in topic.unloadable]
        _add_subscriptions(found, topic)
        for client in topic.producers:
            found.survey["producers"] += 1
            _add_client(found, client)
        if topic.has_messages and not any(sub.backlog for sub in topic.subscriptions.values()):
            found.retained.append(str(topic.name))


def _add_subscriptions(found: _Found, topic: TopicInventory) -> None:
    for sub in topic.subscriptions.values():
        found.survey["consumers"] += len(sub.consumers)
        for client in sub.consumers:
            _add_client(found, client)
        if sub.type in _CUMULATIVE and any(is_of_cpp(client.client_version or "") for client in sub.consumers):
            found.may_be_cumulative.append(f"{topic.name} ({sub.name})")
        if not sub.durable:
            found.readers.append(f"{topic.name} ({sub.name})")
            continue
        found.survey["subscriptions"] += 1
        if sub.backlog and not sub.consumers:
            found.idle.append(f"{topic.name} {sub.name} ({sub.backlog:,} messages)")
        if sub.delayed:
            found.delayed.append(f"{topic.name} {sub.name} ({sub.delayed:,} messages)")
        if any(word in sub.name.lower() for word in _EXTERNAL):
            found.readers.append(f"{topic.name} ({sub.name})")


def _add_client(found: _Found, client: Client) -> None:
    version, address = client.client_version or "", client.address or "unknown address"
    if why := cannot_follow(version, lacks_address=found.lacks_address):
        found.old_clients[address] = why
    elif not is_known(version):
        found.unknown_clients.add(f"{address} ({version})" if version else address)
    elif is_untested(version):
        found.untested_clients.add(f"{address} ({version})")


def _judge_clients(task: AnyBlueGreenTask, findings: Findings, found: _Found) -> None:
    green = task.input.green_cluster
    if found.old_clients:
        told = [f"{address}: {why}" for address, why in found.old_clients.items()]
        findings.block("OLD_CLIENTS", f"clients cannot follow to {green}: {some(told)}", _upgrade(found))
    if found.untested_clients:
        tested = "; ".join(f"{library} {', '.join(lines)}" for library, lines in TESTED_CLIENTS.items())
        refuse_untested(
            findings,
            "UNTESTED_CLIENTS",
            f"{len(found.untested_clients)} clients are of releases that were not tested ({tested} were): "
            f"{some(sorted(found.untested_clients))}",
            "upgrade them",
            task.input.accepted,
        )


def _judge(task: AnyBlueGreenTask, findings: Findings, found: _Found) -> None:
    _judge_clients(task, findings, found)
    if found.unloadable:
        cause = f"topics cannot be loaded, and so not be drained: {some(found.unloadable)}"
        findings.block("UNLOADABLE_TOPICS", cause, "cure them, or exclude their namespaces")
    found.use.judge(task, findings)
    listed = (
        (found.passing, f"topics are not persistent; {_passing(task)}"),
        (found.delayed, "subscriptions have delayed messages; they are drained when these are due"),
        (found.retained, "topics keep messages that all have acknowledged; these stay on blue"),
        (found.deduplicated, "namespaces deduplicate; sequence ids begin again on green"),
        (
            found.own_rates,
            "topics have a publish rate of their own; their writes are not held back for the flip",
        ),
    )
    for items, what in listed:
        if items:
            findings.warn(f"{len(items)} {what}: {some(sorted(items))}")
    if found.own_rates and has_defect(task.blue_release, _REOPENS) and _REOPENS not in task.input.accept_defects:
        findings.block(
            "OWN_PUBLISH_RATE",
            f"{len(found.own_rates)} topics have a publish rate of their own, and are terminated during writes: "
            f"brokers of {task.blue_release} can lose acknowledged messages then ({_REOPENS}, #26680): "
            f"{some(sorted(found.own_rates))}",
            "remove these rates until the flip is over (pulsar-admin topicPolicies remove-publish-rate), or upgrade "
            f'blue. To accept the loss, set "accept_defects": ["{_REOPENS}"]',
        )
    if found.idle and task.input.idle_subscriptions is IdleSubscriptions.SKIP:
        findings.warn(f"{len(found.idle)} idle subscriptions lose their backlog (skip): {some(found.idle)}")
    elif found.idle and task.input.idle_subscriptions is IdleSubscriptions.WAIT:
        findings.warn(
            f"{len(found.idle)} subscriptions have a backlog and no consumer; their batches wait for one, for up to "
            f"drain_timeout: {some(found.idle)}"
        )
    elif found.idle:
        findings.warn(f"{len(found.idle)} subscriptions without consumers continue with a copy: {some(found.idle)}")
    if FUNCTIONS in namespaces_of(task.blue):
        findings.warn(
            f"functions and connectors run on {task.input.cluster}; they stay there with {FUNCTIONS}, and the flag of "
            f"the whole cluster is not set: start them on {task.input.green_cluster}"
        )


def _passing(task: AnyBlueGreenTask) -> str:
    if task.blue_release.has(Behaviour.REDIRECTS_ALL_CONSUMERS):
        return "what is sent to them after their producers have moved, and before their consumers have, is lost"
    return f"brokers of {task.blue_release} do not send their consumers on (#26075): restart them after the flip"


def _upgrade(found: _Found) -> str:
    return f"upgrade them, or give {found.lacks_address} of green" if found.lacks_address else "upgrade them"


def _questions(task: AnyBlueGreenTask, found: _Found) -> Iterable[str]:
    if found.readers and not task.input.accept_external_positions:
        yield (
            f"{len(found.readers)} readers or connectors may keep message ids outside of Pulsar, and ids are others on "
            f"{task.input.green_cluster}: {some(found.readers)}"
        )
    if question := found.use.question:
        yield question
    if found.unknown_clients:
        yield (
            f"{len(found.unknown_clients)} clients report no version of a library that is known to follow to "
            f"{task.input.green_cluster}. Those that do not are without {task.input.cluster} after the flip, and have "
            f"to be restarted with the address of {task.input.green_cluster}: {some(sorted(found.unknown_clients))}"
        )
    if found.compacted:
        yield (
            f"{len(found.compacted)} topics are compacted: the state that readers build of them stays on "
            f"{task.input.cluster}, and begins empty on {task.input.green_cluster}: {some(found.compacted)}"
        )
    if found.may_be_cumulative and compare_ids(task.input, *_stores(task)) is None:
        yield (
            f"{len(found.may_be_cumulative)} subscriptions have C++ or Python consumers, which drop what "
            f"{task.input.green_cluster} sends if they acknowledge cumulatively and its ledger ids are lower; these "
            "cannot be raised, as one cluster keeps its ledgers elsewhere than in /ledgers of its metadata store. "
            f"Restart such consumers after the flip: {some(found.may_be_cumulative)}"
        )


def _stores(task: AnyBlueGreenTask) -> tuple[Access, Access]:
    return task.stores(task.input.blue), task.stores(task.input.green)
