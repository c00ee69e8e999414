"""PROVISION: create on green what blue has, and compare both sides.

Each change is one call that does nothing the second time, or that green refuses then; what counts is what is read back.
Nothing is deleted, and nothing that only green has is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from threading import Lock
from typing import NamedTuple

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.provisioning.deltas import Delta
from activities.blue_green.provisioning.differences import namespace_deltas, reported, tenant_deltas
from activities.blue_green.provisioning.inventory import read_namespace, read_tenant, run_concurrently
from activities.blue_green.provisioning.topic_differences import PARTITION
from activities.lifecycle.context import ActivityContext
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.errors import (
    AdminConflict,
    AdminError,
    AdminPreconditionFailed,
    AdminServerError,
    AdminUnreachable,
)
from clients.pulsar.admin.late_requests import ChangeOrNever, FencedAdmin
from clients.pulsar.names import TopicName
from models.blue_green.differences import LONGEST_VALUE, Difference, DifferenceKind, Provisioned
from models.blue_green.input import IdleSubscriptions
from models.blue_green.results import Provision
from models.lifecycle.failures import NAMED
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from models.releases import Release
from models.text import shown
from spark.blue_green.copy_record import recorded_copies

# Before both sides are read again: brokers need a moment until they know what was set for a topic.
_PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0)
# A topic that was created a moment ago answers 500 at times.
_RETRY_PAUSES = (0.2, 0.5, 1.0, 2.0)


class Scope(NamedTuple):
    """The part of a namespace that is created.

    Attributes:
        topics: whole topics, alone; None for all of them, with tenant and namespace.
        grow: also add partitions to topics that have more of them on blue by now.
        served: green serves clients by now, who may have sent to it.
    """

    topics: Collection[TopicName] | None = None
    grow: bool = False
    served: bool = False


EVERYTHING = Scope()

# Without them nothing else can be created.
_CONTAINERS = frozenset(("tenant", "namespace"))


def compare_namespace(
    blue: PulsarAdminReader,
    green: PulsarAdminReader,
    namespace: str,
    *,
    names: Mapping[str, str],
    release: Release,
    check: Callable[[], None] = lambda: None,
) -> list[Difference]:
    """Return how a namespace and its tenant on green differ from blue's, as both are now; empty if blue has none.

    Args:
        blue: the cluster that is left.
        green: the cluster that takes over.
        namespace: `tenant/namespace`.
        names: what blue's clusters are called on green.
        release: of green's brokers.
        check: raises where the work must stop.

    Raises:
        AdminError: a broker of either side does not answer.
    """
    return reported(_deltas(blue, green, namespace, names, release, check=check))


def provision_namespace(
    blue: PulsarAdminReader,
    green: PulsarAdmin,
    namespace: str,
    *,
    names: Mapping[str, str],
    release: Release,
    fence: Callable[[], None],
    change_or_never: ChangeOrNever,
    align: bool,
    context: ActivityContext,
    scope: Scope = EVERYTHING,
) -> Provisioned:
    """Create a namespace on green with its tenant and all that is in it, and read both sides again.

    It can be repeated, also concurrently.

    Args:
        blue: the cluster that is left; needs eight connections, as green does.
        green: the cluster that takes over.
        namespace: `tenant/namespace`.
        names: what blue's clusters are called on green.
        release: of green's brokers.
        fence: called right before each change on green, from eight threads; raises if this attempt is late.
        change_or_never: makes changes to green that remove something.
        align: change also what exists on green and differs.
        context: of the activity; ends the work when that is cancelled, and shows what it waits for.
        scope: what of the namespace; the rest is neither changed nor compared.

    Returns:
        What was created, and what still differs.

    Raises:
        AdminError: a broker of either side does not answer.
    """

    def read() -> list[Delta]:
        deltas = _deltas(blue, green, namespace, names, release, check=context.check, topics=scope.topics)
        return deltas if scope.topics is None else [delta for delta in deltas if delta.topic in scope.topics]

    def is_wanted(delta: Delta) -> bool:
        return delta.wanted_always or align or (scope.grow and delta.what == PARTITION)

    changes = _Changes(FencedAdmin.of(green, fence, change_or_never), context)
    deltas, tried = read(), None
    for pause in _PAUSES:
        wanted = [delta for delta in deltas if delta.change and is_wanted(delta)]
        paths = [delta.difference.path for delta in wanted]
        if not wanted or (not changes.make(wanted) and paths == tried):
            break
        tried = paths
        with context.waiting(WaitKind.STORE, f"green's brokers to show what was set for {namespace}"):
            context.pause(pause)
        deltas = read()
    return Provisioned(
        created=dict(sorted(changes.done.items())), differences=tuple(map(changes.explained, reported(deltas)))
    )


def _deltas(
    blue: PulsarAdminReader,
    green: PulsarAdminReader,
    namespace: str,
    names: Mapping[str, str],
    release: Release,
    *,
    check: Callable[[], None],
    topics: Collection[TopicName] | None = None,
) -> list[Delta]:
    there = read_namespace(blue, namespace, check, only=topics)
    if there is None:
        return []
    tenant = namespace.partition("/")[0]
    of_tenant = tenant_deltas(tenant, blue.tenants.get(tenant), read_tenant(green, tenant), names)
    return [*of_tenant, *namespace_deltas(there, read_namespace(green, namespace, check, only=topics), names, release)]


class _Changes:
    """Makes changes, and keeps green's answers to those that it refused.

    Attributes:
        done: changes by kind.
    """

    def __init__(self, green: FencedAdmin, context: ActivityContext) -> None:
        self._green, self._context = green, context
        self._lock = Lock()
        self._refusals: dict[str, str] = {}
        self.done: Counter[str] = Counter()

    def make(self, deltas: Iterable[Delta]) -> bool:
        """Make the changes, of the namespace first, then of topics in parallel; return whether any was made."""
        groups = {of: list(group) for of, group in groupby(deltas, lambda delta: delta.topic)}
        before, of_containers = self.done.total(), groups.pop(None, [])
        self._make_in_order(of_containers)
        if not any(delta.what in _CONTAINERS and delta.difference.path in self._refusals for delta in of_containers):
            run_concurrently([self._deferred(group) for group in groups.values()])
        return self.done.total() > before

    def explained(self, difference: Difference) -> Difference:
        """Return the same difference, with green's refusal of the change that would have removed it."""
        refusal = self._refusals.get(difference.path)
        if refusal is None:
            return difference
        green = f"{difference.green}; it" if difference.green else "it"
        return difference.model_copy(update={"green": shown(f"{green} answered: {refusal}", LONGEST_VALUE)})

    def _deferred(self, deltas: list[Delta]) -> Callable[[], None]:
        return lambda: self._make_in_order(deltas)

    def _make_in_order(self, deltas: list[Delta]) -> None:
        again = [delta for delta in deltas if not self._make(delta)]
        # A policy may contradict another one until that is set as well: a backlog quota and a retention, for example.
        for delta in again:
            self._make(delta)

    def _make(self, delta: Delta) -> bool:
        """Make a change; return False if another change may be needed before it."""
        try:
            self._repeat(delta)
        except AdminError as error:
            if isinstance(error, AdminUnreachable) and not isinstance(error, AdminServerError):
                raise
            if type(error) is AdminConflict and delta.what in _CONTAINERS:
                # Another client created it first.
                return True
            with self._lock:
                self._refusals[delta.difference.path] = error.reason
            return not isinstance(error, AdminPreconditionFailed)
        with self._lock:
            self._refusals.pop(delta.difference.path, None)
            self.done[delta.what] += 1
        return True

    def _repeat(self, delta: Delta) -> None:
        assert delta.change is not None
        for pause in _RETRY_PAUSES:
            self._context.check()
            try:
                return delta.change(self._green)
            except AdminUnreachable as error:
                with self._context.waiting(WaitKind.STORE, f"green to accept {delta.difference.path}: {error}"):
                    self._context.pause(pause)
        return delta.change(self._green)


def ignore_own_copies(task: AnyBlueGreenTask, namespace: str, differing: Sequence[Difference]) -> list[Difference]:
    """Return the differences of a namespace, with copies of an earlier attempt or run marked as harmless."""
    full = any(difference.kind is DifferenceKind.GREEN_HAS_MESSAGES for difference in differing)
    if not full or task.input.idle_subscriptions is not IdleSubscriptions.COPY:
        return list(differing)
    with task.blue.store() as store:
        copied = {f"topic {topic.whole}" for topic in recorded_copies(store, namespace)}
    return [
        difference.model_copy(update={"harmless": True})
        if difference.kind is DifferenceKind.GREEN_HAS_MESSAGES and difference.path in copied
        else difference
        for difference in differing
    ]


def provision_all(
    task: AnyBlueGreenTask, namespaces: list[str], fence: Callable[[], object], scope: Scope = EVERYTHING
) -> Provision:
    """Provision namespaces, or a part of each; return what was created, and what blocks."""
    created = Counter[str]()
    all_blocking: list[str] = []
    harmless = 0
    for done, namespace in enumerate(namespaces):
        task.context.progress(ProgressTask.PROVISION, ProgressUnit.NAMESPACES, done, len(namespaces), detail=namespace)
        provisioned = provision_namespace(
            task.blue.admin,
            task.green.admin,
            namespace,
            names=task.names,
            release=task.green.release,
            fence=lambda: (fence(), None)[1],
            change_or_never=task.green.change_or_never,
            align=task.input.align_differences,
            context=task.context,
            scope=scope,
        )
        created.update(provisioned.created)
        differing = ignore_own_copies(task, namespace, provisioned.differences)
        if scope.served:
            differing = [
                difference for difference in differing if difference.kind is not DifferenceKind.GREEN_HAS_MESSAGES
            ]
        blocking = [str(difference) for difference in differing if difference.blocks]
        all_blocking += blocking
        harmless += len(differing) - len(blocking)
    return Provision(
        created=dict(created), blocking=tuple(all_blocking[:NAMED]), blocking_count=len(all_blocking), harmless=harmless
    )
