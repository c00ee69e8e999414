"""A topic scales by itself on real brokers: out under load, in when it is idle, and before a peak."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from activities.topic_controller.names import segment_topic
from clients.pulsar.admin.client import PulsarAdmin
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.integration.topic_controller.conftest import Control
from tests.support.waiting import timeout_for

SPACE = "persistent://public/default"


@contextmanager
def load(stack: Stack, topic: str) -> Generator[None]:
    """Send some hundred messages a second for the duration of the context."""
    stop = threading.Event()

    def send() -> None:
        with closing(quiet_client(stack.broker_url)) as client:
            producer: Any = client.create_producer(topic, block_if_queue_full=True)
            while not stop.wait(0.02):
                for _ in range(10):
                    producer.send_async(b"x" * 100, _ignore)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    try:
        yield
    finally:
        stop.set()
        sending.join(timeout_for(30))


def _ignore(*_: object) -> None:
    """Ignore the outcome of a message."""


# Brokers count rates once a minute, and a merge waits for two of these.
@pytest.mark.exhaustive
def test_scale_out_under_load_and_in_when_idle(control: Control, stack: Stack, admin: PulsarAdmin) -> None:
    """A loaded segment splits, with a cursor of each subscription; idle neighbours merge again."""
    controller = control(f"{SPACE}/elastic", segments=1, pruning=None)
    controller.subscribe("work", SubscriptionKind.QUEUE)
    policy = {"splitMsgRateInThreshold": 50, "mergeMsgRateInThreshold": 5, "maxSegments": 2, "intervalSeconds": 5}
    controller.scale({**policy, "mergeCooldownSeconds": 10, "mergeWindowSeconds": 20})
    with load(stack, str(segment_topic(controller.name, "0000-ffff-0"))):
        status = controller.until(lambda status: status.epoch >= 1, 150)
    assert len(status.active) == 2
    for descriptor in status.active:
        assert admin.subscriptions.names(segment_topic(controller.name, descriptor)) == ["work"]
    status = controller.until(lambda status: status.epoch >= 2, 150)
    assert (len(status.active), layout_faults(controller.layout())) == (1, [])
    decisions = [note for note in status.notes if "auto scale" in note]
    assert "auto scale: split of 0, since segment 0 has" in decisions[0]
    assert "auto scale: merge of 1 and 2, since both were below the merge thresholds for 20 s" in decisions[1]
    controller.delete(force=True)


def test_a_window_scales_before_a_peak(control: Control) -> None:
    """A window sets its number of segments at once; a dry run only notes it."""
    peak = {"windows": [{"open": ["* * * * *"], "duration": "1h", "minSegments": 4}], "intervalSeconds": 5}
    controller = control(f"{SPACE}/peak")
    controller.scale({**peak, "dryRun": True})
    status = controller.until(lambda status: any("dry run: would do the split of 0" in note for note in status.notes))
    assert (status.epoch, len(status.active), status.auto_scale) == (0, 1, "dry run")
    controller.scale(peak)
    status = controller.until(lambda status: len(status.active) == 4, 90)
    assert status.active == tuple(segment.descriptor for segment in controller.layout().active)
    assert {segment.hash_range.size for segment in controller.layout().active} == {16384}
    controller.delete()
