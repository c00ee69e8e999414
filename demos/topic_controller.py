"""Let a topic scale under its clients on this machine, with a controller that is a workflow, and verify the outcome.

`make demo-topic-controller` starts a cluster, a Temporal server, a worker and the REST gateway, starts the
controller of a topic through the `temporal` CLI, and splits and merges its segments while a Python producer and Python
consumers continue. A worker is killed during a split, and another one carries it to its end. All is checked, and left
running. The exit code is 0 only if every check held. With `down` (`make demo-down`) it ends them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from cli.operations import against_temporal, query
from cli.topic_controller import layout_lines
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from demos.stage import DemoFailed, Stage, say, title
from models.segments.layout import SegmentLayout
from models.segments.layout_check import layout_faults
from models.topic_controller.input import controller_id
from models.topic_controller.state import ControllerStatus
from pulsar_devstack.hardening import is_wanted
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.keyed_traffic import Arrivals, Receiving, Sending
from pulsar_devstack.traffic.plan import Subscribed
from pulsar_devstack.traffic.pulsar_client import await_that, pulsar
from pulsar_devstack.traffic.two_clusters import create_namespace
from pulsar_scalable import ClientOptions, ConsumerOptions, ScalableClient

AnswerT = TypeVar("AnswerT")

CLUSTER = "demo"
SPEC = StackSpec(zookeepers=1, bookies=1, brokers=2, temporal=True, cluster=CLUSTER)
NAMESPACE = "shop/live"
TOPIC = f"persistent://{NAMESPACE}/orders"
ORDERED, SHARED = "billing", "audit"
RATE = 500
LIMIT = 60.0


def demo() -> int:
    """Run the demo from start to end and verify it; return the exit code."""
    if is_wanted():
        raise DemoFailed("the demonstration of the topic controller has no hardened form; cure: leave HARDENED out")
    stage = Stage(SPEC, "TopicController", controller_id(CLUSTER, TOPIC))
    stage.start_servers()
    with PulsarAdmin.open(AdminAccess(timeout=30), stage.stack.admin_urls) as admin:
        create_namespace(admin, CLUSTER, NAMESPACE, [])
    gateway = stage.start_gateway()
    title("A topic of two segments, led by a workflow")
    access = {"cluster": CLUSTER, "metadata_url": stage.stack.metadata_url, "admin_urls": list(stage.stack.admin_urls)}
    stage.start({**access, "topic": TOPIC, "segments": 2, "controller_urls": [gateway]})
    for name, kind in ((ORDERED, "STREAM"), (SHARED, "QUEUE")):
        stage.update("create_subscription", {"name": name, "kind": kind})
    with Clients(stage.stack.broker_url, stage.folder / "clients.log") as clients:
        _show(stage, clients)
        _split_and_merge(stage, clients)
        _kill_the_worker(stage, clients)
        _restart_a_consumer(stage, clients)
        title("Verified")
        clients.finish()
        _verify(stage, clients)
    return stage.conclude(f"{clients.sending.count:,} messages through {_layout(stage).epoch} changes of the layout")


class Clients:
    """A producer, two ordered consumers and a shared one; a context manager.

    Args:
        service_url: of the brokers.
        log: of the library.
    """

    def __init__(self, service_url: str, log: Path) -> None:
        self._open = ExitStack()
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log))
        self._client = self._open.enter_context(ScalableClient(service_url, ClientOptions(logger=quiet)))
        self.received = {ORDERED: Arrivals(ORDERED), SHARED: Arrivals(SHARED, Subscribed.SHARED)}
        self.readers = {
            name: self._client.subscribe_stream(TOPIC, ORDERED, ConsumerOptions(consumer_name=name))
            for name in ("a", "b")
        }
        self._receiving = {name: Receiving(reader, self.received[ORDERED]) for name, reader in self.readers.items()}
        self._receiving[SHARED] = Receiving(self._client.subscribe(TOPIC, SHARED), self.received[SHARED])
        self.sending = Sending(self._client.create_producer(TOPIC), 1 / RATE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def restart(self, name: str) -> None:
        """End an ordered consumer, and start it again under its name."""
        self._receiving.pop(name).stop()
        self.readers[name].detach()
        again = self._client.subscribe_stream(TOPIC, ORDERED, ConsumerOptions(consumer_name=name))
        self.readers[name] = again
        self._receiving[name] = Receiving(again, self.received[ORDERED])

    @property
    def newest_segment(self) -> int:
        """The highest id of those from which a message came."""
        return max((segment for received in self.received.values() for segment in received.segments), default=-1)

    def missing(self) -> dict[str, int]:
        """Return the number of messages that are not received yet, by subscription."""
        return {name: self.sending.count - received.distinct for name, received in self.received.items()}

    def finish(self) -> None:
        """Stop sending, and wait until all is received."""
        self.sending.stop()
        _until("all messages are received", lambda: not any(self.missing().values()))
        for receiving in self._receiving.values():
            receiving.stop()


def _split_and_merge(stage: Stage, clients: Clients) -> None:
    title("Split and merge, while messages are sent and received")
    _change(stage, clients, "split", {"segment": 0})
    _change(stage, clients, "merge", {"segments": [3, 1]})


def _change(stage: Stage, clients: Clients, name: str, request: dict[str, Any]) -> None:
    """Change the layout in plain sight; returns when messages come from the new segments."""
    new, begun = _layout(stage).next_segment_id, time.monotonic()
    stage.update(name, request)
    _until(f"messages arrive after the {name}", lambda: clients.newest_segment >= new)
    _show(stage, clients)
    say(f"{time.monotonic() - begun:.2f} s from the request to the first message of a new segment")


def _kill_the_worker(stage: Stage, clients: Clients) -> None:
    title("The worker dies during a split, and another one carries it to its end")
    changing = threading.Thread(target=stage.update, args=("split", {"segment": 2}))
    changing.start()
    _until("the split has begun", lambda: _status(stage).doing.startswith("split"))
    before = clients.sending.count
    stage.replace_worker()
    changing.join()
    _show(stage, clients)
    say(f"{clients.sending.count - before:,} messages were sent during the change")


def _restart_a_consumer(stage: Stage, clients: Clients) -> None:
    title("An ordered consumer is restarted: it gets the same segments, and no other consumer is disturbed")
    _until("all segments have a reader", lambda: _is_handed_out(stage))
    before = _assignments(stage)
    clients.restart("b")
    after = _assignments(stage)
    for name in sorted(before):
        say(f"{name} reads {_ids(before[name])}, and then {_ids(after.get(name, ()))}")
    stage.check("each has what it had", before == after)


def _verify(stage: Stage, clients: Clients) -> None:
    sent = clients.sending.count
    stage.check(f"all {sent:,} messages are stored, each reported once", not clients.sending.faults())
    for name, received in clients.received.items():
        lost = sent - received.distinct
        stage.check(
            f"{name}: {lost} lost, {received.repeated} received again", not lost and not received.record.corrupt
        )
    reordered = clients.received[ORDERED].reordered()
    stage.check(f"{ORDERED}: keys out of order: {len(reordered)}", not reordered)
    layout = _layout(stage)
    stage.check(f"epoch {layout.epoch}, and no fault in the layout", not layout_faults(layout))


def _show(stage: Stage, clients: Clients) -> None:
    for line in layout_lines(_layout(stage)):
        say(f"  {line}")
    counts = ", ".join(f"{name} {received.distinct:,}" for name, received in clients.received.items())
    say(f"  sent {clients.sending.count:,}, received: {counts}")


def _layout(stage: Stage) -> SegmentLayout:
    return _ask(stage, "layout", SegmentLayout)


def _status(stage: Stage) -> ControllerStatus:
    return _ask(stage, "status", ControllerStatus)


def _assignments(stage: Stage) -> dict[str, tuple[int, ...]]:
    return _ask(stage, "assignments", dict[str, tuple[int, ...]], ORDERED)


def _is_handed_out(stage: Stage) -> bool:
    """Return whether sealed segments are drained, and each active one has a reader."""
    read = [number for ids in _assignments(stage).values() for number in ids]
    return sorted(read) == sorted(segment.segment_id for segment in _layout(stage).active)


def _ask(stage: Stage, name: str, kind: type[AnswerT], *arguments: str) -> AnswerT:
    answer = against_temporal(lambda client: query(client, stage.workflow_id, name, kind, *arguments))
    if answer is None:
        raise DemoFailed(f"the controller does not know its {name} yet")
    return answer


def _ids(segments: tuple[int, ...]) -> str:
    return " ".join(map(str, segments)) or "nothing"


def _until(what: str, holds: Callable[[], bool]) -> None:
    if not await_that(holds, LIMIT):
        raise DemoFailed(f"not within {LIMIT:.0f} s: {what}")
