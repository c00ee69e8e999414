"""Whether one topic can become scalable: asked in PRECHECK, and again right before anything is changed."""

from __future__ import annotations

from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.name_taken import check_name, foreign_layout
from activities.scalable_topic.policy_checks import check_policies
from activities.scalable_topic.topic_checks import check_controlled, check_segments, check_topic
from clients.cas.store import CasReader
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.names import SegmentName, TopicName
from clients.pulsar.records.scalable_topics import RecordState, ScalableRecord, read_scalable
from models.scalable_topic.claims import Stage, TopicClaim, topic_record
from models.scalable_topic.input import TopicOptions, cleans_up


def check_one(
    admin: PulsarAdminReader,
    store: CasReader,
    findings: Findings,
    topic: TopicInventory,
    options: TopicOptions,
    *,
    workflow_id: str,
) -> None:
    """Note why a topic cannot become scalable; one that an earlier run has begun with can be completed.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        findings: where that goes.
        topic: as it is, with its policies and schemas.
        options: how topics become scalable.
        workflow_id: of the migration that asks.
    """
    name, record = topic.name, read_scalable(store, topic.name)
    if (other := foreign_layout(store, record, topic)) is not None:
        check_name(admin, store, findings, topic, other, replace=options.replace_empty)
        record = ScalableRecord(RecordState.ABSENT)
    elif record.state is RecordState.EMPTY and options.replace_empty:
        findings.warn(f"{name.scalable_path} has no value, and is removed before the topic becomes scalable")
        record = ScalableRecord(RecordState.ABSENT)
    begun = _is_begun(store, name, workflow_id)
    check_topic(findings, topic, record, begun=begun)
    check_controlled(findings, name, store)
    if record.state is RecordState.ABSENT and other is None and not begun:
        # Those of a scalable topic that has the name are its own.
        check_segments(findings, topic, store.children(SegmentName.folder(name)))
    namespace = admin.namespaces.policies(name.namespace_path).raw
    broker = admin.brokers.runtime_configuration()
    check_policies(findings, topic, namespace, broker, remove=cleans_up(options))


def _is_begun(store: CasReader, name: TopicName, workflow_id: str) -> bool:
    """Whether there is something to go on with: what another migration has made scalable is only scalable."""
    node = store.get(topic_record(f"{name.namespace_path}/{name.topic}"))
    record = None if node is None else TopicClaim.model_validate_json(node.value)
    if record is None or not record.begun:
        return False
    return record.stage is not Stage.FLIPPED or record.workflow_id == workflow_id
