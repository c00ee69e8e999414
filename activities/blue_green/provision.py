"""PROVISION: green has every namespace that moves, with all that belongs to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from activities.blue_green.client_access import require_clients
from activities.blue_green.context import AnyBlueGreenTask, BlueGreenTask
from activities.blue_green.ledger_ids import raise_ids, renew_ledgers
from activities.blue_green.listing import selected
from activities.blue_green.provisioning import EVERYTHING, Scope, provision_namespace
from activities.blue_green.records import sent_away
from activities.blue_green.way_back import flagged, narrow_cluster_flag
from activities.lifecycle.step import step
from models.blue_green.differences import Difference, DifferenceKind
from models.blue_green.input import IdleSubscriptions
from models.blue_green.results import Provision
from models.lifecycle.failures import NAMED
from models.lifecycle.status import ProgressTask, ProgressUnit
from spark.blue_green.copy_record import recorded_copies


@step(BlueGreenTask)
def provision(task: BlueGreenTask) -> Provision:
    """Create on green what it lacks, namespace by namespace, and read both sides back."""
    with task.green_store() as store:
        guard = task.keeper(store)
        guard.renew()
        narrow_cluster_flag(task, guard, store)
        # Nothing can be created in what green still sends away; that is left to its batch.
        namespaces = selected(task.blue, task.input)
        coming_back = flagged(store, namespaces)
        with task.blue_store() as blue:
            gone = sent_away(task, blue, namespaces)
        namespaces = [name for name in namespaces if name not in coming_back and name not in gone]
        ids = raise_ids(task.input, task.stores(task.input.blue), task.stores(task.input.green), guard.require)
        found = provision_all(task, namespaces, guard.require)
        if ids:
            # Last: brokers may have created topics of now before they saw that ids were raised.
            renew_ledgers(task.green, task.change_green, namespaces, ids, guard.require)
        require_clients(task, namespaces)
        return found


def judged(task: AnyBlueGreenTask, namespace: str, differing: Sequence[Difference]) -> list[Difference]:
    """Differences of a namespace, where those are harmless that are copies of an earlier attempt or run."""
    full = any(one.kind is DifferenceKind.GREEN_HAS_MESSAGES for one in differing)
    if not full or task.input.idle_subscriptions is not IdleSubscriptions.COPY:
        return list(differing)
    with task.blue_store() as store:
        copied = {f"topic {topic.whole}" for topic in recorded_copies(store, namespace)}
    return [
        one.model_copy(update={"harmless": True})
        if one.kind is DifferenceKind.GREEN_HAS_MESSAGES and one.path in copied
        else one
        for one in differing
    ]


def provision_all(
    task: AnyBlueGreenTask, namespaces: list[str], fence: Callable[[], object], scope: Scope = EVERYTHING
) -> Provision:
    """The same for some namespaces, or for a part of them."""
    created = Counter[str]()
    left: list[str] = []
    harmless = 0
    for done, namespace in enumerate(namespaces):
        task.context.progress(ProgressTask.PROVISION, ProgressUnit.NAMESPACES, done, len(namespaces), detail=namespace)
        found = provision_namespace(
            task.blue,
            task.green,
            namespace,
            names=task.names,
            release=task.green_release,
            fence=lambda: (fence(), None)[1],
            change_or_never=task.change_green,
            align=task.input.align_differences,
            check=task.context.check,
            scope=scope,
        )
        created.update(found.created)
        differing = judged(task, namespace, found.differences)
        if scope.served:
            differing = [one for one in differing if one.kind is not DifferenceKind.GREEN_HAS_MESSAGES]
        blocking = [str(one) for one in differing if one.blocks]
        left += blocking
        harmless += len(differing) - len(blocking)
    return Provision(created=dict(created), left=tuple(left[:NAMED]), left_count=len(left), harmless=harmless)
