"""The ledgers and bookies of a BookKeeper cluster, read from ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Self

from google.protobuf.message import DecodeError

from clients.bookkeeper import layout
from clients.bookkeeper.ledger_metadata_pb2 import BookieServiceInfoFormat
from clients.bookkeeper.ledger_table import LedgerFacts, ledger_facts
from clients.bookkeeper.metadata import LedgerMetadata, decode_metadata, encode_metadata
from clients.closeable import Closeable
from clients.errors import StoreConflict, StoreDenied, StoreError, StoreProtocolError, StoreUnsupported
from clients.store import Partition, Record, Unreadable, name_of, text_of
from clients.stores import Access
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection
from clients.zookeeper.multi import change_each
from clients.zookeeper.ops import ancestors
from clients.zookeeper.permit import Permit
from clients.zookeeper.reader import ZooKeeperReader
from models.store_url import StoreUrl

#: Layouts whose paths are known, by the name of BookKeeper's factory, and whether every id has the long form in them.
_LAYOUTS = {"HierarchicalLedgerManagerFactory": False, "LongHierarchicalLedgerManagerFactory": True}
#: Rounds of creating while others create or delete the same nodes.
_ROUNDS = 20

__all__ = ["Bookie", "LedgerDirectory", "LedgerDirectoryWriter", "LedgerRecord"]
_PROTOCOL = "bookie-rpc"


class LedgerRecord(NamedTuple):
    """A ledger with the version of its metadata.

    Attributes:
        ledger_id: its id.
        metadata: its metadata.
        version: its znode's version.
        mzxid: zxid of its znode's last change; two readings with the same one saw the same metadata.
        czxid: zxid of its znode's creation; two readings with the same one saw the same ledger.
    """

    ledger_id: int
    metadata: LedgerMetadata
    version: int
    mzxid: int
    czxid: int

    @property
    def facts(self) -> LedgerFacts:
        """The few facts that a scan of all ledgers of a cluster keeps of this one."""
        return ledger_facts(self.ledger_id, self.metadata, self.version, self.mzxid, self.czxid)


class LedgerDirectory(Closeable):
    """Reads a cluster's ledgers and bookies, and cannot write. Use it as a context manager, or close it.

    Args:
        url: the servers and the ledgers root.
        access: credentials and timeout.

    Attributes:
        members: ids of the bookies that the ledgers which `facts` has decoded lie on.
        undecodable: ledgers of the last call of `facts` whose metadata cannot be decoded, each with the reason.
    """

    def __init__(self, url: StoreUrl, access: Access) -> None:
        self.url = url
        self.members: set[str] = set()
        self.undecodable: dict[int, str] = {}
        self._access = access.to(url)
        self._reader = ZooKeeperReader(url, access=self._access.zookeeper, timeout=self._access.timeout)
        self._always_long: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._reader.close()

    def scan(self) -> Iterator[list[LedgerRecord]]:
        """Yield all ledgers, in batches and in no order, without those that are deleted during the scan.

        Raises:
            StoreDenied: the ACL of one refuses it.
            StoreError: the store, or the metadata of one, cannot be read; the message names it.
        """
        for batch in self._scan():
            if ledgers := [ledger for record in batch if (ledger := _ledger(record))]:
                yield ledgers

    def facts(
        self, earlier: Mapping[int, LedgerFacts] = MappingProxyType({}), members_of: Container[int] | None = None
    ) -> Iterator[LedgerFacts]:
        """Yield the facts of all ledgers, in no order, without those that are deleted during the scan.

        So are those that cannot be decoded, which may be another program's: see `undecodable`.

        Args:
            earlier: the result of an earlier call; ledgers that have not changed since are not decoded again.
            members_of: the ledgers that count for `members`; None means all.

        Raises:
            StoreDenied: the ACL of one refuses it.
            StoreError: the store cannot be read.
        """
        self.undecodable = {}
        for batch in self._scan():
            for record in batch:
                if facts := self._facts(record, earlier, members_of):
                    yield facts

    def _facts(
        self, record: Record | Unreadable, earlier: Mapping[int, LedgerFacts], members_of: Container[int] | None
    ) -> LedgerFacts | None:
        ledger_id = layout.ledger_id(record.path.decode(errors="replace"))
        if ledger_id is None:
            return None
        readable = _readable(record)
        before = earlier.get(ledger_id)
        # A node that was deleted and created again has another zxid too.
        if before is not None and before.mzxid == readable.changed:
            return before
        try:
            ledger = _decoded(ledger_id, readable)
        except (StoreProtocolError, StoreUnsupported) as cause:
            self.undecodable[ledger_id] = str(cause)
            return None
        if members_of is None or ledger_id in members_of:
            for segment in ledger.metadata.segments:
                self.members.update(segment.ensemble)
        return ledger.facts

    def _scan(self) -> Iterator[list[Record | Unreadable]]:
        self._knows_layout()
        subtrees = layout.ledger_subtrees(text_of(path, path) for path in self._reader.children(b"/"))
        partition = Partition(singles=(), subtrees=_encoded(subtrees), shard=-1, start=b"", end=b"")
        yield from self._reader.scan(partition)

    def highest(self) -> int:
        """Return the highest id of all ledgers, -1 if there is none; reads names only, and few of them.

        Raises:
            StoreError: the store cannot be read.
        """
        self._knows_layout()
        subtrees = layout.ledger_subtrees(text_of(path, path) for path in self._reader.children(b"/"))
        # Long ids have longer names; of the same length, names are in the order of ids.
        ordered = sorted(subtrees, key=lambda path: (len(path), path), reverse=True)
        return next((highest for path in ordered if (highest := self._highest_beneath(path)) >= 0), -1)

    def _highest_beneath(self, path: str) -> int:
        for child in reversed(self._reader.children(path.encode())):
            name = child.decode(errors="replace")
            ledger_id = layout.ledger_id(name)
            # Nodes above ledgers stay when the last one is deleted: an empty one says nothing of those before it.
            ledger_id = self._highest_beneath(name) if ledger_id is None else ledger_id
            if ledger_id >= 0:
                return ledger_id
        return -1

    def read(self, ids: Sequence[int]) -> list[LedgerRecord | None]:
        """Return these ledgers, in their order; None where there is none.

        Raises:
            StoreError: as `scan`.
        """
        return [_ledger(record) if record else None for record in self._reader.read(self._paths(ids))]

    def existing(self, ids: Sequence[int]) -> set[int]:
        """Return which of these ledgers exist, whether or not their metadata can be decoded.

        Raises:
            StoreError: as `scan`.
        """
        return {
            ledger
            for ledger, record in zip(ids, self._reader.read(self._paths(ids)), strict=True)
            if record is not None
        }

    def protected(self, ids: Sequence[int]) -> list[int]:
        """Return which of these ledgers have an ACL that does not give everyone all permissions, or cannot be read.

        Raises:
            StoreError: as `scan`.
        """
        paths = dict(zip(self._paths(ids), ids, strict=True))
        return [paths[path] for path in self._reader.protected([*paths])]

    def bookies(self) -> dict[str, Bookie]:
        """Return the bookies that are up, by their ids."""
        bookies: dict[str, Bookie] = {}
        # Read-only bookies are read last and win: a bookie that changes is in both lists for a moment.
        for parent, writable in ((layout.AVAILABLE, True), (layout.READ_ONLY, False)):
            paths = [path for path in self._reader.children(parent.encode()) if path != layout.READ_ONLY.encode()]
            for record in self._reader.read(paths):
                if record:
                    node = _readable(record)
                    bookie_id = name_of(node.path)
                    bookies[bookie_id] = read_bookie(bookie_id, node.value, writable=writable)
        return bookies

    def cookies(self) -> set[str]:
        """Return ids of the bookies that ever joined, and were not removed."""
        return {name_of(path) for path in self._reader.children(layout.COOKIES.encode())}

    def underreplicated(self) -> Iterator[int]:
        """Yield the ledgers that BookKeeper's auditor has found to lack replicas, in no order.

        Raises:
            StoreError: the store cannot be read.
        """
        nodes = [layout.UNDERREPLICATED.encode()]
        while nodes:
            for child in self._reader.children(nodes.pop()):
                name = child.rpartition(b"/")[2]
                if name.startswith(b"urL") and name[3:].isdigit():
                    yield int(name[3:])
                else:
                    nodes.append(child)
        return None

    def instance_id(self) -> str | None:
        """Return the id that the cluster got when it was initialised, None if it has none."""
        return self._text(layout.INSTANCE_ID)

    def layout(self) -> str | None:
        """Return the ledger manager's factory, e.g. `org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory`.

        None if the root does not say: Pulsar's metadata driver has only the hierarchical layout, and writes none.
        """
        text = self._text(layout.LAYOUT)
        return text.partition("\n")[2].rpartition(":")[0] if text else None

    def _text(self, path: str) -> str | None:
        (record,) = self._reader.read([path.encode()])
        return text_of(_readable(record).value, path.encode()) if record else None

    def _knows_layout(self) -> bool:
        """Return whether every id has the long form."""
        if self._always_long is None:
            name = self.layout()
            always_long = _LAYOUTS.get(name.rpartition(".")[2]) if name else False
            if always_long is None:
                raise StoreUnsupported(
                    f"the ledgers at {self.url} have the layout {name}, and the hierarchical ones are read; "
                    "move them with BookKeeper's own tools first"
                )
            self._always_long = always_long
        return self._always_long

    def _paths(self, ids: Iterable[int]) -> list[bytes]:
        always_long = self._knows_layout()
        return [layout.ledger_path(id_, always_long=always_long).encode() for id_ in ids]


class LedgerDirectoryWriter(LedgerDirectory):
    """Reads and writes a cluster's ledgers; the changes beneath one node are applied completely or not at all.

    Changes of a call go out many at a time. Where one fails, others of the same call may have been done; every call
    can be repeated. An id that was deleted here is never created here again: BookKeeper 4.18 refuses it for days, and
    older bookies drop what is written under it at their next garbage collection.

    Args:
        url: the servers and the ledgers root.
        access: credentials and timeout.
        claims: the store whose claim the fence of `delete` asks for. If it is on the same servers, these refuse
            requests in flight once `clients.stores.revoke_permits` was called there.
    """

    def __init__(self, url: StoreUrl, access: Access, claims: StoreUrl | None = None) -> None:
        super().__init__(url, access)
        shared = claims is not None and claims.scheme == url.scheme and set(claims.hosts) & set(url.hosts)
        self._permits_root = claims.root.encode() if claims and shared else None
        self._link: Connection | None = None
        self._deleted: set[int] = set()

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        super().close()
        if self._link:
            self._link.close()
            self._link = None

    def create(self, items: Sequence[tuple[int, LedgerMetadata]]) -> list[bool]:
        """Create ledgers' metadata, and the nodes above.

        Returns:
            For each ledger whether it was created; False if it exists already, with any content.

        Raises:
            StoreUnsupported: there is no ledgers root.
            StoreConflict: this writer has deleted one of them; or others keep creating and deleting the same nodes.
            StoreError: the store cannot be read or written.
        """
        # mutant: bookie-cluster/a-deleted-id-is-created-again
        if again := sorted(self._deleted.intersection(ledger for ledger, _ in items)):
            raise StoreConflict(
                f"ledger {again[0]} was deleted by this writer, so that bookies may refuse its entries; copy it in "
                "another attempt",
                ledger_id=again[0],
            )
        paths = self._paths(ledger for ledger, _ in items)
        created = [False] * len(items)
        missing = list(range(len(items)))
        for _ in range(_ROUNDS):
            existing = self._reader.read([paths[number] for number in missing])
            missing = [number for number, record in zip(missing, existing, strict=True) if not record]
            if not missing:
                return created
            self._create_parents([paths[number] for number in missing])
            errors = self._change(
                [self._op_create(paths[number], encode_metadata(items[number][1])) for number in missing]
            )
            for number, error in zip(missing, errors, strict=True):
                created[number] = not error
            # BookKeeper deletes empty parents together with the last ledger beneath them.
            missing = [number for number, error in zip(missing, errors, strict=True) if error == wire.NO_NODE]
        first = items[missing[0]][0]
        raise StoreConflict(f"others keep deleting the nodes above ledger {first}; try again", ledger_id=first)

    def update(self, items: Sequence[tuple[int, LedgerMetadata, int]]) -> list[int]:
        """Set ledgers' metadata over the versions given; returns the new versions.

        Raises:
            StoreConflict: a ledger has another version, or is gone; the message names the first one. All others that
                could be set were.
            StoreError: the store cannot be written.
        """
        paths = self._paths(ledger for ledger, _, _ in items)
        errors = self._change(
            [
                wire.op_set(self._absolute(path), encode_metadata(metadata), version)
                for path, (_, metadata, version) in zip(paths, items, strict=True)
            ]
        )
        for (ledger, _, version), error in zip(items, errors, strict=True):
            if error:
                raise StoreConflict(
                    f"ledger {ledger} {_meaning(error)}, and version {version} was expected; read it again",
                    ledger_id=ledger,
                )
        return [version + 1 for _, _, version in items]

    def delete(self, items: Sequence[tuple[int, int | None]], fence: Callable[[], object] = lambda: None) -> int:
        """Delete ledgers' metadata, of one version where that is given; empty nodes above stay.

        The bookies drop the entries by themselves later on.

        Args:
            items: ids, and the expected versions. A version is not an identity: a ledger that is made again under its
                id has the same ones.
            fence: asked once the session that deletes is open; raises if nothing may be deleted any more. A worker that
                freezes after it finds its session expired, and gets no new one, or its permit revoked (`claims`).

        Returns:
            How many were deleted; a missing one is not an error.

        Raises:
            StoreConflict: a ledger has another version; the message names the first one. All others were deleted. Or
                what `fence` raises.
            StoreError: the store cannot be read or written.
        """
        paths = self._paths(ledger for ledger, _ in items)
        existing = self._reader.read(paths)
        # Missing ledgers are left out first: one of them would undo every other change of its multi.
        chosen = [number for number, record in enumerate(existing) if record]
        changes: list[bytes] = []
        for number in chosen:
            version = items[number][1]
            changes.append(wire.op_delete(self._absolute(paths[number]), -1 if version is None else version))
        link = self._session()
        permit = Permit(fence if self._permits_root is not None else None)
        if self._permits_root is None:
            fence()
        else:
            permit.grant(link, self._permits_root)
        # Before the answer: a request whose answer is lost may have been carried out.
        self._deleted.update(items[number][0] for number in chosen)
        try:
            errors = change_each(link, changes, permit)  # mutant: bookie-cluster/a-late-deletion-without-a-permit
        finally:
            permit.revoke(link)
        self._deleted.difference_update(
            items[number][0] for number, error in zip(chosen, errors, strict=True) if error == wire.BAD_VERSION
        )
        for number, error in zip(chosen, errors, strict=True):
            if error and error != wire.NO_NODE:
                ledger, version = items[number]
                raise StoreConflict(
                    f"ledger {ledger} {_meaning(error)}, and version {version} was expected", ledger_id=ledger
                )
        return errors.count(wire.OK)

    def _create_parents(self, paths: Iterable[bytes]) -> None:
        wanted = sorted({parent for path in paths for parent in ancestors(path)}, key=lambda path: path.count(b"/"))
        existing = self._reader.read(wanted)
        missing = [path for path, record in zip(wanted, existing, strict=True) if not record]
        depths = sorted({path.count(b"/") for path in missing})
        for depth in depths:
            level = [self._op_create(path, b"") for path in missing if path.count(b"/") == depth]
            if wire.NO_NODE in self._change(level) and depth == 1:
                text = f"there is no ledgers root at {self.url}; initialise the BookKeeper cluster"
                raise StoreUnsupported(text, server=str(self.url))

    def _op_create(self, path: bytes, value: bytes) -> bytes:
        return wire.op_create(self._absolute(path), value)

    def _absolute(self, path: bytes) -> bytes:
        return self.url.root.encode() + path

    def _change(self, changes: Sequence[bytes]) -> list[int]:
        return change_each(self._session(), changes)

    def _session(self) -> Connection:
        if not self._link or not self._link.usable:
            if self._link:
                self._link.close()
            self._link = Connection(self.url, access=self._access.zookeeper, timeout=self._access.timeout)
        return self._link


def _ledger(record: Record | Unreadable) -> LedgerRecord | None:
    ledger_id = layout.ledger_id(record.path.decode(errors="replace"))
    return None if ledger_id is None else _decoded(ledger_id, _readable(record))


def _decoded(ledger_id: int, record: Record) -> LedgerRecord:
    try:
        metadata = decode_metadata(record.value)
    except StoreError as cause:
        raise cause.saying(f"ledger {ledger_id}: {cause}", path=record.path, ledger_id=ledger_id) from cause
    return LedgerRecord(ledger_id, metadata, record.version, record.changed, record.created)


def _readable(record: Record | Unreadable) -> Record:
    if isinstance(record, Unreadable):
        raise StoreDenied(record.reason, path=record.path)
    return record


def _meaning(error: int) -> str:
    return "is gone" if error == wire.NO_NODE else "has another version"


def _encoded(paths: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(path.encode() for path in paths)


class Bookie(NamedTuple):
    """A bookie that is up.

    Attributes:
        bookie_id: its name in ensembles.
        host: its host.
        port: its port, with and without TLS.
        writable: whether it takes new entries.
    """

    bookie_id: str
    host: str
    port: int
    writable: bool


def read_bookie(bookie_id: str, value: bytes, *, writable: bool) -> Bookie:
    """Read a bookie's node.

    Args:
        bookie_id: the node's name.
        value: `BookieServiceInfoFormat`, the same from Pulsar's metadata driver and from BookKeeper's own; bookies
            before BookKeeper 4.11 leave it empty, and are called `host:port`.
        writable: whether the node is among those of bookies that take entries.

    Raises:
        StoreProtocolError: it has no address of the bookie.
    """
    try:
        info = BookieServiceInfoFormat.FromString(value)
    except DecodeError as cause:
        raise StoreProtocolError(
            f"what bookie {bookie_id} says of itself cannot be read: {cause}", server=bookie_id
        ) from cause
    for endpoint in info.endpoints:
        if endpoint.protocol == _PROTOCOL:
            return Bookie(bookie_id, endpoint.host, endpoint.port, writable)
    host, _, port = bookie_id.rpartition(":")
    if not host or not port.isdecimal():
        raise StoreProtocolError(
            f"bookie {bookie_id} names no endpoint for {_PROTOCOL}, and its id is not a host:port", server=bookie_id
        )
    return Bookie(bookie_id, host.strip("[]"), int(port), writable)
