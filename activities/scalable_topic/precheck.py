"""PRECHECK of one topic and its cluster: all blockers at once, and the layout that will come."""

from __future__ import annotations

from activities.lifecycle.cluster_checks import check_store
from activities.lifecycle.exclusion import no_brokers
from activities.lifecycle.precheck import Findings
from activities.lifecycle.topic_inventory import TopicInventory
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.flip import regular_parts
from activities.scalable_topic.topic_checks import check_topic
from clients.pulsar.scalable_records import read_scalable
from clients.stores import open_cas_reader
from models.scalable_topic.results import Precheck
from models.segment_layout import SegmentLayout


def precheck(task: TopicTask) -> Precheck:
    """Check the cluster and the topic; writes nothing."""
    findings = Findings()
    store = f"the metadata store {task.input.metadata_url}"
    findings.attempt(store, lambda: _check_store(task, findings), of="STORE")
    findings.attempt(f"the brokers of {task.input.cluster}", lambda: _check_brokers(task, findings), of="BROKERS")
    topics: list[TopicInventory] = []
    if not findings.blockers:
        # What is asked next would fail for the same reasons, or be asked of the wrong cluster.
        findings.attempt(task.input.topic, lambda: topics.extend(_check_topic(task, findings)), of="TOPIC")
    found = Precheck(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    return _planned(found, topics[0]) if topics else found


def _check_store(task: TopicTask, findings: Findings) -> None:
    with open_cas_reader(task.input.store, task.stores) as store:
        check_store(findings, store, task.input.cluster, task.attempt.workflow_id)


def _check_brokers(task: TopicTask, findings: Findings) -> None:
    known = task.brokers()
    if not known:
        cause = no_brokers(task.input.metadata_url).cause
        findings.block("NO_BROKERS", cause, "name the store as the brokers do, and start them")
    told = task.admin.brokers.runtime_configuration().get("clusterName")
    if told != task.input.cluster:
        cause = f"{', '.join(task.input.admin_urls)} is the cluster {told!r}, and not {task.input.cluster!r}"
        findings.block("CLUSTER_NAME", cause, "correct the address, or the name of the cluster")
    for name, broker in known:
        _check_broker(findings, name, broker.brokers.runtime_configuration())


def _check_broker(findings: Findings, name: str, settings: dict[str, str]) -> None:
    if settings.get("scalableTopicsEnabled") != "true":
        findings.block(
            "NOT_SUPPORTED",
            f"the broker {name} does not serve scalable topics",
            "have all brokers on Pulsar 5, with scalableTopicsEnabled=true",
        )
    if settings.get("transactionCoordinatorEnabled") == "true":
        findings.warn(f"transactions are on in {name}: scalable topics were not tried with them")


def _check_topic(task: TopicTask, findings: Findings) -> list[TopicInventory]:
    topic = task.find_topic()
    if topic is None:
        findings.block("TOPIC_MISSING", f"there is no topic {task.name}", "correct its name")
        return []
    with open_cas_reader(task.input.store, task.stores) as store:
        check_topic(findings, topic, read_scalable(store, task.name))
    return [topic]


def _planned(found: Precheck, topic: TopicInventory) -> Precheck:
    parents = [str(part) for part in regular_parts(topic)]
    durable = [one for one in topic.subscriptions.values() if one.durable]
    return found.model_copy(
        update={
            "parents": len(parents),
            "children": tuple(one.descriptor for one in SegmentLayout.migrated(parents, 0).active),
            "subscriptions": len(durable),
            "backlog": sum(one.backlog for one in durable),
            "stored_bytes": sum(part.stats.storage_size for part in topic.parts if part.stats),
        }
    )
