"""From one controller to the other and back, by the commands of docs/two_controllers.md, on brokers of Pulsar 5."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable
from models.lifecycle.failures import FailureKind
from models.scalable_topic.operation_input import Operation
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import ControllerUrls, Deletion, MergeRequest, SplitRequest, SubscriptionRequest
from models.topic_controller.pruning import PruneRequest
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.audit import Tolerated
from pulsar_devstack.traffic.keyed_traffic import Arrivals, Receiving, Sending, delivery
from pulsar_devstack.traffic.plan import Subscribed
from pulsar_scalable import ClientOptions, ConsumerOptions, ProducerOptions, ScalableClient, ScalableProducer
from pulsar_scalable.controlled.library import pulsar
from tests.integration.topic_controller.conftest import Control
from tests.support.gateway.processes import GatewayProcess
from tests.support.lifecycle.commands import run_command
from tests.support.lifecycle.environment import Environment
from tests.support.releases import native_topics
from tests.support.scalable_topic.operations import carried_out
from tests.support.scalable_topic.topics import delete_scalable
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.flowing import SOME, flowing
from tests.support.topic_controller.listed_topics import wait_until_none_is_listed
from tests.support.topic_controller.oracle import published
from tests.support.topic_controller.traffic import ORDERED as BILL
from tests.support.waiting import wait_for, wait_until_equal

pytestmark = native_topics

PAGE = Path(__file__).parents[3] / "docs/two_controllers.md"
OURS, THEIRS = "persistent://shop/live/orders", "topic://shop/live/orders-5"
ORDERED, SHARED = "billing", "audit"
LIMIT = 90.0

_BLOCK = re.compile(r"```\n(.*?)```", re.DOTALL)
_STEP = re.compile(r"# step (\d)")
_DESCRIPTOR = re.compile(r"/[0-9a-f]{4}-[0-9a-f]{4}-\d+/")


class Page:
    """The commands of the page, as an operator of a stack's cluster types them.

    Args:
        environment: where our commands go.
        stack: the cluster, which has other addresses than the page's.
    """

    def __init__(self, environment: Environment, stack: Stack) -> None:
        self._environment = environment
        self._places = {
            "http://broker-1:8080": stack.admin_urls[0],
            "zk:zk-1:2181": stack.metadata_url,
            "--cluster prod": f"--cluster {stack.state.spec.cluster}",
        }
        there, back = _BLOCK.findall(PAGE.read_text())
        self.there, self.back = dict(_steps(there)), dict(_steps(back))

    def run(self, line: str) -> str:
        """Run a command, which must succeed; what it prints."""
        done = self._done(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def answer(self, line: str) -> str:
        """Run a command that may be refused; what it says of that."""
        return self._done(line).stderr.strip()

    def _done(self, line: str) -> subprocess.CompletedProcess[str]:
        for place, ours in self._places.items():
            line = line.replace(place, ours)
        program, *words = shlex.split(line, comments=True)
        if program == "pulsar-migrate":
            return run_command(self._environment, *words)
        assert program == "curl", line
        return subprocess.run([program, *words], capture_output=True, text=True, timeout=LIMIT, check=False)

    def run_all(self, lines: list[str]) -> None:
        """Run commands one after the other."""
        for line in lines:
            self.run(line)

    def backlogs(self, lines: list[str]) -> list[int]:
        """Return the backlogs that step 3 prints: one in total, or one for each of a broker's segments."""
        if len(lines) == 1:
            return [int(count) for count in re.findall(r"backlog of \w+: (\d+) messages", self.run(lines[0]))]
        segments, backlog = lines
        layout = SegmentLayout.parse(self.run(segments).encode())
        asked = [_DESCRIPTOR.sub(f"/{segment.descriptor}/", backlog) for segment in layout.segments.values()]
        return [int(self.run(line.replace(ORDERED, name))) for line in asked for name in (ORDERED, SHARED)]


def _steps(block: str) -> Iterator[tuple[int, list[str]]]:
    step, lines = 0, list[str]()
    for line in block.replace("\\\n", " ").splitlines():
        if match := _STEP.search(line):
            if lines:
                yield step, lines
            step, lines = int(match[1]), []
        lines.append(line)
    yield step, lines


class Clients:
    """Producers and consumers that move from topic to topic, in the order of the page.

    Args:
        client: of all of them.
        topic: where they begin.
    """

    def __init__(self, client: ScalableClient, topic: str) -> None:
        self._client = client
        self._consumers: dict[tuple[str, str], ExitStack] = {}
        self._producers = ExitStack()
        self.received = {ORDERED: Arrivals(ORDERED), SHARED: Arrivals(SHARED, Subscribed.SHARED)}
        for subscription in self.received:
            self.open(topic, subscription)
        self.sendings = [Sending(self._produce(topic), 0.01, name) for name in ("one", "two")]

    def open(self, topic: str, subscription: str) -> None:
        """Open two consumers, in addition to those of other topics."""
        opened = self._consumers[topic, subscription] = ExitStack()
        for name in ("a", "b"):
            subscribe = self._client.subscribe_stream if subscription == ORDERED else self._client.subscribe
            consumer = opened.enter_context(subscribe(topic, subscription, ConsumerOptions(consumer_name=name)))
            opened.callback(Receiving(consumer, self.received[subscription]).stop)

    def close(self, topic: str, subscription: str) -> None:
        """Leave a topic."""
        self._consumers.pop((topic, subscription)).close()

    def move_producers(self, topic: str) -> None:
        """Move one producer after the other, while the rest continues."""
        for sending in self.sendings:
            sending.move(lambda: self._produce(topic))

    def wait_for_more(self) -> None:
        """Wait until each subscription got some more messages."""
        enough = {name: received.distinct + SOME for name, received in self.received.items()}
        wait_for("more", lambda: all(self.received[name].distinct >= count for name, count in enough.items()), LIMIT)

    def leave(self, topic: str) -> None:
        """End all that is still open."""
        self._producers.close()
        for subscription in self.received:
            self.close(topic, subscription)

    def faults(self) -> list[str]:
        """End the sending, and wait until all has come; what is wrong then."""
        for sending in self.sendings:
            sending.stop()
        stored = {key: numbers for sending in self.sendings for key, numbers in sending.stored().items()}
        for received in self.received.values():
            wait_for("all to come", lambda received=received: not received.missing(stored), LIMIT)
        audit = delivery(self.sendings, [*self.received.values()])
        return [
            *audit.faults(Tolerated.DUPLICATES),
            *(fault for sending in self.sendings for fault in sending.faults()),
        ]

    def _produce(self, topic: str) -> ScalableProducer:
        return self._producers.enter_context(
            self._client.create_producer(topic, ProducerOptions(block_if_queue_full=True))
        )


@pytest.fixture
def client(environment: Environment, stack: Stack, tmp_path: Path) -> Generator[ScalableClient]:
    """A client with a gateway for its ordered consumers."""
    with (
        GatewayProcess(environment.stack.temporal_address, stack, tmp_path) as gateway,
        ScalableClient(
            stack.broker_url,
            ClientOptions(controller_url=gateway.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)),
        ) as client,
    ):
        yield client


def is_empty(store: CasStore, name: TopicName) -> bool:
    """Return whether the record has no value, since a report of load created it again."""
    return read_scalable(store, name).state is RecordState.EMPTY


def move(page: Page, question: list[str], clients: Clients, old: str, new: str) -> None:
    """Move to another topic: steps 2 to 4."""
    clients.open(new, SHARED)
    clients.move_producers(new)
    wait_for("an empty topic", lambda: not any(page.backlogs(question)), LIMIT)
    for subscription in (ORDERED, SHARED):
        clients.close(old, subscription)
    clients.open(new, ORDERED)
    clients.wait_for_more()


@pytest.mark.exhaustive
def test_moves_in_both_directions(
    environment: Environment,
    stack: Stack,
    admin: PulsarAdmin,
    store: CasStore,
    *,
    control: Control,
    client: ScalableClient,
) -> None:
    """Messages arrive on the other side, in order per key, in both directions, while producers continue."""
    admin.tenants.create("shop", Tenant(allowed_clusters=(stack.state.spec.cluster,)))
    admin.namespaces.create("shop/live")
    page = Page(environment, stack)
    ours = control(OURS, segments=4)
    ours.subscribe(ORDERED)
    ours.subscribe(SHARED, SubscriptionKind.QUEUE)
    clients = Clients(client, OURS)
    ours.split(0)
    clients.wait_for_more()

    page.run_all(page.there[1])
    move(page, page.there[3], clients, OURS, THEIRS)
    # It leads back until the last step.
    move(page, page.back[3], clients, THEIRS, OURS)
    move(page, page.there[3], clients, OURS, THEIRS)
    page.run_all(page.there[5])
    wait_until_none_is_listed(admin, ours.name)
    page.run_all(page.back[1])
    move(page, page.back[3], clients, THEIRS, OURS)
    theirs = TopicName.parse("shop/live/orders-5")
    (deletion,) = page.back[5]
    wait_for("a deletion", lambda: page.answer(deletion).endswith("404") or is_empty(store, theirs), LIMIT)
    assert read_scalable(store, theirs).layout is None
    clients.wait_for_more()
    assert clients.faults() == []
    clients.leave(OURS)
    page.run_all(page.there[5])
    figures = {"messages": sum(sending.count for sending in clients.sendings)}
    figures |= {f"{name} again": received.repeated for name, received in clients.received.items()}
    print(figures)


def test_a_record_that_is_empty(control: Control, stack: Stack, store: CasStore) -> None:
    """An empty record, which a report of load leaves after a deletion, is refused with a cure that helps."""
    controller = control("persistent://public/default/left-over")
    controller.until(lambda status: status.epoch == 0)
    store.create(controller.name.scalable_path, b"")
    refusal = controller.refusal("split", SplitRequest(segment=0))
    assert (refusal.type, "operation clear_empty" in refusal.message) == (FailureKind.CONFLICT, True)
    assert carried_out(stack, Operation.CLEAR_EMPTY, "public/default/left-*").changed == 1
    controller.split(0)
    controller.delete()


def opened(environment: Environment, control: Control, stack: Stack, topic: str) -> Controller | None:
    """Open a topic; return None where a report of load came after the deletion, after applying the cure."""
    controller = control(topic)

    def outcome() -> str:
        description = environment.operator.wait(controller.handle.describe(), LIMIT)
        if description.status is not WorkflowExecutionStatus.RUNNING:
            return "failed"
        return "open" if controller.status().epoch >= 0 else ""

    if wait_for("it opens, or fails", outcome, LIMIT) == "open":
        return controller
    assert "operation clear_empty" in controller.failure().message
    carried_out(stack, Operation.CLEAR_EMPTY, f"{topic.removeprefix('persistent://')[:-1]}*")
    return None


@pytest.mark.exhaustive
def test_a_broker_that_takes_over(environment: Environment, stack: Stack, admin: PulsarAdmin, control: Control) -> None:
    """While a broker's own record replaces ours, nothing is changed until it is gone; messages flow."""
    with flowing(environment.operator, stack, "taken-over") as (controller, traffic), ThreadPoolExecutor(1) as executor:
        before = controller.layout()
        admin.scalable_topics.create(controller.name, 2)
        for update, request in (
            ("split", SplitRequest(segment=0)),
            ("merge", MergeRequest(segments=(0, 1))),
            ("create_subscription", SubscriptionRequest(name="late")),
            ("prune", PruneRequest()),
            ("set_controller_urls", ControllerUrls(urls=("http://elsewhere:8080",))),
            ("delete", Deletion(force=True)),
        ):
            refusal = controller.refusal(update, request)
            assert (refusal.type, "brokers of Pulsar 5 control it themselves" in refusal.message) == (
                FailureKind.CONFLICT,
                True,
            ), update
        joined = executor.submit(traffic.join, "c2")
        controller.until(lambda status: status.consumers == {BILL: 3})
        traffic.wait_for_more(SOME)
        assert controller.assignments(BILL) == {"c0": (0,), "c1": (1,), "c2": ()}
        assert controller.layout() == before
        assert published(stack, controller.name)[-1].segments == before.segments
        delete_scalable(admin, controller.name)
        carried_out(stack, Operation.CLEAR_EMPTY, "public/default/taken-*")
        joined.result(LIMIT)
        controller.split(0)
        wait_until_equal("three shares", lambda: {*controller.assignments(BILL).values()}, {(2,), (3,), (1,)}, LIMIT)
    # One that is started then leaves all as it is.
    admin.scalable_topics.create(controller.name, 2)
    assert control(controller.input.topic).failure().type == FailureKind.CONFLICT
    delete_scalable(admin, controller.name)
    again = wait_for("a run that opens it", lambda: opened(environment, control, stack, controller.input.topic), LIMIT)
    assert (again.status().epoch, again.status().consumers) == (1, {})
    again.delete()
