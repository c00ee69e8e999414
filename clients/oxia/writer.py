"""Bulk writes to Oxia that keep version ids and modification counts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import grpc

from clients.closeable import Closeable
from clients.errors import RecordNotWritable, StoreConflict, StoreError, StoreProtocolError, StoreUnreachable
from clients.oxia import oxia_pb2 as pb
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.connection import Call, OxiaConnection
from clients.store import ABSENT, Guard, Record
from models.store_url import StoreUrl

# Bytes of a request in addition to key and value: tags, lengths, versions.
_OVERHEAD = 32
# Seconds for which an answer of the guard is valid: each is a read of a store that services use.
_GUARD_SECONDS = 1.0
STREAM_SECONDS = 15.0
"""How long the server takes writes of a guarded stream, from the time at which it opened the stream."""

# Before that a new stream is opened; requests in flight then have the rest of the time to be acknowledged.
_RENEWED_AFTER = 5.0


class OxiaWriter(Closeable):
    """Writes records in batches, one stream for each shard; implements clients.store.StoreWriter.

    A record keeps its version as Oxia's version id and its count as Oxia's modification count; times are the target's
    own. After an error every later call raises it again: what was not flushed must be repeated with a new writer.
    Puts and deletes of one key take effect in the order of the calls. One writer serves one thread.
    """

    def __init__(
        self,
        url: StoreUrl,
        *,
        access: OxiaAccess = ANONYMOUS,
        timeout: float = 10,
        window: int = 32,
        batch_bytes: int = 128 * 1024,
        guard: Guard | None = None,
    ) -> None:
        """Create a writer that connects with the first batch.

        Args:
            url: the store.
            access: credentials and TLS settings.
            timeout: seconds without an acknowledgement after which the server counts as unreachable.
            window: how many batches may be in flight for each shard.
            batch_bytes: about how large a batch grows before it is sent.
            guard: asked at the last moment before a batch is sent, unless it was within the last second; may be called
                from another thread. Once it refuses, no earlier request is applied more than `STREAM_SECONDS` later,
                however long it was in flight.
        """
        self.url = url
        self._connection = OxiaConnection(url, access=access, timeout=timeout)
        self._window = window
        self._batch_bytes = batch_bytes
        self._guard = guard
        self._shards: dict[int, _ShardWriter] = {}

    def put(self, record: Record, *, over: int | None) -> None:
        """Write a persistent record over nothing (`ABSENT`: an existing one stays as it is), a version, or any.

        Raises:
            RecordNotWritable: the record is ephemeral, its path is not UTF-8, or its version is -1.
            StoreError: an earlier batch failed.
        """
        path, value, version, count, owner, _, _, _ = record
        if owner or version == ABSENT or not (path.isascii() or _is_utf8(path)):
            raise _not_writable(record)
        shard = self._shard(path)
        put = shard.new_put(_OVERHEAD + len(path) + len(value))
        put.key = path
        put.value = value
        # Without it the server would choose a new version, and compare-and-sets of brokers that hold the old one would
        # fail.
        put.override_version_id = version
        put.override_modifications_count = count
        if over is not None:
            put.expected_version_id = over

    def delete(self, path: bytes, *, expected: int | None = None) -> None:
        """Delete one record, of one version if that is given; `flush` does not count an absent one."""
        self._shard(path).delete(path, expected)

    def flush(self) -> int:
        """Wait for every acknowledgement; returns how many records were written or deleted since the last flush.

        Records that existed already (put over `ABSENT`) and deletes of absent ones are not counted.

        Raises:
            StoreConflict: a record had another version than the expected one.
            StoreError: a write failed; which ones were done is not known, and all can be repeated.
        """
        for shard in self._shards.values():
            shard.send()
        return sum(shard.drain() for shard in self._shards.values())

    def close(self) -> None:
        """Free the connections without a flush; harmless when done twice."""
        for shard in self._shards.values():
            shard.close()
        self._connection.close()

    def _shard(self, path: bytes) -> _ShardWriter:
        number = self._connection.shard_of(path)
        writer = self._shards.get(number)
        if writer is None:
            writer = _ShardWriter(self._connection, number, self._window, self._batch_bytes, self._guard)
            self._shards[number] = writer
        return writer


class _Stream:
    """One stream of writes to a shard.

    Args:
        lifetime: seconds after which the server ends it; None for one that lasts.
    """

    call: Call[pb.WriteResponse]

    def __init__(self, lifetime: float | None) -> None:
        self.lifetime = lifetime
        self.outbox: SimpleQueue[pb.WriteRequest | None] = SimpleQueue()
        self.opened = threading.Event()
        self._since = time.monotonic()

    def is_old(self) -> bool:
        """Return whether another one should be opened before more is written."""
        return self.lifetime is not None and time.monotonic() - self._since > _RENEWED_AFTER

    def close(self) -> None:
        """End the stream; requests in flight may be applied, or not."""
        self.outbox.put(None)
        self.call.cancel()


class _ShardWriter:
    """One stream of writes; the caller's thread fills and sends, a thread of its own takes the acknowledgements."""

    def __init__(
        self, connection: OxiaConnection, shard: int, window: int, batch_bytes: int, guard: Guard | None
    ) -> None:
        self._connection = connection
        self._number = shard
        self._address = connection.leader(shard)
        self._window = window
        self._batch_bytes = batch_bytes
        self._guard = guard
        self._guarded_until = 0.0
        self._batch = pb.WriteRequest(shard=shard)
        self._size = 0
        self._in_flight: deque[pb.WriteRequest] = deque()
        self._changed = threading.Condition()
        self._done = 0
        self._error: StoreError | None = None
        with self._changed:
            self._stream = self._open()

    def new_put(self, size: int) -> pb.PutRequest:
        """Return an empty put at the end of the batch, for the caller to fill before the next call."""
        # The server applies all puts of a request before its deletes.
        if self._size >= self._batch_bytes or self._batch.deletes:
            self.send()
        self._size += size
        return self._batch.puts.add()

    def delete(self, path: bytes, expected: int | None) -> None:
        if self._size >= self._batch_bytes:
            self.send()
        self._size += _OVERHEAD + len(path)
        self._batch.deletes.add(key=path, expected_version_id=expected)

    def send(self) -> None:
        """Send the batch, if it is not empty, as soon as the window has room."""
        if not self._size:
            return
        with self._changed:
            if self._stream.is_old():  # mutant: metadata-store/a-stream-is-used-to-its-end
                self._await(lambda: not self._in_flight)
                old, self._stream = self._stream, self._open()
                old.close()
            self._await(lambda: len(self._in_flight) < self._window)
            self._in_flight.append(self._batch)
        self._stream.outbox.put(self._batch)
        self._batch = pb.WriteRequest(shard=self._number)
        self._size = 0

    def drain(self) -> int:
        """Wait until nothing is in flight; returns how many records were written or deleted since the last time."""
        with self._changed:
            self._await(lambda: not self._in_flight)
            done, self._done = self._done, 0
        return done

    def close(self) -> None:
        self._stream.close()

    def _open(self) -> _Stream:
        """Open a stream; the lock is held."""
        # Without a guard no other attempt may write there.
        stream = _Stream(STREAM_SECONDS if self._guard else None)
        requests = self._requests(stream)
        stream.call = self._connection.write_stream(self._number, requests, lifetime=stream.lifetime)
        threading.Thread(target=self._receive, args=(stream,), name=f"oxia-acks-{self._number}", daemon=True).start()
        return stream

    def _await(self, reached: Callable[[], bool]) -> None:
        """Wait for a state; every acknowledgement starts the clock again. The lock is held."""
        while self._error is None and not reached():
            if not self._changed.wait(self._connection.timeout):
                self._error = StoreUnreachable(
                    f"Oxia at {self._address} acknowledged no write to shard {self._number} "
                    f"for {self._connection.timeout:g} s"
                )
        if self._error is not None:
            raise self._error

    def _requests(self, stream: _Stream) -> Iterator[pb.WriteRequest]:
        if stream.lifetime is not None:
            # The answer to this one, which writes nothing, shows that the server has opened the stream, and counts.
            # Asked before that, the guard would not cover writes that wait for the stream to open.
            yield pb.WriteRequest(shard=self._number)
            stream.opened.wait()
        # Ends with the stream itself: one that is half-closed while acknowledgements are due loses those (seen).
        while (request := stream.outbox.get()) is not None:
            # A process that was frozen continues with batches that were allowed long ago.
            if self._guard is not None and time.monotonic() > self._guarded_until:
                # Measured from the question: a freeze between answer and use must not make the answer appear fresh.
                asked = time.monotonic()
                try:
                    self._guard()
                except StoreError as error:
                    self._fail(error)
                    stream.close()
                    return
                self._guarded_until = asked + _GUARD_SECONDS  # mutant: shared/guard-of-oxia-is-fresh-from-its-answer-on
            yield request

    def _receive(self, stream: _Stream) -> None:
        lost: StoreError = StoreUnreachable(f"Oxia at {self._address} closed the stream of writes")
        try:
            for response in stream.call:
                if not stream.opened.is_set():
                    stream.opened.set()
                    if stream.lifetime is not None:
                        continue
                done = self._check(self._in_flight[0], response)
                with self._changed:
                    self._in_flight.popleft()
                    self._done += done
                    self._changed.notify_all()
        except grpc.RpcError as error:
            lost = self._connection.error(error, self._address)
        except StoreError as error:
            lost = error
        stream.opened.set()
        stream.outbox.put(None)
        with self._changed:
            # A stream that ended with nothing in flight is opened again.
            if stream is not self._stream or (stream.is_old() and not self._in_flight):
                return
        self._fail(self._refusal() or lost)

    def _refusal(self) -> StoreError | None:
        """Return why the guard refuses now; the stream of a process that was frozen has ended."""
        try:
            if self._guard is not None:
                self._guard()
        except StoreError as error:
            return error
        return None

    def _fail(self, error: StoreError) -> None:
        """Make every later call raise this error, or an earlier one if there was one."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _check(self, request: pb.WriteRequest, response: pb.WriteResponse) -> int:
        """Return how many writes of the request were done; raises for the first that was refused."""
        puts, deletes = request.puts, request.deletes
        if len(puts) != len(response.puts) or len(deletes) != len(response.deletes):
            raise StoreProtocolError(
                f"Oxia at {self._address} answered {len(response.puts)} puts and {len(response.deletes)} deletes "
                f"to a request of {len(puts)} and {len(deletes)}"
            )
        missing = 0
        for index, answer in enumerate(response.puts):
            if answer.status:
                put = puts[index]
                # Refused over ABSENT because the record exists: that is the requested result, not an error.
                if answer.status != pb.UNEXPECTED_VERSION_ID or put.expected_version_id != ABSENT:
                    raise self._refused("put", put.key, answer.status)
                missing += 1
        for index, answer in enumerate(response.deletes):
            if answer.status:
                if answer.status != pb.KEY_NOT_FOUND:
                    raise self._refused("delete", deletes[index].key, answer.status)
                missing += 1
        return len(puts) + len(deletes) - missing

    def _refused(self, verb: str, key: bytes, status: pb.Status) -> StoreError:
        kind = StoreConflict if status == pb.UNEXPECTED_VERSION_ID else StoreProtocolError
        text = f"Oxia at {self._address} refused to {verb} {key.decode(errors='replace')}: {pb.Status.Name(status)}"
        return kind(text, server=self._address, path=key)


def _is_utf8(path: bytes) -> bool:
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True


def _not_writable(record: Record) -> RecordNotWritable:
    path = record.path.decode(errors="backslashreplace")
    if record.owner:
        return RecordNotWritable(f"{path} is ephemeral (session {record.owner:#x}); its owner must create it again")
    if record.version == ABSENT:
        return RecordNotWritable(f"{path} has version -1, which Oxia reads as 'must not exist'; set its data once")
    return RecordNotWritable(f"{path} is not UTF-8, so Oxia's clients could not read it; delete or rename it")
