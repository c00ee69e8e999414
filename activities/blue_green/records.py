"""What blue's metadata store knows of namespaces: their records, and whose clients are sent to green already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from activities.blue_green.context import BlueGreenTask
from activities.blue_green.flags import sends_to_green
from activities.blue_green.topics import stored, topics_of
from clients.cas.store import CasReader
from clients.pulsar.namespace_flag import read_flag
from models.blue_green.claims import FLIPPED, NamespaceClaim, namespace_record
from models.lifecycle.claim import CLAIM

_RECORDS = f"{CLAIM}-namespaces"


def recorded(store: CasReader) -> list[str]:
    """Namespaces that have a record."""
    return [
        f"{tenant}/{name}" for tenant in store.children(_RECORDS) for name in store.children(f"{_RECORDS}/{tenant}")
    ]


def records(store: CasReader) -> Mapping[str, NamespaceClaim]:
    """All records, by namespace, whoever holds them."""
    found = {namespace: read_record(store, namespace) for namespace in recorded(store)}
    return {namespace: claim for namespace, claim in found.items() if claim}


def read_record(store: CasReader, namespace: str) -> NamespaceClaim | None:
    """The record of a namespace, whoever holds it."""
    node = store.get(namespace_record(namespace))
    return NamespaceClaim.model_validate_json(node.value) if node else None


def sent_away(task: BlueGreenTask, store: CasReader, namespaces: Iterable[str]) -> set[str]:
    """Those namespaces whose clients are sent to green already, by an earlier run, however that has ended.

    They differ from what green has, and green has messages of them; what is left is to bring them to their end. Where
    the flag is off and no topic is terminated, nothing of it has happened, or all was taken back.
    """
    known, to_green = records(store), sends_to_green(task)

    def is_sent_away(name: str) -> bool:
        begun = name in known and known[name].stage in FLIPPED
        return (begun or to_green) if read_flag(store, name) else begun and _is_ended(task, name)

    return {name for name in namespaces if is_sent_away(name)}


def _is_ended(task: BlueGreenTask, namespace: str) -> bool:
    """Whether any topic of a namespace was terminated so that its clients go to green."""
    infos = task.each(topics_of(task.blue, namespace), lambda topic: stored(task.blue, topic))
    return any(info is not None and info.migrated for info in infos)
