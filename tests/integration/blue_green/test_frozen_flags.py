"""Attempts that froze right before they wrote a flag, and continue after others decided by that flag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from activities.blue_green import cluster
from activities.blue_green.batch import flip, load, undo
from activities.blue_green.context import BlueGreenTask
from clients.errors import Superseded
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.records.cluster_flag import read_cluster_flag, set_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag, set_flag
from models.blue_green.claims import Stage
from pulsar_devstack.traffic.pulsar_client import send_to
from tests.support.blue_green.environment import BLUE, Clusters
from tests.support.blue_green.steps import Steps, make_namespace, take


@pytest.mark.parametrize("flipped", [False, True], ids=["before the flip", "after the flip"])
def test_a_run_that_was_terminated_changes_no_flag_in_the_next(clusters: Clusters, *, flipped: bool) -> None:
    """The next run takes the namespace for what its flag says, so the flag stays as it is then."""
    namespace = f"frozen/{'flipped' if flipped else 'waiting'}"
    make_namespace(clusters, namespace, "topic")
    lost, following = Steps(clusters, namespace), Steps(clusters, namespace, run_id="run-2")
    lost.begin()
    assert not lost.quiesce().busy
    if flipped:
        lost.batch(flip.flip)
    with lost.task() as task, task.blue.store() as store:
        (guard,) = take(task, store, [namespace])
        guard.note(stage=Stage.FLIPPED, flipped_in="run-1")
        fence = _frozen(guard.require, lambda: following.whole(cluster.register))
        with pytest.raises(Superseded):
            set_flag(store, namespace, fence, migrated=not flipped)
        assert read_flag(store, namespace) is flipped
    assert clusters.blue_admin.namespaces.publish_rate(namespace) is None
    following.end()


def test_a_redirect_is_not_restored_after_clients_came(clusters: Clusters) -> None:
    """A client sends to the old cluster while an attempt at a rollback is frozen: both serve, as the next reports."""
    namespace = "frozen/redirect"
    (topic,) = make_namespace(clusters, namespace, "topic")
    there = Steps(clusters, namespace)
    there.move()
    there.finish()
    back = Steps(clusters, namespace)
    back.input = clusters.failback_input(namespaces=[namespace], complete_cluster=False)
    back.whole(cluster.register)
    back.batch(load.load)

    def repeat() -> None:
        send_to(clusters.blue.broker_url, [str(topic)])
        (note,) = back.batch(undo.undo).notes
        assert note.startswith(f"{namespace}: both blue and green serve its clients now")

    with back.task() as task, task.blue.store() as store, task.green.store() as green_store:
        (guard,) = take(task, store, [namespace])
        with pytest.raises(Superseded):
            set_flag(green_store, namespace, _frozen(guard.require, repeat), migrated=True)
        assert not read_flag(green_store, namespace)
    back.end()


@pytest.mark.parametrize("step", [cluster.complete, cluster.register], ids=["next attempt", "next run"])
def test_the_flag_of_the_cluster_is_not_set_over_what_stays(
    clusters: Clusters, step: Callable[[BlueGreenTask], Any], request: pytest.FixtureRequest
) -> None:
    """A namespace was created while COMPLETE was frozen: neither its next attempt nor a later run sets the flag."""
    namespace = f"frozen/{request.node.callspec.id.replace(' ', '-')}"
    make_namespace(clusters, namespace, "topic")
    steps = Steps(clusters, namespace, complete_cluster=True)
    steps.move()
    wanted = ClusterMigration(migrated=True, migrated_cluster_url=clusters.green_urls)
    try:
        with steps.task() as task, task.blue.store() as store:
            keeper = task.keeper(store)
            keeper.renew()
            with pytest.raises(Superseded):
                set_cluster_flag(store, BLUE, _frozen(keeper.require, lambda: steps.whole(step)), lambda _: wanted)
            flag = read_cluster_flag(store, BLUE)
        assert flag == wanted.model_copy(update={"migrated": False})
    finally:
        clusters.blue_admin.clusters.set_migration(BLUE, clusters.green_urls, migrated=False)
        steps.end()


def _frozen(require: Callable[[], object], then: Callable[[], object]) -> Callable[[], None]:
    """Return a fence that lets an attempt pass, after which it freezes once, until something else was done."""
    waiting = [then]

    def fence() -> None:
        require()
        if waiting:
            waiting.pop()()

    return fence
