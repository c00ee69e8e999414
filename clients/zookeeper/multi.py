"""Changes to many nodes of which each may fail by itself, though many go into one multi and several are in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from clients.errors import StoreProtocolError
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection, error_for
from clients.zookeeper.ops import REQUEST_BYTES

#: Requests in flight, and changes in one of them.
_WINDOW, _CHANGES = 8, 500
#: What a change fails with because of its own node.
_OWN = (wire.NO_NODE, wire.NODE_EXISTS, wire.BAD_VERSION, wire.NOT_EMPTY)


class _Condition(Protocol):
    """Operations that must succeed for a multi to be applied."""

    @property
    def parts(self) -> list[bytes]: ...

    def read_failure(self, frame: bytes) -> tuple[int, int]: ...


def change_each(connection: Connection, changes: Sequence[bytes], condition: _Condition | None = None) -> list[int]:
    """Apply every change that can be applied.

    A multi is done whole or not at all: where one of its changes cannot be done, the others are sent again without it.
    So this is fast where few fail, and changes that are likely to fail are better left out.

    Args:
        connection: idle, and idle again afterwards.
        changes: parts of a multi (`wire.op_create`, `op_set`, `op_delete`), none of which needs another one.
        condition: see `clients.zookeeper.permit.Permit`.

    Returns:
        For each change 0, or the error of its own node: NO_NODE, NODE_EXISTS, BAD_VERSION or NOT_EMPTY.

    Raises:
        StoreError: the server refuses or fails; which changes were done is not known.
    """
    errors = [wire.OK] * len(changes)
    first, read_failure = (condition.parts, condition.read_failure) if condition else ([], wire.read_multi_failure)
    waiting = deque(_packed(changes))
    flying: deque[list[int]] = deque()
    while waiting or flying:
        while waiting and len(flying) < _WINDOW:
            batch = waiting.popleft()
            flying.append(batch)
            connection.submit(wire.MULTI, wire.multi(first + [changes[number] for number in batch]))
        answer = connection.receive()
        batch = flying.popleft()
        if answer.error:
            raise error_for(answer.error, f"changing {len(batch)} nodes at {connection.host}", server=connection.host)
        index, error = read_failure(answer.frame)
        if not error:
            continue
        if error not in _OWN:
            raise error_for(error, f"changing {len(batch)} nodes at {connection.host}", server=connection.host)
        if index >= len(batch):
            text = f"{connection.host} reports an error of part {index} of {len(batch)}"
            raise StoreProtocolError(text, server=connection.host)
        errors[batch.pop(index)] = error
        if batch:
            waiting.append(batch)
    return errors


def _packed(changes: Sequence[bytes]) -> list[list[int]]:
    """Return numbers of the changes, those of one request together."""
    batches: list[list[int]] = []
    size = REQUEST_BYTES
    for number, change in enumerate(changes):
        if size + len(change) > REQUEST_BYTES or len(batches[-1]) >= _CHANGES:
            batches.append([])
            size = 0
        batches[-1].append(number)
        size += len(change)
    return batches
