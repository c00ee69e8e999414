"""The cluster that a controller's input names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.topic_controller.context import ControllerTask
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminDenied


def _task(runtime_configuration: Any) -> ControllerTask:
    input = SimpleNamespace(cluster="prod", admin_urls=("http://localhost:8080",))
    admin = SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=runtime_configuration))
    return cast("ControllerTask", SimpleNamespace(input=input, admin=admin))


def test_a_controller_under_another_cluster_name_is_refused() -> None:
    """A controller does not lead a topic of brokers whose clusterName differs from its own."""
    with pytest.raises(StoreConflict, match="is the cluster 'other', and not 'prod': correct cluster"):
        ControllerTask.require_cluster(_task(lambda: {"clusterName": "other"}))
    ControllerTask.require_cluster(_task(lambda: {"clusterName": "prod"}))


def test_a_role_that_may_not_read_the_configuration_leads() -> None:
    """The name of the cluster is not compared where the worker's role may not read it."""

    def denied() -> dict[str, str]:
        raise AdminDenied("403", url="u", status=403, method="GET")

    ControllerTask.require_cluster(_task(denied))
