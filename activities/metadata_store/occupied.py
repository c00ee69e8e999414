"""Checks whether a target is free of services and of other records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from activities.pulsar.ledger_ids import next_ledger_id
from activities.pulsar.registrations import becomes_true, registered
from clients.store import COORDINATOR, Record, StoreReader
from clients.stores import Access
from models.lifecycle.failures import Blocker
from models.store_url import StoreUrl


def used_by_others(reader: StoreReader, of_the_source: Callable[[], Collection[str]]) -> Blocker | None:
    """Return a blocker for services that are registered in a target, and not in the source; None without any.

    Participants of an earlier attempt may still have ephemerals there: they are services of the source.

    Args:
        reader: of the target.
        of_the_source: returns the names of the services that are registered in the source now.

    Raises:
        StoreError: a store cannot be read.
    """
    in_source: set[str] = set()

    def foreign() -> list[str]:
        in_source.update(of_the_source())
        return sorted({service.name for service in registered(reader)} - in_source)

    if not foreign() or becomes_true(lambda: not foreign()):
        return None
    cause = f"services that are not registered in the source use {reader.url}: {', '.join(foreign())}"
    return Blocker(
        code="TARGET_IN_USE",
        cause=cause,
        cure="choose another target, or stop them, and wait until their sessions have expired",
    )


def foreign_record(reader: StoreReader) -> str:
    """Return a record of a target that this migration must not overwrite; empty without one.

    Ephemerals, and znodes without data that only have children, do not count.

    Raises:
        StoreError: the target cannot be read.
    """
    return next(_foreign_records(reader), b"").decode(errors="backslashreplace")


def not_empty(example: str) -> Blocker:
    """Return the blocker for a target with other records."""
    return Blocker(
        code="TARGET_NOT_EMPTY",
        cause=f"the target has other records, for example {example}",
        cure='choose an empty target, or set "replace_target": true, and they are lost',
    )


def is_bookkeepers(reader: StoreReader) -> bool:
    """Return whether a store holds the metadata of ledgers, and none of a Pulsar cluster."""
    return bool(reader.children(b"/ledgers")) and not reader.children(b"/admin")


def irreplaceable(source: StoreReader, target: StoreReader, access: Access) -> Blocker | None:
    """Return a blocker for a target with a part of a cluster that the source does not have; None otherwise.

    In a layout with two stores that is the other one: `replace_target` would lose all ledgers, or all topics.

    Raises:
        StoreError: a store cannot be read.
    """
    own = "choose a target of its own for each store"
    if is_bookkeepers(source) and target.children(b"/admin"):
        return Blocker(
            code="TARGET_HAS_CLUSTER",
            cause=f"{target.url} holds a Pulsar cluster, and {source.url} only ledgers; replace_target would lose the "
            "cluster",
            cure=f"{own}; if this cluster is of no use, delete /admin in the target",
        )
    if cause := ledgers_only_in(target.url, source.url, access):
        return Blocker(
            code="TARGET_HAS_LEDGERS",
            cause=f"{cause}; replace_target would lose them",
            cure=f"{own}; if these ledgers are of no use, delete /ledgers in the target",
        )
    return None


def ledgers_only_in(store: StoreUrl, other: StoreUrl, access: Access) -> str:
    """Return a text if a store has ledgers that another one cannot have; else an empty text.

    Raises:
        StoreError: a store cannot be read.
    """
    here, there = (next_ledger_id(url, access) or 0 for url in (store, other))
    # A copy to Oxia skips one id, so one of two equal stores can be ahead by one.
    if here <= there + 1:
        return ""
    return f"{store} has given {here:,} ids to ledgers, and {other} only {there:,}: it has ledgers of its own"


def _foreign_records(reader: StoreReader) -> Iterator[bytes]:
    for partition in reader.partitions(1):
        for batch in reader.scan(partition):
            for record in batch:
                # A znode without data may exist only as a parent; nothing is lost with it.
                carrier = reader.url.scheme == "zk" and isinstance(record, Record) and not record.value
                ours = record.path.startswith(COORDINATOR)
                if not ours and not carrier and not (isinstance(record, Record) and record.owner):
                    yield record.path
