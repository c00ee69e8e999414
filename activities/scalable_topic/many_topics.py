"""The topics of a migration of many: which they are, how they stand, and which of them failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse, islice

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.coverage import require_covered
from activities.pulsar.feature_census import FeatureCensus
from activities.scalable_topic.cleanup import end_topics
from activities.scalable_topic.cluster import give_back, holds_cluster, recover, take
from activities.scalable_topic.cluster_checks import check_auto_scale, check_cluster, check_rights
from activities.scalable_topic.context import NamespaceTask
from activities.scalable_topic.name_taken import has_become
from activities.scalable_topic.precheck import stored_bytes
from activities.scalable_topic.readiness import check_one
from activities.scalable_topic.regular import durable_of
from clients.cas.store import CasReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import read_scalable
from clients.stores import open_cas_reader
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.waves import Page, WaveItem
from models.scalable_topic.namespace_input import NamespaceScalableInput
from models.scalable_topic.results import CleanedUp, Released, Survey

_FAILED = f"{CLAIM}-failed"


def selected(task: NamespaceTask) -> list[str]:
    """Return `tenant/namespace/topic` of regular topics that are not scalable, in their order.

    A regular topic whose name a scalable topic of other origin has is among them: its own checks report that.
    """
    listed = _listed(task)
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        kept = task.each(in_order(task.input, listed), lambda name: "" if _is_scalable(store, listed, name) else name)
    return list(filter(None, kept))


def in_order(input: NamespaceScalableInput, found: Iterable[str]) -> list[str]:
    """Those topics that become scalable, by the order of their patterns and by name."""
    ranked = [(rank, topic) for topic in found if (rank := input.rank(topic)) is not None]
    return [topic for _, topic in sorted(ranked)]


@step(NamespaceTask, name="list_topics", reads_only=True)
def page(task: NamespaceTask, cursor: str, limit: int) -> Page:
    """The topics behind a cursor; one that came meanwhile, and would stand before it, stays regular."""
    if not cursor:
        return page_of(task.input, selected(task), cursor, limit)
    listed = _listed(task)
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        # Records are read until the page is full, and not those of all topics for each page.
        names = in_order(task.input, listed)
        return page_of(task.input, names, cursor, limit, stays=lambda name: _is_scalable(store, listed, name))


def page_of(
    input: NamespaceScalableInput,
    names: Sequence[str],
    cursor: str,
    limit: int,
    *,
    stays: Callable[[str], bool] | None = None,
) -> Page:
    """Return a page of topics in their order; the one at the cursor may be gone.

    Args:
        input: of the migration.
        names: of all topics, in their order.
        cursor: the last topic of the page before; empty for the first page.
        limit: how many topics a page has.
        stays: whether a topic is left out; None if none is.
    """
    place = (input.rank(cursor), cursor)
    behind = (name for name in names if not cursor or (input.rank(name), name) > place)
    wanted = filterfalse(stays, behind) if stays else behind
    found = list(islice(wanted, limit) if cursor else wanted)
    return Page(items=tuple(WaveItem(name=name) for name in found[:limit]), total=None if cursor else len(found))


@step(NamespaceTask, reads_only=True)
def survey(task: NamespaceTask) -> Survey:
    """PRECHECK: check the cluster and all topics; writes nothing."""
    findings = Findings()
    check_cluster(task, findings)
    found = Survey(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    if findings.blockers:
        return found
    names = selected(task)
    if not names:
        findings.block(
            "NO_TOPICS",
            f"no regular topic of {task.input.cluster} fits {task.input.target_name}",
            "correct the patterns: tenant/namespace/topic, with * for any part of a name",
        )
        return found.model_copy(update={"blockers": tuple(findings.blockers)})
    namespaces = sorted({namespace_of(name) for name in names})

    def check_brokers() -> None:
        check_rights(task.admin, findings, namespaces)
        check_auto_scale(task, task.input.auto_scale, findings, namespaces)

    findings.attempt(f"the brokers of {task.input.cluster}", check_brokers, of="BROKERS")
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        looks = task.each(names, lambda name: _look(task, store, name))
    blocked = [failed for look in looks for failed in look.blocked]
    found = found.model_copy(
        update={
            "blockers": tuple(findings.blockers),
            "topics": len(names),
            "namespaces": len(namespaces),
            "subscriptions": sum(look.subscriptions for look in looks),
            "backlog": sum(look.backlog for look in looks),
            "stored_bytes": sum(look.stored_bytes for look in looks),
            "blocked": tuple(blocked[:NAMED]),
            "blocked_count": len(blocked),
        }
    )
    # What single topics use is looked at by the migration of each.
    census = FeatureCensus(task.input.cluster)
    return task.covered(found, census, namespaces)


@step(NamespaceTask, name="hold_all", needs_open_run=True)
def hold(task: NamespaceTask) -> Released:
    """GUARD: claim the cluster, and hold the policies of all namespaces with topics that become scalable."""
    namespaces = sorted({namespace_of(name) for name in selected(task)})
    require_covered(task.input, lambda census: task.survey(census, namespaces))
    released = take(task, namespaces)
    with task.cluster.store() as store:
        for name in store.children(_FAILED):
            if node := store.get(f"{_FAILED}/{name}"):
                store.delete(f"{_FAILED}/{name}", node.version)
    return released


@step(NamespaceTask)
def record_failures(task: NamespaceTask, failures: list[FailedItem], offset: int) -> str:
    """Keep failed topics in the metadata store, a node for each call; says where."""
    with task.cluster.store() as store:
        task.keeper(store).renew()
        path = f"{_FAILED}/{offset:09d}"
        value = json.dumps([failure.model_dump(mode="json") for failure in failures]).encode()
        node = store.get(path)
        if node is None:
            store.create(path, value)
        elif node.value != value:
            store.set(path, value, node.version)
    return f"{_FAILED} of {task.input.metadata_url}"


@step(NamespaceTask, name="release_all")
def release(task: NamespaceTask) -> Released:
    """COMPLETE and ROLLBACK: complete what was left by halves, put all policies back, and give up the claim."""
    with task.cluster.store() as store:
        if not holds_cluster(task, store):
            return Released()
    return give_back(task)


@step(NamespaceTask, needs_open_run=True)
def recover_all(task: NamespaceTask) -> Released:
    """Bring to its end what a run has left that was terminated, or is lost."""
    return recover(task)


@step(NamespaceTask)
def clean_up_all(task: NamespaceTask) -> CleanedUp:
    """CLEANUP: delete regular topics that nobody needs any more, and forget all topics."""
    return end_topics(task, delete=True)


@step(NamespaceTask)
def forget_all(task: NamespaceTask) -> CleanedUp:
    """Forget all topics without a cleanup."""
    return end_topics(task, delete=False)


def namespace_of(topic: str) -> str:
    """`tenant/namespace` of `tenant/namespace/topic`."""
    return "/".join(topic.split("/")[:2])


# Inside ---------------------------------------------------------------------------------------------------------------


def _listed(task: NamespaceTask) -> dict[str, bool]:
    """Return whole stored topics, and whether a scalable topic has the name."""
    names = [name for tenant in task.admin.tenants.names() for name in task.admin.namespaces.names(tenant)]
    return {name: taken for found in task.each(names, lambda name: _regular(task, name)) for name, taken in found}


def _regular(task: NamespaceTask, namespace: str) -> Iterable[tuple[str, bool]]:
    """Return whole stored topics of a namespace, each with whether a scalable topic has its name."""
    try:
        scalable = {name.removeprefix("topic://") for name in task.admin.scalable_topics.names(namespace)}
        names = [*task.admin.topics.partitioned_names(namespace), *task.admin.topics.names(namespace)]
    except AdminNotFound:
        return []
    whole = {str(TopicName.parse(name).whole).removeprefix("persistent://") for name in names}
    return [(name, name in scalable) for name in whole]


def _is_scalable(store: CasReader, listed: Mapping[str, bool], name: str) -> bool:
    """Return whether a regular topic has become scalable; what no broker can read did not come from it."""
    topic = _topic(name)
    return listed[name] and has_become(store, read_scalable(store, topic), topic)


def _look(task: NamespaceTask, store: CasReader, name: str) -> Survey:
    """How one topic stands, as a survey of it alone."""
    topic = task.find_topic(_topic(name), described=True)
    if topic is None:
        return Survey()
    findings = Findings()
    check_one(task.admin, store, findings, topic, task.input, workflow_id=task.attempt.workflow_id)
    durable = durable_of(topic)
    return Survey(
        topics=1,
        subscriptions=len(durable),
        backlog=sum(one.backlog for one in durable),
        stored_bytes=stored_bytes(topic),
        blocked=tuple(FailedItem(path=name, reason=str(blocker)) for blocker in findings.blockers[:1]),
    )


def _topic(name: str) -> TopicName:
    return TopicName.parse(f"persistent://{name}")
