"""The opening of a topic that exists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.topic_controller.context import ControllerTask
from activities.topic_controller.topic import open_topic
from clients.errors import StoreConflict
from clients.pulsar.names import TopicName
from models.topic_controller.record import ControlledLayout
from models.topic_controller.state import OpenRequest


def test_a_continued_run_refuses_an_older_record() -> None:
    """Nothing is created or published by a record that is older than the layout of the run before."""
    record = ControlledLayout.created(1, {}, 0)
    # Everything else that a step needs is missing here, so that the first access of it fails.
    task: Any = SimpleNamespace(
        name=TopicName.parse("persistent://acme/shop/orders"),
        metadata=SimpleNamespace(url="zk:zk:2181"),
        records=SimpleNamespace(read=lambda: record),
        take_lease=lambda: None,
    )
    with pytest.raises(StoreConflict, match="has epoch 0, but clients have epoch 1: an old record was restored"):
        open_topic.function(cast("ControllerTask", task), OpenRequest(epoch=1))
