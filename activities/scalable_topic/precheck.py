"""PRECHECK of one topic and its cluster: all blockers at once, and the layout that will come."""

from __future__ import annotations

from activities.lifecycle.precheck import Findings
from activities.lifecycle.topic_inventory import TopicInventory
from activities.scalable_topic.children import planned
from activities.scalable_topic.cluster_checks import check_cluster
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.flip import durable_of, regular_parts
from activities.scalable_topic.guards import AUTO_SCALE
from activities.scalable_topic.topic_checks import check_schema, check_topic
from clients.cas.store import CasReader
from clients.pulsar.names import TopicName
from clients.pulsar.namespace_policy import read_policy
from clients.pulsar.scalable_records import read_scalable
from clients.stores import open_cas_reader
from models.scalable_topic.auto_scale import AutoScale
from models.scalable_topic.claims import TopicClaim, topic_record
from models.scalable_topic.results import Precheck


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
    return _planned(found, topics[0]) if topics else found


def check_one(store: CasReader, findings: Findings, topic: TopicInventory, scaling: AutoScale | None) -> None:
    """Note why a topic cannot become scalable; one that an earlier run has begun with can go on.

    Args:
        store: the brokers' metadata store.
        findings: where that goes.
        topic: as it is.
        scaling: the policy that it shall get.
    """
    name = topic.name
    check_topic(findings, topic, read_scalable(store, name), begun=_is_begun(store, name))
    check_schema(findings, topic, scales=_scales(store, topic, scaling))


def _scales(store: CasReader, topic: TopicInventory, scaling: AutoScale | None) -> bool | None:
    """Whether brokers shall split and merge segments of the topic; None where nobody has said so."""
    if scaling is not None and scaling.enabled is not None:
        return scaling.enabled
    policy = AUTO_SCALE.parsed(read_policy(store, topic.name.namespace_path, AUTO_SCALE.path))
    return False if policy is not None and policy.enabled is False else None


def _is_begun(store: CasReader, name: TopicName) -> bool:
    node = store.get(topic_record(f"{name.namespace_path}/{name.topic}"))
    return node is not None and TopicClaim.model_validate_json(node.value).begun


def _check_topic(task: TopicTask, findings: Findings) -> list[TopicInventory]:
    topic = task.find_topic(task.name, described=True)
    if topic is None:
        findings.block("TOPIC_MISSING", f"there is no topic {task.name}", "correct its name")
        return []
    with open_cas_reader(task.input.store, task.stores) as store:
        check_one(store, findings, topic, task.input.auto_scale)
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
        }
    )


def stored_bytes(topic: TopicInventory) -> int:
    """What a topic has stored; so much at least is kept while policies are held."""
    return sum(part.stats.storage_size for part in topic.parts if part.stats)
