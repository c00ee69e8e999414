"""The right of one session to write: a znode of its own, which each of its multis checks.

A run that takes a claim over revokes the permits that others got under it; what these still send, or have sent, is
then refused by the server. The version of the claim's own znode would be no such fence: a claim that is released and
taken again begins at version 0. A permit's name holds the id of its session, which comes once. It is not an ephemeral:
the node above it may be replaced with all that is beneath.
"""

from __future__ import annotations

import contextlib

from clients.errors import StoreConflict, StoreContention, StoreError
from clients.store import COORDINATOR, Guard
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection
from clients.zookeeper.multi import change_each
from clients.zookeeper.ops import ancestors
from clients.zookeeper.sessions import unsigned

_PREFIX = COORDINATOR + b"/pulsar-migrate-writer-"


class Permit:
    """The permit of a writer, whatever its connection is at the time.

    Args:
        guard: asked before each permit counts; None for a writer that needs none.
    """

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self._path = b""
        self._check: list[bytes] = []

    def grant(self, connection: Connection, chroot: bytes) -> None:
        """Get a permit in the store beneath a chroot for a session that was opened just now.

        Raises:
            StoreConflict: the guard refuses.
        """
        if self._guard is None:
            return
        path = b"%s%s%016x" % (chroot, _PREFIX, unsigned(connection.session_id))
        try:
            connection.call(wire.CREATE, path, wire.created(path, connection.own_acl))
        except StoreConflict:
            # The last claim of a store takes its parents with it, and a guard may ask a claim in another store. The
            # guard comes first: a late attempt leaves nothing where it must not write.
            self._guard()
            for parent in (*reversed([*ancestors(COORDINATOR)]), COORDINATOR):
                _create(connection, chroot + parent, wire.OPEN_ACL)
            _create(connection, path, connection.own_acl)
        # After the creation: a run that takes the claim over from now on finds the permit, and revokes it.
        self._guard()
        self._path, self._check = path, [wire.op_check(path)]

    def revoke(self, connection: Connection) -> None:
        """Remove the permit before its session ends; one that stays is removed by `revoke_permits`."""
        if self._path and connection.usable:
            with contextlib.suppress(StoreError):
                connection.call(wire.DELETE, self._path, wire.deleted(self._path))
        self._path, self._check = b"", []

    @property
    def parts(self) -> list[bytes]:
        """Operations that must come first in each multi."""
        return self._check

    def read_failure(self, frame: bytes) -> tuple[int, int]:
        """Return `wire.read_multi_failure` without the permit's own part.

        Raises:
            StoreConflict: the permit was revoked, as the guard says.
            StoreContention: it is gone for another reason.
        """
        index, error = wire.read_multi_failure(frame)
        if not error or not self._check:
            return index, error
        if index == 0 and self._guard is not None:
            self._guard()
            raise StoreContention("the permit of this writer was revoked although no other run took over; try again")
        return index - 1, error


def _create(connection: Connection, path: bytes, acl: bytes) -> None:
    with contextlib.suppress(StoreConflict):
        connection.call(wire.CREATE, path, wire.created(path, acl))


def revoke_permits(connection: Connection) -> None:
    """Take every permit back; what its writer sends from now on, or has on its way, is refused.

    Raises:
        StoreError: the server refuses or fails.
    """
    parent = connection.absolute(COORDINATOR)
    try:
        answer = connection.call(wire.GET_CHILDREN, parent, wire.watched_path(parent))
    except StoreConflict:  # no such node, and so no permit
        return
    paths = [COORDINATOR + b"/" + name for name in wire.read_names(answer.frame, wire.BODY)[0]]
    permits = [wire.op_delete(connection.absolute(path)) for path in paths if path.startswith(_PREFIX)]
    change_each(connection, permits)
