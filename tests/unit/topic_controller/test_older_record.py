"""A record that is older than the layout that the run has: clients would ignore what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from activities.topic_controller.context import CoordinatorTask, LeaderTask
from activities.topic_controller.observe import create_observer
from activities.topic_controller.prune import prune
from activities.topic_controller.sessions import publish_assignments
from activities.topic_controller.topic import open_topic, publish_controller_urls
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdminReader
from clients.pulsar.names import TopicName
from models.topic_controller.input import ControllerUrls
from models.topic_controller.observation import ObserverInput
from models.topic_controller.pruning import PruneRequest, PruneTask, Pruning
from models.topic_controller.record import ControlledLayout
from models.topic_controller.sessions import AssignmentChanges
from models.topic_controller.state import OpenRequest

TOO_OLD = "has epoch 0, but clients have epoch 1: an old record was restored"


def _task() -> LeaderTask:
    """Return a task with a record of epoch 0; whatever else a step needs is missing, so that its first access fails."""
    record = ControlledLayout.created(1, {}, 0)

    def change(change: Callable[[ControlledLayout], ControlledLayout]) -> ControlledLayout:
        return change(record)

    records = SimpleNamespace(read=lambda: record, change=change)
    name = TopicName.parse("persistent://acme/shop/orders")
    metadata = SimpleNamespace(url="zk:zk:2181")
    return cast("LeaderTask", SimpleNamespace(name=name, metadata=metadata, records=records, take_lease=lambda: None))


def test_a_continued_run_refuses_it() -> None:
    """Nothing is created or published when the topic is opened again."""
    with pytest.raises(StoreConflict, match=TOO_OLD):
        open_topic.function(_task(), OpenRequest(epoch=1))


def test_pruning_refuses_it() -> None:
    """No segment is removed from it, and it is not published."""
    with pytest.raises(StoreConflict, match=TOO_OLD):
        prune.function(_task(), PruneTask(request=PruneRequest(), pruning=Pruning(), epoch=1))


def test_assignments_are_not_made_from_it() -> None:
    """A result would make the run, which keeps its newer layout, ask again without a pause and without a reason."""
    with pytest.raises(StoreConflict, match=TOO_OLD):
        publish_assignments.function(
            cast("CoordinatorTask", _task()), AssignmentChanges(generation=1, epoch=1, subscriptions=())
        )


def test_its_consumers_are_not_observed() -> None:
    """The observer would end at once, and the next one too."""
    watching = ObserverInput(subscriptions=(), grace_seconds=60, epoch=1)
    with pytest.raises(StoreConflict, match=TOO_OLD):
        create_observer(_task(), cast("PulsarAdminReader", None), watching, 0.0)


@pytest.mark.parametrize(("urls", "expected_epoch"), [(("https://new:8443",), 2), ((), 1)], ids=["new", "same"])
def test_new_addresses_are_not_added_to_it(urls: tuple[str, ...], expected_epoch: int) -> None:
    """The layout with them would have an epoch that clients have already."""
    with pytest.raises(StoreConflict, match=TOO_OLD):
        publish_controller_urls.function(_task(), ControllerUrls(urls=urls), expected_epoch)
