"""One round of faults in the controller of a topic: traffic, the fault, and what must hold afterwards."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from pydantic import BaseModel

from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.records import record_path
from clients.stores import Access, open_cas
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from models.store_url import parse_store_url
from models.topic_controller.input import (
    ControllerUrls,
    Deletion,
    MergeRequest,
    SegmentRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
)
from models.topic_controller.pruning import PruneRequest
from models.topic_controller.record import ControlledLayout
from models.topic_controller.sessions import Registrations
from models.topic_controller.state import SegmentStats
from pulsar_devstack.servers.server import Server
from pulsar_devstack.servers.stack import StackSpec
from tests.faults.lifecycle import fault_round
from tests.faults.lifecycle.environment import FaultEnvironment
from tests.faults.lifecycle.shared_cluster import TENANT, SharedCluster
from tests.faults.lifecycle.stack_pool import Cluster
from tests.faults.topic_controller.rounds import (
    DELETE,
    DIRECT,
    ENSURE,
    OPEN,
    PRUNE,
    SUBSCRIBE,
    TELL,
    UNSUBSCRIBE,
    TopicControllerRound,
    Victim,
)
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.faulty_worker import FaultyWorkerProcess
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.listed_topics import wait_until_none_is_listed
from tests.support.topic_controller.oracle import Oracle, published
from tests.support.topic_controller.registrar import Registrar
from tests.support.topic_controller.traffic import ORDERED, SHARED, Traffic
from tests.support.waiting import wait_for

CLUSTER = "controller-faults"
SPEC = StackSpec(zookeepers=1, bookies=1, brokers=2, cluster=CLUSTER)
_END_LIMIT = 200.0
_LATE = "late"
_ELSEWHERE = (OPEN, SUBSCRIBE, UNSUBSCRIBE, TELL, ENSURE)
"""Steps that leave the layout as it is, and are harmless when done twice."""


class ControlledCluster(SharedCluster):
    """A cluster for many rounds, each of which has a namespace of its own; a context manager.

    Args:
        cluster: with two brokers, on an ensemble of ZooKeepers or on one of them.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, CLUSTER)

    def owner(self, controller: Controller, descriptor: str) -> Server:
        """Return the broker that has a segment."""
        urls = self.admin.topics.owner_urls(segment_topic(controller.name, descriptor))
        return self.stack[f"broker-{1 + next(n for n, url in enumerate(self.stack.admin_urls) if url in urls)}"]


class FaultRound(fault_round.FaultRound[TopicControllerRound]):
    """A topic of two segments under traffic; a context manager.

    Args:
        environment: where the controller runs.
        cluster: of the topic.
        fault: of this round.
    """

    def __init__(self, environment: FaultEnvironment, cluster: ControlledCluster, fault: TopicControllerRound) -> None:
        super().__init__(environment, cluster.stack)
        self._cluster, self._fault = cluster, fault
        self._namespace = f"{TENANT}/r{cluster.rounds}"
        self._deleted = False

    def begin(self, opened: ExitStack) -> Traffic:
        """Create the topic, and send to it."""
        cluster = self._cluster
        cluster.admin.namespaces.create(
            self._namespace, {"replication_clusters": [CLUSTER], "bundles": {"numBundles": 4}}
        )
        self._controller = self._start()
        opened.callback(self._stop)
        self._controller.subscribe(SHARED, SubscriptionKind.QUEUE)
        self._controller.subscribe(ORDERED)
        self._registrar = opened.enter_context(Registrar(lambda: self._controller))
        self._oracle = opened.enter_context(Oracle(self.stack, self._controller.name, (SHARED, ORDERED), [_LATE]))
        traffic = Traffic(self.stack.broker_url, self._controller.input.topic, self._registrar.base_url)
        self._traffic = opened.enter_context(traffic)
        traffic.wait_for_more(3)
        self._threads = opened.enter_context(ThreadPoolExecutor(2))
        return traffic

    def _start(self) -> Controller:
        topic = f"persistent://{self._namespace}/orders"
        return Controller.of(self.environment.operator, self.stack, topic, segments=2)

    def _stop(self) -> None:
        self._controller.terminate()

    # The fault ------------------------------------------------------------------------------------------------------

    def run(self, fault: TopicControllerRound) -> None:
        """Change the topic, hit the victim at its moment, and wait until the change is done and all servers are back.

        Raises:
            AssertionError: something did not come in time.
        """
        if fault.is_in(UNSUBSCRIBE):
            self._controller.subscribe(_LATE, SubscriptionKind.QUEUE)
        if fault.is_in(PRUNE):
            sealed = self._controller.layout().active[0].segment_id
            self._controller.split(sealed)
            wait_for("what is sealed to be consumed", lambda: self._is_consumed(sealed), _END_LIMIT)
        if fault.is_in(DELETE):
            # Brokers make a topic again for a client that is connected to it.
            self._traffic.stop()
            self._traffic.close()
        self.environment.gates.hold(fault.gate, heartbeats=fault.victim is not Victim.LOST_ATTEMPT)
        before = self._record()
        change = self._threads.submit(self._change, fault)
        frozen = self.hit_at_gate(fault)
        if fault.loses_run:
            self._stop()
            self._controller = self._start()
        self._finish(fault, change, before)
        self.hits.wait_all_back()
        if fault.late:
            self._release_late_attempt(fault, frozen)

    def _change(self, fault: TopicControllerRound) -> None:
        """Make the change that the round's step is part of."""
        name, request = self._update(fault)
        if name:
            self._controller.retry_until_done(name, request, _END_LIMIT)
        else:
            self._stop()
            self._controller = self._start()
            self._controller.stats()

    def _update(self, fault: TopicControllerRound) -> tuple[str, BaseModel]:
        match fault.step:
            case _ if fault.is_in(OPEN):
                return "", Deletion()
            case _ if fault.is_in(SUBSCRIBE):
                return "create_subscription", SubscriptionRequest(name=_LATE, kind=SubscriptionKind.QUEUE)
            case _ if fault.is_in(UNSUBSCRIBE):
                return "delete_subscription", Unsubscription(name=_LATE)
            case _ if fault.is_in(DELETE):
                return "delete", Deletion(force=True)
            case _ if fault.is_in(DIRECT):
                return "set_controller_urls", ControllerUrls(urls=(self._registrar.base_url,))
            case _ if fault.is_in(TELL):
                return "register", Registrations(subscription=ORDERED, consumers=("another",))
            case _ if fault.is_in(ENSURE):
                return "ensure_segment", SegmentRequest(segment=0, subscriptions=(SHARED,))
            case _ if fault.is_in(PRUNE):
                return "prune", PruneRequest(force=True)
            case _ if fault.merges:
                return "merge", MergeRequest(segments=(0, 1))
            case _:
                return "split", SplitRequest(segment=0)

    def _finish(self, fault: TopicControllerRound, change: Future[None], before: ControlledLayout) -> None:
        """Wait for the end of the change; what a run that was terminated had not begun is done by the next one."""
        if not (fault.loses_run or fault.victim is Victim.RUN):
            change.result(_END_LIMIT + 10)
        else:
            # The answer went with the run.
            change.exception(_END_LIMIT + 10)
            self._await_rest()
            if self._record_or_none() == before or fault.is_in(*_ELSEWHERE):
                self._change(fault)
        self._deleted = fault.is_in(DELETE)

    def _is_consumed(self, number: int) -> bool:
        """Return whether all messages of a segment are consumed."""
        return not any(self._stats_of(number).backlog.values())

    def _stats_of(self, number: int) -> SegmentStats:
        return next(segment for segment in self._controller.stats().segments if segment.segment == number)

    def _cursors(self) -> dict[str, set[str]]:
        """Return the subscriptions that have cursors, by segment."""
        return {segment.descriptor: {*segment.backlog} for segment in self._controller.stats().segments}

    def _await_rest(self) -> None:
        wait_for("the next run to be open", self._controller.is_idle, _END_LIMIT)

    def server(self, victim: str, fault: TopicControllerRound) -> Server | None:
        """Return a server by its name among the victims; None for actions of people."""
        cluster = self._cluster
        match victim:
            case Victim.BROKER:
                return cluster.owner(self._controller, "0000-7fff-0")
            case Victim.OTHER_BROKER:
                return cluster.stack[
                    "broker-1" if cluster.owner(self._controller, "0000-7fff-0").name == "broker-2" else "broker-2"
                ]
            case Victim.LEADER:
                assert cluster.ensemble
                return cluster.ensemble.leader()
            case Victim.RUN | Victim.LAYOUT_TOPIC | Victim.SEGMENT | Victim.RECORD:
                return None
            case _:
                return cluster.stack[f"{victim}-1"]

    def link(self, victim: str) -> Proxy:
        """Return None: brokers and the worker use the same names of servers."""
        raise NotImplementedError(victim)

    def hit(self, victim: str, fault: TopicControllerRound) -> None:
        """Perform what operators should not do to the topic."""
        admin, name = self._cluster.admin, self._controller.name
        match victim:
            case Victim.RUN:
                self._stop()
                self._controller = self._start()
            case Victim.LAYOUT_TOPIC:
                admin.topics.delete(layout_topic(name), force=True)
            case Victim.SEGMENT:
                record = self._record()
                assert record.pending
                admin.topics.delete(segment_topic(name, record.pending.new_segments(record)[0].descriptor), force=True)
            case _:
                with open_cas(parse_store_url(self.stack.metadata_url), Access()) as store:
                    node = store.get(record_path(name))
                    assert node
                    store.set(record_path(name), node.value, node.version)

    # What a late attempt must not do --------------------------------------------------------------------------------

    def _release_late_attempt(self, fault: TopicControllerRound, frozen: FaultyWorkerProcess | None) -> None:
        """Release the attempt that was given up: after the change, or after another change."""
        if fault.is_in(UNSUBSCRIBE):
            self._controller.subscribe(_LATE, SubscriptionKind.QUEUE)
        elif self._deleted:
            self._controller.end()
            self._controller = self._start()
            self._controller.subscribe(_LATE, SubscriptionKind.QUEUE)
        elif fault.continues_in_next_change:
            self._change_again()
        before = self._record_or_none(), self._cursors()
        self.resume_attempt(fault, frozen)
        assert (self._record_or_none(), self._cursors()) == before, "a late attempt changed the layout, or cursors"
        if self._deleted:
            self._controller.delete(force=True)

    # What must hold -----------------------------------------------------------------------------------------------

    def check_round(self, fault: TopicControllerRound) -> None:
        """Check the end, change the topic again, and audit the traffic.

        Raises:
            AssertionError: a promise is broken.
        """
        if self._deleted:
            assert self._record_or_none() is None
            wait_until_none_is_listed(self._cluster.admin, self._controller.name)
            return
        if fault.victim is Victim.LAYOUT_TOPIC:
            name = self._controller.name
            wait_for("the layout to be published again", lambda: published(self.stack, name), _END_LIMIT)
        self._at_rest()
        self._traffic.wait_for_more(3)
        self._change_again()
        self._traffic.wait_for_more(3)
        self._traffic.stop()
        assert self._traffic.faults() == []
        self._at_rest()
        assert self._oracle.samples > 2, "the oracle saw nothing"

    def _at_rest(self) -> None:
        self._await_rest()
        status = self._controller.status()
        assert (status.pending, status.waiting) == (None, ""), status
        assert self._oracle.faults_at_rest(self._cluster.admin) == []

    def _change_again(self) -> SegmentLayout:
        """Split the last segment, and merge its children."""
        last = self._controller.layout().active[-1].segment_id
        first, second = self._controller.split(last).active[-2:]
        return self._controller.merge(first.segment_id, second.segment_id)

    def interruption(self) -> tuple[str, float | None]:
        """Return how many messages came twice; no client's wait is measured."""
        traffic = self._traffic
        again = f"{traffic.shared.repeated} and {traffic.ordered.repeated} again"
        return f"{traffic.count} sent, {again}, epoch {getattr(self._record_or_none(), 'epoch', '-')}", None

    def _record(self) -> ControlledLayout:
        record = self._record_or_none()
        assert record, "there is a layout"
        return record

    def _record_or_none(self) -> ControlledLayout | None:
        stored = self._oracle.record()
        return stored.record if stored else None
