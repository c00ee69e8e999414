"""Checks of one topic: why it cannot become scalable, and what its operator should know (PIP-475).

They run in PRECHECK, and again right before the first change. Brokers only check the clients of the topic: without the
other checks messages could be lost, or another topic changed (5.0.1).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from activities.lifecycle.precheck import Findings
from activities.pulsar.topic_inventory import TopicInventory, is_system_topic
from activities.scalable_topic.checks.policies import check_policies
from activities.scalable_topic.conversion.name_taken import check_name, foreign_layout
from activities.scalable_topic.regular_topic import census, open_transactions, planned, undrained_streams
from activities.topic_controller.records import record_path
from clients.cas.store import CasReader
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.names import SegmentName, TopicName, encoded, recordable
from clients.pulsar.records.scalable_topics import RecordState, ScalableRecord, read_scalable
from models.lifecycle.failures import summarize
from models.scalable_topic.claims import Stage, TopicClaim, topic_record
from models.scalable_topic.copies import KEEPER
from models.scalable_topic.input import TopicOptions
from models.segments.layout import SegmentLayout
from models.topic_controller.names import scalable_topic_of

# Type of a subscription that has had no consumer since its topic was loaded.
_UNKNOWN = "None"
# Brokers write the layout into one record; ZooKeeper takes less than a megabyte.
_LAYOUT_BYTES = 900_000
_DEAD_LETTERS = re.compile(r"-(DLQ|RETRY)$")
_COMPACTION_POLICY = "compactionThreshold"


def check_regular_topic(
    admin: PulsarAdminReader,
    store: CasReader,
    findings: Findings,
    topic: TopicInventory,
    options: TopicOptions,
    *,
    workflow_id: str,
) -> None:
    """Note why a topic cannot become scalable; a topic that an earlier run has begun with can be completed.

    Args:
        admin: of the cluster.
        store: the brokers' metadata store.
        findings: collects the results.
        topic: the current regular topic, with its policies and schemas.
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
        # Segments of a scalable topic that has the name are its own.
        check_segments(findings, topic, store.children(SegmentName.folder(name)))
    namespace = admin.namespaces.policies(name.namespace_path).raw
    broker = admin.brokers.runtime_configuration()
    # mutant: scalable-topic/policies-are-not-checked
    check_policies(findings, topic, namespace, broker, remove=options.deletes_source)


def check_topic(findings: Findings, topic: TopicInventory, record: ScalableRecord, *, begun: bool = False) -> None:
    """Note all blockers and warnings of a topic.

    Args:
        findings: collects the results.
        topic: the current regular topic.
        record: the brokers' record of a scalable topic of that name.
        begun: whether an earlier run has begun with the topic, and this one continues.
    """
    _check_name(findings, topic)
    _check_record(findings, topic, record, begun=begun)
    _check_storage(findings, topic)
    _check_subscriptions(findings, topic)
    _warn_of_clients(findings, topic)


def check_controlled(findings: Findings, name: TopicName, store: CasReader) -> None:
    """Note a topic that is a part of another one, which a topic controller of this project leads.

    Args:
        findings: collects the results.
        name: of the topic.
        store: the brokers' metadata store.
    """
    # mutant: scalable-topic/segments-of-controllers-become-scalable
    if (whole := scalable_topic_of(str(name))) and store.get(record_path(TopicName.parse(whole))) is not None:
        findings.block(
            "CONTROLLED",
            f"{name} is a part of {whole}, which a topic controller manages: its clients would find it terminated",
            "leave it out; to use Pulsar's own scalable topics, send the messages to a regular topic and migrate that",
        )


def check_segments(findings: Findings, topic: TopicInventory, there: Collection[str]) -> None:
    """Note segments that the migration would create, and that exist before it has begun.

    Brokers answer as if they had created them. Their messages would be delivered as messages of the topic, and a
    terminated segment takes none.

    Args:
        findings: collects the results.
        topic: the current regular topic.
        there: descriptors of segments that are stored under the name of the topic.
    """
    wanted = {segment.descriptor for segment in planned(topic.name, topic.partitions).active}
    if existing := sorted(wanted & {*there}):  # mutant: scalable-topic/segments-of-an-earlier-topic-are-taken
        findings.block(
            "SEGMENTS_LEFT",
            f"segments {summarize(existing)} of topic://{topic.name.local_path} exist already, of an earlier scalable "
            "topic of this name: its messages would be delivered again, and terminated segments take none",
            "delete each of them, if its messages are not needed: curl -X DELETE "
            f"http://BROKER:8080/admin/v2/segments/{topic.name.local_path}/{existing[0]}?force=true",
        )


def _is_begun(store: CasReader, name: TopicName, workflow_id: str) -> bool:
    """Return whether this migration continues with the topic; false if another migration has made it scalable."""
    node = store.get(topic_record(f"{name.namespace_path}/{name.topic}"))
    record = None if node is None else TopicClaim.model_validate_json(node.value)
    if record is None or not record.begun:
        return False
    return record.stage is not Stage.FLIPPED or record.workflow_id == workflow_id


def _check_name(findings: Findings, topic: TopicInventory) -> None:
    if is_system_topic(topic.name) or not topic.persistent:
        findings.block(
            "NOT_A_STORED_TOPIC",
            f"{topic.name} is {'an internal topic of the brokers' if topic.persistent else 'not persistent'}",
            "leave it out",
        )
    elif encoded(topic.name.topic) != topic.name.topic:
        findings.block(
            "NAME_NEEDS_ENCODING",
            f"brokers decode {encoded(topic.name.topic)!r} only when they migrate the topic: they would not find "
            f"{topic.name} afterwards (5.0.1)",
            "leave it out, or have its messages copied to a topic whose name has letters, digits and _.-~ only",
        )


def _check_record(findings: Findings, topic: TopicInventory, record: ScalableRecord, *, begun: bool) -> None:
    path = topic.name.scalable_path
    match record.state:
        case RecordState.GOOD | RecordState.EMPTY if begun:
            findings.warn(f"an earlier run has begun to make {topic.name} scalable; this one continues from there")
        case RecordState.GOOD:
            findings.block("ALREADY_SCALABLE", f"{topic.name} is scalable already", "leave it out")
        case RecordState.EMPTY:
            findings.block(
                "RECORD_EMPTY",
                f"{path} has no value: brokers fail whenever they are asked for this scalable topic",
                'start again with "replace_empty": true, which removes that node with the nodes below it, unless '
                "such a topic is being created right now",
            )
        case RecordState.BROKEN:
            findings.block(
                "RECORD_BROKEN",
                f"{path} does not hold a layout of a scalable topic that this version of pulsar-migrate can read",
                "leave the topic out, and the node as it is. If brokers can read it, it is of a newer release: use a "
                "newer pulsar-migrate",
            )
        case RecordState.ABSENT:
            pass


def _check_storage(findings: Findings, topic: TopicInventory) -> None:
    for partition in topic.unloadable:
        findings.block(
            "TOPIC_NOT_LOADED",
            f"no broker can load {partition.name}: {partition.load_error}",
            "fix that, or leave the topic out",
        )
    if topic.compacted or (topic.policies or {}).get(_COMPACTION_POLICY):
        findings.block(
            "COMPACTED",
            f"{topic.name} is compacted, and scalable topics are not: clients that read it as a table would not "
            "find old keys any more",
            "leave it out",
        )
    there = {partition.name for partition in topic.parts}
    partitions = list(map(topic.name.of_partition, range(topic.partitions)))
    if missing := [name for name in partitions if name not in there]:
        findings.block(
            "PARTITION_MISSING",
            f"{summarize(missing)} of {topic.name} was never created, and cannot be a sealed segment",
            f"create it: pulsar-admin topics create-missed-partitions {topic.name}",
        )
    size = len(SegmentLayout.migrated(list(map(str, partitions)), 0).encode()) if partitions else 0
    if size > _LAYOUT_BYTES:
        findings.block(
            "TOO_MANY_PARTITIONS",
            f"the layout of {topic.name} would have {size:,} bytes, too many for a record of the metadata store",
            "leave it out, or copy its messages to a topic with fewer partitions",
        )
    clusters = sorted({name for partition in topic.parts if partition.stats for name in partition.stats.replication})
    if clusters:
        findings.block(
            "REPLICATED",
            f"{topic.name} is replicated to {', '.join(clusters)}; scalable topics are not",
            "end the replication of this topic first, or leave it out",
        )
    if topic.policies:
        findings.warn(
            f"{topic.name} has policies of its own ({', '.join(sorted(topic.policies))}), which segments do not have: "
            "set what is needed on the namespace"
        )
    if not topic.schemas:
        findings.warn(
            f"{topic.name} has no schema: V5 clients with a schema may be refused while it is active; let them use "
            "bytes, or store the schema first"
        )


def _check_subscriptions(findings: Findings, topic: TopicInventory) -> None:
    durable = topic.durable
    if odd := [repr(subscription.name) for subscription in durable if not recordable(subscription.name)]:
        findings.block(
            "SUBSCRIPTION_NAME",
            f"brokers cannot record subscriptions of these names: {summarize(odd)} of {topic.name}",
            "move their consumers to a subscription of another name, and delete them; or leave the topic out",
        )
    if KEEPER in topic.subscriptions:  # mutant: scalable-topic/what-keeps-a-copy-becomes-a-subscription
        findings.block(
            "COPY_NOT_ENDED",
            f"{topic.name} is the copy of a scalable topic, and {KEEPER} keeps its messages; it has no consumers, and "
            "segments would keep their messages for it as well",
            "end the copy first: operation end_copy of ScalableOperation",
        )
    if replicated := [subscription.name for subscription in durable if subscription.replicated]:
        findings.block(
            "SUBSCRIPTION_REPLICATED",
            f"cursors of {summarize(replicated)} of {topic.name} are replicated to other clusters, which would end",
            "end the replication of these subscriptions first, or leave the topic out",
        )
    if delayed := [subscription.name for subscription in durable if subscription.delayed]:
        findings.block(
            "DELAYED_MESSAGES",
            f"{summarize(delayed)} of {topic.name} have delayed messages, which V5 consumers of scalable topics may "
            "receive too early",
            "wait until they are delivered, or leave the topic out",
        )
    if waiting := undrained_streams(topic):
        backlogs = summarize([f"{name} ({backlog} messages)" for name, backlog in waiting.items()])
        findings.warn(f"the migration of {topic.name} waits until ordered subscriptions have no backlog: {backlogs}")
    if unused := [subscription.name for subscription in durable if subscription.type == _UNKNOWN]:
        findings.warn(
            f"brokers do not know how {summarize(unused)} of {topic.name} are consumed: they have had no consumer "
            "since the topic was loaded, and will be read by queue consumers. If one is ordered, connect its consumer "
            "briefly before the topic becomes scalable"
        )


def _warn_of_clients(findings: Findings, topic: TopicInventory) -> None:
    if transactions := open_transactions(topic):
        findings.warn(f"the migration of {topic.name} waits until transactions have ended: {summarize(transactions)}")
    if _DEAD_LETTERS.search(topic.name.topic):
        findings.warn(
            f"{topic.name} is named like a topic of dead letters or retries: clients of older libraries send there "
            "only when a message fails, and would be refused. Leave it out, unless V5 clients alone use it"
        )
    if (clients := census(topic)).legacy:
        findings.warn(
            f"the migration of {topic.name} waits for {clients.legacy} connections of clients that cannot follow: "
            f"{', '.join(clients.named)}"
        )
