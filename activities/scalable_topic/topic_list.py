"""The topics of a migration of many topics, and the order in which they become scalable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import filterfalse, islice

from activities.lifecycle.step import step
from activities.scalable_topic.context import NamespaceTask
from activities.scalable_topic.conversion.name_taken import has_become
from clients.cas.store import CasReader
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import read_scalable
from clients.stores import open_cas_reader
from models.lifecycle.waves import Page, WaveItem
from models.scalable_topic.namespace_input import ScalableNamespaceInput


def selected(task: NamespaceTask) -> list[str]:
    """Return `tenant/namespace/topic` of regular topics that are not scalable, in their order.

    This includes topics whose name a scalable topic of other origin has: the checks of the topic report that.
    """
    listed = _listed(task)
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        names = task.each(in_order(task.input, listed), lambda name: "" if _is_scalable(store, listed, name) else name)
    return list(filter(None, names))


def in_order(input: ScalableNamespaceInput, topics: Iterable[str]) -> list[str]:
    """Return the topics that become scalable, ordered by their patterns and by name."""
    ranked = [(rank, topic) for topic in topics if (rank := input.rank(topic)) is not None]
    return [topic for _, topic in sorted(ranked)]


@step(NamespaceTask, name="list_topics", reads_only=True)
def page(task: NamespaceTask, cursor: str, limit: int) -> Page:
    """Return the topics after a cursor; topics that were created since then, and sort before it, stay regular."""
    if not cursor:
        return page_of(task.input, selected(task), cursor, limit, hold=task.runtime.stopped_because)
    listed = _listed(task)
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        # Read records only until the page is full.
        names = in_order(task.input, listed)
        stays = partial(_is_scalable, store, listed)
        return page_of(task.input, names, cursor, limit, stays=stays, hold=task.runtime.stopped_because)


def page_of(
    input: ScalableNamespaceInput,
    names: Sequence[str],
    cursor: str,
    limit: int,
    *,
    stays: Callable[[str], bool] | None = None,
    hold: str = "",
) -> Page:
    """Return a page of topics in their order; the one at the cursor may be gone.

    Args:
        input: of the migration.
        names: of all topics, in their order.
        cursor: the last topic of the previous page; empty for the first page.
        limit: how many topics a page has.
        stays: returns whether a topic is left out; None to leave out none.
        hold: why no topic may start now.
    """
    position = (input.rank(cursor), cursor)
    following = (name for name in names if not cursor or (input.rank(name), name) > position)
    wanted = filterfalse(stays, following) if stays else following
    page_items = list(islice(wanted, limit) if cursor else wanted)
    return Page(
        items=tuple(WaveItem(name=name) for name in page_items[:limit]),
        total=None if cursor else len(page_items),
        hold=hold,
    )


def namespace_of(topic: str) -> str:
    """Return `tenant/namespace` of `tenant/namespace/topic`."""
    return "/".join(topic.split("/")[:2])


def full_name(name: str) -> TopicName:
    """Return the topic of `tenant/namespace/topic`."""
    return TopicName.parse(f"persistent://{name}")


# Inside ---------------------------------------------------------------------------------------------------------------


def _listed(task: NamespaceTask) -> dict[str, bool]:
    """Return the stored topics, each with whether a scalable topic has its name."""
    names = [name for tenant in task.admin.tenants.names() for name in task.admin.namespaces.names(tenant)]
    return {name: taken for listed in task.each(names, lambda name: _regular(task, name)) for name, taken in listed}


def _regular(task: NamespaceTask, namespace: str) -> Iterable[tuple[str, bool]]:
    """Return the stored topics of a namespace, each with whether a scalable topic has its name."""
    try:
        scalable = {name.removeprefix("topic://") for name in task.admin.scalable_topics.names(namespace)}
        names = [*task.admin.topics.partitioned_names(namespace), *task.admin.topics.names(namespace)]
    except AdminNotFound:
        return []
    whole = {str(TopicName.parse(name).whole).removeprefix("persistent://") for name in names}
    return [(name, name in scalable) for name in whole]


def _is_scalable(store: CasReader, listed: Mapping[str, bool], name: str) -> bool:
    """Return whether a regular topic has become scalable; false if no broker can read the record."""
    topic = full_name(name)
    # mutant: scalable-topic/names-that-are-taken-are-left-out
    return listed[name] and has_become(store, read_scalable(store, topic), topic)
