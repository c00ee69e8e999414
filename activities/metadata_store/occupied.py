"""Whether a target is free: what services and records of others stand there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from activities.lifecycle.registrations import becomes_true, registered
from clients.store import COORDINATOR, Record, StoreReader
from models.lifecycle.failures import Blocker


def used_by_others(reader: StoreReader, of_the_source: Callable[[], Collection[str]]) -> Blocker | None:
    """Return a blocker for services that are registered in a target, and not in the source; None without any.

    Participants of an earlier attempt may still hold ephemerals there: they are services of the source.

    Args:
        reader: reads the target.
        of_the_source: returns the names of the services that are registered in the source now.

    Raises:
        StoreError: a store cannot be read.
    """
    known: set[str] = set()

    def foreign() -> list[str]:
        known.update(of_the_source())
        return sorted({service.name for service in registered(reader)} - known)

    if not foreign() or becomes_true(lambda: not foreign()):
        return None
    cause = f"services that are not registered in the source use {reader.url}: {', '.join(foreign())}"
    return Blocker(
        code="TARGET_IN_USE",
        cause=cause,
        cure="choose another target, or stop them, and wait until their sessions have expired",
    )


def record_of_others(reader: StoreReader) -> str:
    """A record of a target that no migration of ours may overwrite; empty where there is none.

    It is persistent, and more than a znode that carries children.

    Raises:
        StoreError: the target cannot be read.
    """
    return next(_strangers(reader), b"").decode(errors="backslashreplace")


def not_empty(found: str) -> Blocker:
    """The target holds a record of others."""
    return Blocker(
        code="TARGET_NOT_EMPTY",
        cause=f"the target holds records of others, for example {found}",
        cure='choose an empty target, or set "replace_target": true, and they are lost',
    )


def _strangers(reader: StoreReader) -> Iterator[bytes]:
    for part in reader.partitions(1):
        for batch in reader.scan(part):
            for record in batch:
                # A znode without data may stand only because something beneath it needs it; nothing is lost with it.
                carrier = reader.url.scheme == "zk" and isinstance(record, Record) and not record.value
                ours = record.path.startswith(COORDINATOR)
                if not ours and not carrier and not (isinstance(record, Record) and record.owner):
                    yield record.path
