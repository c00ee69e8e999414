"""The cluster of many rounds, and the state of all that a migration to scalable topics may change there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clients.cas.store import CasReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, controller_of, read_scalable, recorded_subscriptions
from clients.stores import Access, open_cas_reader
from models.lifecycle.claim import CLAIM
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from models.segments.layout_check import layout_faults
from models.store_url import parse_store_url
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan
from tests.faults.lifecycle.shared_cluster import SharedCluster
from tests.faults.lifecycle.stack_pool import Cluster
from tests.support.scalable_topic.existing_topics import TopicsSnapshot, below, read_snapshot, regular_states

CLUSTER = "scalable-faults"
SPEC = StackSpec(zookeepers=1, bookies=1, brokers=2, cluster=CLUSTER)

_FAILED = f"{CLAIM}-failed"
_TERMINATED = "Terminated"


class ScalableCluster(SharedCluster):
    """A cluster for many rounds, each of which has a namespace of its own; a context manager.

    Args:
        cluster: with two brokers, on an ensemble of ZooKeepers or on one of them.
        tools: Java and the jars, with those of V5, for clients.
    """

    def __init__(self, cluster: Cluster, tools: Toolchain) -> None:
        super().__init__(cluster, CLUSTER)
        self.tools = tools

    def create(self, namespace: str, topics: Iterable[ScalableTopicPlan], policies: Mapping[str, Any]) -> None:
        """Create a namespace with its topics, which have no subscriptions yet."""
        self.admin.namespaces.create(
            namespace, {"replication_clusters": [CLUSTER], "bundles": {"numBundles": 4}, **policies}
        )
        for plan in topics:
            name = TopicName.parse(plan.topic)
            if plan.partitions:
                self.admin.topics.create_partitioned(name, plan.partitions)
            else:
                self.admin.topics.create(name)

    def topic_migration(self, topic: str, **more: object) -> ScalableTopicInput:
        """Return the input of a migration of a topic, with short limits."""
        return ScalableTopicInput.model_validate({**self._common, "topic": topic, **more})

    def namespace_migration(self, namespace: str, **more: object) -> ScalableNamespaceInput:
        """Return the input of a migration of all topics of a namespace, one after the other."""
        waves = {"canary": 0, "gate": "none", "parallelism": 1, "when_held": "stop", "error_budget": {"items": 3}}
        return ScalableNamespaceInput.model_validate(
            {**self._common, "topics": [f"{namespace}/*"], "waves": waves, **more}
        )

    @property
    def _common(self) -> dict[str, object]:
        return {
            "cluster": CLUSTER,
            "metadata_url": self.stack.metadata_url,
            "admin_urls": self.stack.admin_urls,
            "hold_before_cutover": False,
            "client_timeout": "PT90S",
            "drain_timeout": "PT100S",
            "grace_window": "PT0S",
        }

    # State of the cluster -------------------------------------------------------------------------------------------

    def snapshot(self, namespace: str, topics: Iterable[TopicName]) -> TopicsSnapshot:
        """Return the current state."""
        with self._reader() as store:
            return read_snapshot(self.admin, store, self.stack.admin_urls, namespace, topics)

    def faults(self, plan: ScalableTopicPlan, *, cleaned_up: bool) -> list[str]:
        """Return the faults of a topic that has become scalable; empty if there are none.

        Args:
            plan: of the topic with its clients.
            cleaned_up: whether its regular topics may be gone.
        """
        name = TopicName.parse(plan.topic)
        with self._reader() as store:
            record, recorded = read_scalable(store, name), recorded_subscriptions(store, name)
            regular = regular_states(self.admin, store, name)
        if record.layout is None:
            return [f"{name} is not scalable: its record is {record.state}"]
        faults = layout_faults(record.layout)
        if len(active := record.layout.active) != plan.segments:
            faults.append(f"{name} has {len(active)} segments, and not {plan.segments}")
        for subscription in {regular_consumer.subscription for regular_consumer in plan.regular_consumers}:
            if recorded.get(subscription) is None:
                faults.append(f"{subscription} of {name} has no record")
            faults += [
                f"{subscription} has no cursor on {s.descriptor}"
                for s in active
                if not self._has_cursor(name, s.descriptor, subscription)
            ]
        faults += [f"{regular_topic} is {state}" for regular_topic, state in regular.items() if state != _TERMINATED]
        if not cleaned_up and len(regular) != plan.segments:
            faults.append(f"of the regular topics of {name} only {sorted(regular)} are left")
        return faults

    def is_scalable(self, topic: str) -> bool:
        """Return whether a topic has become scalable."""
        with self._reader() as store:
            return read_scalable(store, TopicName.parse(topic)).state is RecordState.GOOD

    def old_parents(self, topic: str) -> int:
        """Return how many regular topics the layout of a scalable one still names."""
        with self._reader() as store:
            layout = read_scalable(store, TopicName.parse(topic)).layout
        return sum(segment.legacy_topic_name is not None for segment in layout.segments.values()) if layout else 0

    def failures(self) -> Mapping[str, bytes]:
        """Return the topics that a migration of many has recorded as failed."""
        with self._reader() as store:
            return dict(below(store, _FAILED))

    def leading_broker(self, plan: ScalableTopicPlan) -> Server:
        """Return the broker that is the controller of a topic; if it has none, its owner."""
        name = TopicName.parse(plan.topic)
        with self._reader() as store:
            controller = controller_of(store, name)
        urls = [f"http://{controller}"] if controller else self._owners(name, plan.partitions)
        return self.stack[f"broker-{1 + next(n for n, url in enumerate(self.stack.admin_urls) if url in urls)}"]

    def other_broker(self, plan: ScalableTopicPlan) -> Server:
        """Return the broker that does not lead a topic."""
        return self.stack["broker-1" if self.leading_broker(plan).name == "broker-2" else "broker-2"]

    # Inside ---------------------------------------------------------------------------------------------------------

    def _reader(self) -> CasReader:
        return open_cas_reader(parse_store_url(self.stack.metadata_url), Access())

    def _owners(self, name: TopicName, partitions: int) -> list[str]:
        return self.admin.topics.owner_urls(name.of_partition(0) if partitions else name)

    def _has_cursor(self, name: TopicName, descriptor: str, subscription: str) -> bool:
        try:
            self.admin.scalable_topics.backlog(name, descriptor, subscription)
        except AdminNotFound:
            return False
        return True
