"""PRECHECK of one topic and its cluster: all blockers at once, and the layout that will come."""

from __future__ import annotations

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.children import planned
from activities.scalable_topic.cluster_checks import check_auto_scale, check_cluster, check_rights
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.readiness import check_one
from activities.scalable_topic.regular import durable_of, ordered_types, regular_parts
from clients.stores import open_cas_reader
from models.scalable_topic.results import Precheck


@step(TopicTask, reads_only=True)
def precheck(task: TopicTask) -> Precheck:
    """Check the cluster and the topic; writes nothing."""
    findings = Findings()
    check_cluster(task, findings)
    topics: list[TopicInventory] = []
    if not findings.blockers:
        # What is asked next would fail for the same reasons, or be asked of the wrong cluster.
        findings.attempt(task.input.topic, lambda: topics.extend(_check_topic(task, findings)), of="TOPIC")
    if task.input.auto_scale is None:
        findings.warn(
            "brokers merge segments with little traffic once the migration has ended, as the policies of namespace "
            'and brokers say; give "auto_scale" to keep a number of segments'
        )
    found = Precheck(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    census = FeatureCensus(task.input.cluster)
    for topic in topics:
        census.add_topic(topic)
        found = _planned(found, topic)
    return task.covered(found, census, [task.name.namespace_path])


def _check_topic(task: TopicTask, findings: Findings) -> list[TopicInventory]:
    topic = task.find_topic(task.name, described=True)
    if topic is None:
        findings.block("TOPIC_MISSING", f"there is no topic {task.name}", "correct its name")
        return []
    check_rights(task.admin, findings, [task.name.namespace_path])
    check_auto_scale(task, task.input.auto_scale, findings, [task.name.namespace_path])
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        check_one(task.admin, store, findings, topic, task.input, workflow_id=task.attempt.workflow_id)
    return [topic]


def _planned(found: Precheck, topic: TopicInventory) -> Precheck:
    parents = [str(part) for part in regular_parts(topic)]
    durable = durable_of(topic)
    return found.model_copy(
        update={
            "parents": len(parents),
            "partitioned": topic.partitions > 0,
            "children": tuple(one.descriptor for one in planned(topic.name, topic.partitions).active),
            "subscriptions": len(durable),
            "backlog": sum(one.backlog for one in durable),
            "stored_bytes": stored_bytes(topic),
            "ordered": ordered_types(topic),
        }
    )


def stored_bytes(topic: TopicInventory) -> int:
    """What a topic has stored; so much at least is kept while policies are held."""
    return sum(part.stats.storage_size for part in topic.parts if part.stats)
