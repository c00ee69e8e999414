"""What blue's metadata store knows of namespaces: their records, and whose clients are sent to green already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.flags import led_elsewhere
from activities.blue_green.listing import namespaces_of
from activities.blue_green.topics import topics_of
from activities.pulsar.namespace_guard import recorded_namespaces
from activities.pulsar.stored_topics import stored
from clients.cas.store import CasReader
from clients.pulsar.records.cluster_flag import read_cluster_flag
from clients.pulsar.records.namespace_flag import read_flag
from models.blue_green.claims import FLIPPED, NamespaceClaim
from models.lifecycle.claim import namespace_record
from models.lifecycle.failures import some


def records(store: CasReader) -> Mapping[str, NamespaceClaim]:
    """All records, by namespace, whoever holds them."""
    found = {namespace: read_record(store, namespace) for namespace in recorded_namespaces(store)}
    return {namespace: claim for namespace, claim in found.items() if claim}


def read_record(store: CasReader, namespace: str) -> NamespaceClaim | None:
    """The record of a namespace, whoever holds it."""
    node = store.get(namespace_record(namespace))
    return NamespaceClaim.model_validate_json(node.value) if node else None


def sent_away(task: AnyBlueGreenTask, store: CasReader, namespaces: Iterable[str]) -> set[str]:
    """Those namespaces whose clients are sent to green already, by an earlier run, however that has ended.

    They differ from what green has, and green has messages of them; what is left is to bring them to their end. Where
    the flag is off and no topic is terminated, nothing of it has happened, or all was taken back.
    """
    known = records(store)
    away = _away(task, store, known, namespaces)
    begun = {name for name in away if name in known and known[name].stage in FLIPPED}
    # mutant: blue-green/what-has-moved-is-created-again
    return set(away) if away != begun and not _elsewhere(task, store) else begun


def sent_elsewhere(task: AnyBlueGreenTask, store: CasReader) -> str:
    """Whose clients blue sends to another cluster than green, in words; empty where it sends nobody there.

    Blue has one address for all of its namespaces: who changes it sends all of them to another cluster.
    """
    if not (where := _elsewhere(task, store)):
        return ""
    flag = read_cluster_flag(store, task.input.cluster)
    if flag and flag.migrated:
        return f"all clients of {task.input.cluster} are sent away {where}"
    names = _away(task, store, records(store), namespaces_of(task.blue))
    return f"clients of {some(sorted(names))} are sent away {where}" if names else ""


def _elsewhere(task: AnyBlueGreenTask, store: CasReader) -> str:
    """Why the stored address does not lead to green; empty where it does."""
    flag = read_cluster_flag(store, task.input.cluster)
    return led_elsewhere(task, flag and flag.migrated_cluster_url, task.input.green, task.input.green_cluster)


def _away(
    task: AnyBlueGreenTask, store: CasReader, known: Mapping[str, NamespaceClaim], namespaces: Iterable[str]
) -> set[str]:
    """Those whose clients are sent away, wherever to, or were: an earlier run was lost amid that."""

    def is_away(name: str) -> bool:
        begun = name in known and known[name].stage in FLIPPED
        return read_flag(store, name) or (begun and _is_ended(task, name))  # mutant: blue-green/flip-that-never-started

    return {name for name in namespaces if is_away(name)}


def _is_ended(task: AnyBlueGreenTask, namespace: str) -> bool:
    """Whether any topic of a namespace was terminated so that its clients go to green."""
    infos = task.each(topics_of(task.blue, namespace), lambda topic: stored(task.blue, topic))
    return any(info is not None and info.migrated for info in infos)
