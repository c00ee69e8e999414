"""Records that brokers keep as JSON in their metadata store, changed where they are kept.

Brokers have endpoints for all of them, whose requests nothing can fence: one that a worker was about to send when it
froze is carried out when the worker thaws, however much later. Here a record changes by compare-and-set, and what was
read before the freeze does not fit any more after the next holder has written. Brokers learn of it from their store,
as they are of what another broker changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from clients.cas.store import CasReader, CasStore, Node, retry
from clients.errors import StoreNotFound
from clients.json_text import read_object

Record = dict[str, Any]


def read_record(store: CasReader, path: str) -> Record | None:
    """Return a record; None if there is none.

    Raises:
        StoreProtocolError: it has another form.
    """
    node = store.get(path)
    return None if node is None else parsed(node, path)


def change_record(
    store: CasStore,
    path: str,
    fence: Callable[[], object],
    change: Callable[[Record], Record],
    *,
    create: bool = False,
) -> Record:
    """Change a record, and return it; fields that are not known here stay as they are.

    It is written in any case, so that a change whose author read it before fails.

    Args:
        store: the metadata store of the brokers.
        path: of the record.
        fence: raises where the caller may not change it any more; asked between the read and the write.
        change: gets the current record, and returns what it must be; may be called again.
        create: take a missing record for an empty one, and create it.

    Raises:
        StoreNotFound: there is no such record, and it is not to be created.
        StoreContention: others changed it again and again.
        StoreProtocolError: it has another form.
    """

    def once() -> Record:
        node = store.get(path)
        if node is None and not create:
            raise StoreNotFound(f"{store.url} has no {path}", server=str(store.url), path=path.encode())
        wanted = change(parsed(node, path) if node else {})
        fence()  # mutant: blue-green/record-without-fence
        if node is None:
            store.create(path, encoded(wanted))
        else:
            store.set(path, encoded(wanted), node.version)
        return wanted

    return retry(once, path)


def rewrite_record(store: CasStore, path: str, fence: Callable[[], object]) -> Record | None:
    """Write a record as it is, and return it; None if there is none.

    An earlier attempt may have frozen before its change of the record. Where the current one decides by what it reads,
    and perhaps against a change of its own, it calls this first: the frozen change fails from then on.

    Args:
        store: the metadata store of the brokers.
        path: of the record.
        fence: see `change_record`.

    Raises:
        StoreContention: others changed the record again and again.
        StoreProtocolError: it has another form.
    """
    try:
        # mutant: blue-green/decision-before-a-late-change
        return change_record(store, path, fence, lambda record: record)
    except StoreNotFound:
        return None


def parsed(node: Node, path: str) -> Record:
    """Return the record in a node.

    Raises:
        StoreProtocolError: it has another form.
    """
    return read_object(node.value, path, path=path.encode())


def encoded(record: Record) -> bytes:
    """Return a record as brokers write it."""
    return json.dumps(record, separators=(",", ":")).encode()
