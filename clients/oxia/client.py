"""Single records of Oxia, with compare-and-set."""

from __future__ import annotations

from clients.closeable import Closeable
from clients.errors import StoreProtocolError, VersionConflict
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.connection import OxiaConnection
from clients.oxia.reader import record_of
from clients.store import Record
from models.store_url import StoreUrl


class OxiaClient(Closeable):
    """Reads, writes and deletes records one by one; may serve several threads."""

    def __init__(self, url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> None:
        """Create a client that connects with the first call.

        Args:
            url: the store.
            access: credentials and TLS settings.
            timeout: seconds that a call may take.
        """
        self.url = url
        self.access = access
        self._connection = OxiaConnection(url, access=access, timeout=timeout)

    def get(self, path: bytes) -> Record | None:
        """Return the record, or None.

        Raises:
            StoreError: see clients.oxia.connection.
        """
        dated = self.get_dated(path)
        return dated[0] if dated else None

    def get_dated(self, path: bytes) -> tuple[Record, int] | None:
        """Return the record and the time of its last write, in milliseconds since 1970 by the server's clock; or None.

        Raises:
            StoreError: see clients.oxia.connection.
        """
        shard = self._connection.shard_of(path)
        request = pb.ReadRequest(shard=shard, gets=[pb.GetRequest(key=path, include_value=True)])
        for message in self._connection.stream(shard, "Read", request, pb.ReadResponse):
            for get in message.gets:
                if get.status != pb.OK:
                    return None
                return record_of(path, get), get.version.modified_timestamp
        raise StoreProtocolError(f"{self.url} ended its answer to a get without a record")

    def put(self, path: bytes, value: bytes, expected: int | None) -> int:
        """Write a persistent record; returns its new version id, which the server chooses.

        Args:
            path: its key.
            value: its data.
            expected: the version id that it must have; -1: it must not exist; None: whatever it has.

        Raises:
            VersionConflict: the version id is another one.
            StoreError: see clients.oxia.connection.
        """
        put = pb.PutRequest(key=path, value=value, expected_version_id=expected)
        for answer in self._write(path, pb.WriteRequest(puts=[put])).puts:
            self._check("put", path, answer.status, expected)
            return answer.version.version_id
        raise StoreProtocolError(f"{self.url} answered a put without a status")

    def delete(self, path: bytes, expected: int | None) -> None:
        """Delete a record; without `expected` one that is absent counts as deleted.

        Args:
            path: its key.
            expected: the version id that it must have, or None.

        Raises:
            VersionConflict: the version id is another one, or the record does not exist.
            StoreError: see clients.oxia.connection.
        """
        delete = pb.DeleteRequest(key=path, expected_version_id=expected)
        for answer in self._write(path, pb.WriteRequest(deletes=[delete])).deletes:
            if answer.status != pb.KEY_NOT_FOUND:
                self._check("delete", path, answer.status, expected)
            return
        raise StoreProtocolError(f"{self.url} answered a delete without a status")

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._connection.close()

    def _write(self, path: bytes, request: pb.WriteRequest) -> pb.WriteResponse:
        request.shard = self._connection.shard_of(path)
        return self._connection.unary(request.shard, "Write", request, pb.WriteResponse)

    def _check(self, verb: str, path: bytes, status: pb.Status, expected: int | None) -> None:
        name = path.decode(errors="backslashreplace")
        if status == pb.UNEXPECTED_VERSION_ID:
            text = f"{name} in {self.url} does not have version {expected}; another client changed it"
            raise VersionConflict(text, server=str(self.url), path=path)
        if status != pb.OK:
            text = f"{self.url} refused to {verb} {name}: {pb.Status.Name(status)}"
            raise StoreProtocolError(text, server=str(self.url), path=path)
