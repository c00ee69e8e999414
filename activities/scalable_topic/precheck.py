"""PRECHECK of one or many topics and of their cluster: all blockers at once, and the planned layout."""

from __future__ import annotations

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.fingerprint import names_fact
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.checks.cluster import check_auto_scale, check_cluster, check_rights
from activities.scalable_topic.checks.topic import check_regular_topic
from activities.scalable_topic.context import NamespaceTask, TopicTask
from activities.scalable_topic.regular_topic import ordered_types, planned, regular_parts
from activities.scalable_topic.topic_list import full_name, namespace_of, selected
from clients.cas.store import CasReader
from clients.stores import open_cas_reader
from models.lifecycle.failures import NAMED, FailedItem
from models.scalable_topic.results import Precheck, Survey


@step(TopicTask, reads_only=True)
def precheck(task: TopicTask) -> Precheck:
    """Check the cluster and the topic; write nothing (PRECHECK)."""
    if unusable := task.unusable_credentials():
        return Precheck(blockers=tuple(unusable))
    findings = Findings()
    check_cluster(task, findings)
    topics: list[TopicInventory] = []
    if not findings.blockers:
        # The next requests would fail for the same reasons, or go to the wrong cluster.
        findings.check(task.input.topic, lambda: topics.extend(_check_topic(task, findings)), of="TOPIC")
    if task.input.auto_scale is None:
        findings.warn(
            "brokers merge segments with little traffic once the migration has ended, as the policies of namespace "
            'and brokers say; give "auto_scale" to keep a number of segments'
        )
    result = Precheck(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    census = FeatureCensus(task.input.cluster)
    for topic in topics:
        census.add_topic(topic)
        result = _planned(result, topic)
    return task.covered(result, census, [task.name.namespace_path])


@step(NamespaceTask, reads_only=True)
def survey(task: NamespaceTask) -> Survey:
    """Check the cluster and all topics; write nothing (PRECHECK)."""
    if unusable := task.unusable_credentials():
        return Survey(blockers=tuple(unusable))
    findings = Findings()
    check_cluster(task, findings)
    result = Survey(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    if findings.blockers:
        return result
    names = selected(task)
    if not names:
        findings.block(
            "NO_TOPICS",
            f"no regular topic of {task.input.cluster} fits {task.input.target_name}",
            "correct the patterns: tenant/namespace/topic, with * for any part of a name",
        )
        return result.model_copy(update={"blockers": tuple(findings.blockers)})
    namespaces = sorted({namespace_of(name) for name in names})

    def check_brokers() -> None:
        check_rights(task.admin, findings, namespaces)
        check_auto_scale(task, task.input.auto_scale, findings, namespaces)

    findings.check(f"the brokers of {task.input.cluster}", check_brokers, of="BROKERS")
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        surveys = task.each(names, lambda name: _survey_topic(task, store, name))
    blocked = [failed for topic_survey in surveys for failed in topic_survey.blocked]
    result = result.model_copy(
        update={
            "blockers": tuple(findings.blockers),
            "fingerprint": {"namespaces": names_fact(namespaces)},
            "topics": len(names),
            "namespaces": len(namespaces),
            "subscriptions": sum(topic_survey.subscriptions for topic_survey in surveys),
            "backlog": sum(topic_survey.backlog for topic_survey in surveys),
            "stored_bytes": sum(topic_survey.stored_bytes for topic_survey in surveys),
            "blocked": tuple(blocked[:NAMED]),
            "blocked_count": len(blocked),
        }
    )
    # The migration of each topic checks which features it uses.
    census = FeatureCensus(task.input.cluster)
    return task.covered(result, census, namespaces)


# Inside ---------------------------------------------------------------------------------------------------------------


def _check_topic(task: TopicTask, findings: Findings) -> list[TopicInventory]:
    topic = task.find_topic(task.name, described=True)
    if topic is None:
        findings.block("TOPIC_MISSING", f"there is no topic {task.name}", "correct its name")
        return []
    check_rights(task.admin, findings, [task.name.namespace_path])  # mutant: scalable-topic/no-right-is-checked
    # mutant: scalable-topic/policies-that-brokers-refuse-are-not-checked
    check_auto_scale(task, task.input.auto_scale, findings, [task.name.namespace_path])
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        check_regular_topic(task.admin, store, findings, topic, task.input, workflow_id=task.attempt.workflow_id)
    return [topic]


def _planned(result: Precheck, topic: TopicInventory) -> Precheck:
    parents = [str(partition) for partition in regular_parts(topic)]
    durable = topic.durable
    return result.model_copy(
        update={
            "fingerprint": {"partitions": str(topic.partitions)},
            "parents": len(parents),
            "partitioned": topic.partitions > 0,
            "children": tuple(segment.descriptor for segment in planned(topic.name, topic.partitions).active),
            "subscriptions": len(durable),
            "backlog": sum(subscription.backlog for subscription in durable),
            "stored_bytes": _stored_bytes(topic),
            "ordered": ordered_types(topic),
        }
    )


def _stored_bytes(topic: TopicInventory) -> int:
    """Return the stored bytes of a topic, which are the minimum that is kept while policies are overridden."""
    return sum(partition.stats.storage_size for partition in topic.parts if partition.stats)


def _survey_topic(task: NamespaceTask, store: CasReader, name: str) -> Survey:
    """Return the survey of one topic."""
    topic = task.find_topic(full_name(name), described=True)
    if topic is None:
        return Survey()
    findings = Findings()
    check_regular_topic(task.admin, store, findings, topic, task.input, workflow_id=task.attempt.workflow_id)
    durable = topic.durable
    return Survey(
        topics=1,
        subscriptions=len(durable),
        backlog=sum(subscription.backlog for subscription in durable),
        stored_bytes=_stored_bytes(topic),
        blocked=tuple(FailedItem(path=name, reason=str(blocker)) for blocker in findings.blockers[:1]),
    )
