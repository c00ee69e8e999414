"""Deletes many records, each at the version id that was read, until another attempt takes over.

A version id is not a fence: a copied record has that of its source, and so the same one when it is copied again. The
server checks only one more thing, that the session of an ephemeral put exists. So a record is made an ephemeral of a
session of ours, and the end of the session deletes it. An attempt that takes over a claim ends the
sessions of earlier attempts; the server then refuses what these still send.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

from clients.closeable import Closeable
from clients.errors import StoreContention, StoreNotFound, StoreProtocolError
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.connection import OxiaConnection
from clients.store import Guard, Seen
from models.store_url import StoreUrl

_IDENTITY = "pulsar-migrate-remover"
# A batch takes far less; a remover that dies leaves records that vanish after it.
_SESSION_MS = 30_000
_AT_ONCE = 2_000
_SESSIONS = b"__oxia/session/"


class OxiaRemover(Closeable):
    """Deletes records in bulk (`clients.store.StoreRemover`).

    Args:
        url: the store.
        guard: what must hold while it deletes.
        access: credentials and TLS settings.
        timeout: seconds that a call may take.
    """

    def __init__(self, url: StoreUrl, guard: Guard, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> None:
        self.url = url
        self._guard = guard
        self._connection = OxiaConnection(url, access=access, timeout=timeout)

    def remove(self, seen: Sequence[Seen]) -> int:
        """Delete these records; what has another version id by now stays.

        Raises:
            StoreConflict: the guard refuses.
            StoreError: see clients.oxia.connection; which ones were deleted is not known.
        """
        by_shard: defaultdict[int, list[Seen]] = defaultdict(list)
        for record in seen:
            by_shard[self._connection.shard_of(record.path)].append(record)
        return sum(
            self._remove(shard, some[begin : begin + _AT_ONCE])
            for shard, some in by_shard.items()
            for begin in range(0, len(some), _AT_ONCE)
        )

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._connection.close()

    def _remove(self, shard: int, seen: list[Seen]) -> int:
        connection = self._connection
        create = pb.CreateSessionRequest(shard=shard, session_timeout_ms=_SESSION_MS, client_identity=_IDENTITY)
        session = connection.unary(shard, "CreateSession", create, pb.CreateSessionResponse).session_id
        try:
            # After the creation: an attempt that takes the claim over from now on finds the session, and ends it.
            self._guard()
            puts = [pb.PutRequest(key=path, session_id=session, expected_version_id=version) for path, version in seen]
            answers = connection.unary(shard, "Write", pb.WriteRequest(shard=shard, puts=puts), pb.WriteResponse).puts
            if any(answer.status == pb.SESSION_DOES_NOT_EXIST for answer in answers):
                self._guard()
                raise StoreContention(f"a session at {self.url} ended while records were deleted by it; try again")
        finally:
            _end(connection, shard, session)
        return sum(answer.status == pb.OK for answer in answers)


def end_removers(url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> None:
    """End the session of every remover; what its owner sends from now on, or has on its way, is refused.

    Raises:
        StoreError: see clients.oxia.connection.
    """
    with OxiaConnection(url, access=access, timeout=timeout) as connection:
        for shard in connection.shards:
            for session in _sessions(connection, shard.id):
                _end(connection, shard.id, session)


def _sessions(connection: OxiaConnection, shard: int) -> Iterator[int]:
    """Yield the sessions of removers at a shard."""
    request = pb.ListRequest(
        shard=shard, start_inclusive=_SESSIONS, end_exclusive=_SESSIONS + b"/", include_internal_keys=True
    )
    listed = connection.stream(shard, "List", request, pb.ListResponse)
    keys = [key for message in listed for key in message.keys]
    if not keys:
        return
    read = pb.ReadRequest(shard=shard, gets=[pb.GetRequest(key=key, include_value=True) for key in keys])
    answers = [get for message in connection.stream(shard, "Read", read, pb.ReadResponse) for get in message.gets]
    if len(answers) != len(keys):
        raise StoreProtocolError(f"{connection.url} answered {len(answers)} of {len(keys)} gets on shard {shard}")
    for key, answer in zip(keys, answers, strict=True):
        if answer.status == pb.OK and pb.SessionMetadata.FromString(answer.value).identity == _IDENTITY:
            yield int(key.removeprefix(_SESSIONS), 16)


def _end(connection: OxiaConnection, shard: int, session: int) -> None:
    """End a session, and with it delete its records; one that has ended is left."""
    request = pb.CloseSessionRequest(shard=shard, session_id=session)
    with contextlib.suppress(StoreNotFound):
        connection.unary(shard, "CloseSession", request, pb.CloseSessionResponse)
