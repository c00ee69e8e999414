"""Topics with ordered consumers keep no step of others from running, however many a worker has."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from pulsar_devstack.servers.stack import Stack
from tests.support.lifecycle.environment import Environment
from tests.support.lifecycle.small_worker import SmallWorkerProcess
from tests.support.topic_controller.controllers import LIMIT, Controller
from tests.support.waiting import wait_for

QUEUE = "crowded"
PLACES = 4
TOPICS = 3 * PLACES


@pytest.mark.exhaustive
def test_observers_use_no_slots_of_other_steps(environment: Environment, stack: Stack, tmp_path: Path) -> None:
    """A worker with slots for a third of its topics observes all of them, and splits each at the same time."""
    operator, temporal = environment.operator, environment.stack.temporal_address

    def is_observed(controller: Controller) -> bool:
        pending = operator.wait(controller.handle.describe(), LIMIT).raw_description.pending_activities
        started = [
            activity for activity in pending if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        ]
        return [activity.activity_type.name for activity in started] == ["topic_controller_observe"]

    with SmallWorkerProcess(temporal, tmp_path, places=PLACES, PULSAR_MIGRATE_TASK_QUEUE=QUEUE):
        controllers = [
            Controller.of(operator, stack, f"persistent://public/default/crowd-{number}", queue=QUEUE, pruning=None)
            for number in range(TOPICS)
        ]
        for controller in controllers:
            controller.subscribe("bill")
            # No client reads here, and none of the registered consumers must be evicted during the test.
            controller.set_grace(timedelta(hours=1))
            controller.register("bill", "a")
        for controller in controllers:
            wait_for("its observer", lambda controller=controller: is_observed(controller), LIMIT)
        for controller in controllers:
            assert controller.split(0).epoch == 1
        for controller in controllers:
            controller.delete(force=True)
