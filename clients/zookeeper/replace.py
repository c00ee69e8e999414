"""Replaces a node in the target whose version is too high, and keeps what is beneath it."""

from __future__ import annotations

from collections.abc import Callable

from clients.errors import RecordNotWritable, StoreDenied
from clients.store import Record, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.batch import RACES, ROUNDS
from clients.zookeeper.connection import Connection, error_for
from clients.zookeeper.ops import Ops, create_op, delete_op, requests, write_ops
from clients.zookeeper.permit import Permit
from clients.zookeeper.scan import TreeScan


def replace(
    connection: Connection,
    connect: Callable[[], Connection],
    permit: Permit,
    record: Record,
    *,
    keep_version: bool,
    max_raise: int,
) -> tuple[Connection, list[Record]]:
    """Delete a node with all that is beneath it, and create it anew with all that was beneath it.

    In one multi, and so all or nothing, as long as it fits into one.

    Args:
        connection: idle.
        connect: opens another one.
        permit: of the connection.
        record: what the node shall be.
        keep_version: whether the versions of what is created anew matter.
        max_raise: sets that a version may take.

    Returns:
        The connection to go on with, and the records created anew, whose counts have begun at nothing.

    Raises:
        RecordNotWritable: an ephemeral node stands beneath a node to be replaced.
        StoreError: the server refuses or fails, or others keep changing the nodes.
    """
    kept: dict[bytes, Record | Unreadable] = {}
    error = wire.OK
    for _ in range(ROUNDS):
        scan = TreeScan(connection, connect, (), (record.path,))
        found = {one.path: one for batch in scan.batches() for one in batch}
        connection = scan.connection
        # What an earlier round saw counts too: if that round got halfway, the nodes are no longer there to be read.
        kept = found | kept
        ops = [delete_op(path) for path in sorted(found, reverse=True)]
        anew = _anew(kept, record)
        ops += [
            write_ops(one, None, keep_version=keep_version, max_raise=max_raise) or create_op(one.path) for one in anew
        ]
        error = _send(connection, permit, ops)
        if not error:
            return connection, anew
        if error not in RACES:
            break
    doing = f"replacing {record.path.decode(errors='replace')} and what is beneath it"
    raise error_for(error, doing, server=connection.host, path=record.path)


def _anew(kept: dict[bytes, Record | Unreadable], record: Record) -> list[Record]:
    """What is to stand afterwards, parents first."""
    anew: list[Record] = []
    for _, one in sorted((kept | {record.path: record}).items()):
        if isinstance(one, Unreadable):
            raise StoreDenied(f"cannot replace what cannot be read: {one.reason}", path=one.path)
        if one.owner:
            raise RecordNotWritable(
                f"{one.path.decode(errors='replace')} is an ephemeral node of session {one.owner:#x} in the target, "
                "and a node above it has to be replaced; end that session first",
                path=one.path,
            )
        anew.append(one)
    return anew


def _send(connection: Connection, permit: Permit, ops: list[Ops]) -> int:
    """Send one multi after the other; returns the first error, 0 if there was none."""
    for body in requests(ops, permit.parts):
        connection.submit(wire.MULTI, body)
        answer = connection.receive()
        error = answer.error or permit.read_failure(answer.frame)[1]
        if error:
            return error
    return wire.OK
