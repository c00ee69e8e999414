"""A ZooKeeper snapshot file with the metadata of a Pulsar cluster, the same bytes on every machine.

The mix for each topic: its managed ledger (150 to 900 bytes), two cursors (20 to 200), every other topic a schema
(80 to 200) and eight ledgers (300 to 1,000); for every 200 topics one namespace with its policies (800 to 1,500) and
local policies (about 310). Three nodes in ten carry a data version above 0, and `/ledgers/idgen` is at the value that a
cluster would that has created all these ledgers. Values are random, thus do not compress, and each begins with its own
number.

Format: ZooKeeper 3.9, `FileSnap` and `DataTree.serialize`: a header, no sessions, no ACLs next to the open one, every
node after its parent, a closing `/`, and the Adler-32 sum of all that.
"""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

#: Part of the cache's key: raise it with every change of what is written.
GENERATOR = 1

TOPICS_PER_NAMESPACE = 200
NAMESPACES_PER_TENANT = 20
CURSORS_PER_TOPIC = 2
LEDGERS_PER_TOPIC = 8
#: BookKeeper's hierarchical layout: 10,000 ledgers beneath one znode; a topic's eight never straddle two of them.
LEDGERS_PER_GROUP = 10_000
BYTES_PER_TOPIC = 6_022
#: So many different topics are drawn; the rest repeat their sizes and random bytes, far apart.
SHAPES = 509

_HEADER = struct.pack(">iiq", 0x5A4B534E, 2, -1)
_NO_SESSIONS = _NO_ACLS = struct.pack(">i", 0)
_CLOSING = struct.pack(">i", 1) + b"/"
_OPEN_ACL = -1
_CREATED_MS = 1_700_000_000_000
_ZXID = 1
_LENGTH = struct.Struct(">i")
#: ACL, then StatPersisted: czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, pzxid.
_STAT = struct.Struct(">qqqqqiiiqq")


@dataclass(frozen=True)
class Dataset:
    """One snapshot and what is in it.

    Attributes:
        snapshot: the file, to be placed as `version-2/snapshot.1` in a server's data folder.
        mb: size asked for, 10^6 bytes of values.
        records: nodes, without the root and `/zookeeper`.
        value_bytes: bytes of all values.
        kinds: number of records of each kind.
    """

    snapshot: Path
    mb: int
    records: int
    value_bytes: int
    kinds: dict[str, int]


def cached(mb: int, folder: Path) -> Dataset:
    """Return the dataset with `mb` megabytes of values; generate it into `folder` if it is missing.

    Raises:
        ValueError: `mb` is below 1 or above 10,000.
    """
    base = folder / f"metadata-{mb}mb-v{GENERATOR}"
    facts, snapshot = base.with_suffix(".json"), base.with_suffix(".snapshot")
    if facts.exists() and snapshot.exists():
        return Dataset(snapshot=snapshot, **json.loads(facts.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = base.with_suffix(f".{os.getpid()}")
    made = generate(mb, unfinished)
    unfinished.replace(snapshot)
    described = asdict(made)
    del described["snapshot"]
    facts.write_text(json.dumps(described))
    return Dataset(snapshot=snapshot, **described)


def generate(mb: int, file: Path) -> Dataset:
    """Write the snapshot with `mb` megabytes of values to `file`.

    Raises:
        ValueError: `mb` is below 1 or above 10,000.
    """
    if not 1 <= mb <= 10_000:
        raise ValueError(f"invalid dataset size {mb} MB; expected 1 to 10000")
    topics = round(mb * 1_000_000 / BYTES_PER_TOPIC)
    counts = _Counts()
    with file.open("wb") as out:
        _seal(out, _content(topics, counts))
    return Dataset(file, mb, sum(counts.kinds.values()), counts.value_bytes, counts.kinds)


def _seal(out: BinaryIO, chunks: Iterator[bytes]) -> None:
    checksum = 1
    for chunk in chunks:
        checksum = zlib.adler32(chunk, checksum)
        out.write(chunk)
    out.write(struct.pack(">q", checksum) + _CLOSING)


class _Counts:
    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.value_bytes = 0

    def add(self, kind: str, records: int, value_bytes: int) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + records
        self.value_bytes += value_bytes


def _content(topics: int, counts: _Counts) -> Iterator[bytes]:
    draw = random.Random(7)
    noise = _Noise(draw)
    shapes = [_Shape(draw, noise) for _ in range(SHAPES)]
    yield _HEADER + _NO_SESSIONS + _NO_ACLS
    yield _parents(topics, counts)
    for first in range(0, topics, TOPICS_PER_NAMESPACE):
        where = _namespace(first // TOPICS_PER_NAMESPACE)
        parts = [_policies(where, draw, noise, counts)]
        held = range(first, min(first + TOPICS_PER_NAMESPACE, topics))
        parts += [shapes[topic % SHAPES].topic(where, topic, counts) for topic in held]
        yield b"".join(parts)
    yield _CLOSING


def _parents(topics: int, counts: _Counts) -> bytes:
    """Return the nodes without own data, with the number of their children."""
    namespaces = -(-topics // TOPICS_PER_NAMESPACE)
    tenants = -(-namespaces // NAMESPACES_PER_TENANT)
    ledgers = topics * LEDGERS_PER_TOPIC
    groups = -(-ledgers // LEDGERS_PER_GROUP)
    server = [(b"", 5), (b"/zookeeper", 2), (b"/zookeeper/quota", 0), (b"/zookeeper/config", 0)]
    nodes = [(b"/admin", 2), (b"/ledgers", 2), (b"/ledgers/00", groups)]
    trees = (b"/admin/policies", b"/admin/local-policies", b"/managed-ledgers", b"/schemas")
    nodes += [(tree, tenants) for tree in trees]
    for tenant in range(tenants):
        held = min(NAMESPACES_PER_TENANT, namespaces - tenant * NAMESPACES_PER_TENANT)
        nodes += [(b"%b/tenant%03d" % (tree, tenant), held) for tree in trees]
    for namespace in range(namespaces):
        where = _namespace(namespace)
        first = namespace * TOPICS_PER_NAMESPACE
        last = min(first + TOPICS_PER_NAMESPACE, topics)
        schemas = (last + 1) // 2 - (first + 1) // 2
        nodes += [(b"/managed-ledgers" + where, 1), (b"/managed-ledgers" + where + b"/persistent", last - first)]
        nodes.append((b"/schemas" + where, schemas))
    for group in range(groups):
        held = min(LEDGERS_PER_GROUP, ledgers - group * LEDGERS_PER_GROUP)
        nodes.append((b"/ledgers/00/%04d" % group, held))
    counts.add("parent", len(nodes), 0)
    counts.add("idgen", 1, 0)
    written = [_node(path, b"", version=0, created=created) for path, created in server + nodes]
    # Ids come from sequential children that are deleted at once, so the node has none but has counted all of them.
    return b"".join([*written, _node(b"/ledgers/idgen", b"", version=0, created=ledgers)])


def _policies(where: bytes, draw: random.Random, noise: _Noise, counts: _Counts) -> bytes:
    policies = b'{"auth_policies":"' + noise.text(draw.randint(780, 1_480)) + b'"}'
    local = b'{"bundles":"' + noise.text(300) + b'"}'
    counts.add("policies", 1, len(policies))
    counts.add("local policies", 1, len(local))
    return _node(b"/admin/policies" + where, policies, version=draw.choice((0, 1, 5))) + _node(
        b"/admin/local-policies" + where, local, version=0
    )


def _namespace(number: int) -> bytes:
    return b"/tenant%03d/ns%04d" % (number // NAMESPACES_PER_TENANT, number)


class _Noise:
    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._pool = draw.randbytes(1 << 20)
        self._hex = self._pool.hex().encode()

    def raw(self, size: int) -> bytes:
        at = self._draw.randrange(len(self._pool) - size)
        return self._pool[at : at + size]

    def text(self, size: int) -> bytes:
        at = self._draw.randrange(len(self._hex) - size)
        return self._hex[at : at + size]


class _Shape:
    """The records of one topic, with gaps for the names and numbers: filling gaps is far quicker than packing nodes."""

    def __init__(self, draw: random.Random, noise: _Noise) -> None:
        managed, named = b"/managed-ledgers%b/persistent/topic-%b", (_namespace(0), b"0000000", b"0000000")
        sizes = [draw.randint(150, 900)]
        version = draw.choice((0, 1, 2, 3))
        parts = [_gapped(managed, b"%b", noise.raw(sizes[0] - 7), named, version=version, created=CURSORS_PER_TOPIC)]
        for cursor in range(CURSORS_PER_TOPIC):
            sizes.append(draw.randint(20, 200))
            version = draw.choice((0, 0, 0, 1))
            path = managed + b"/sub-%d" % cursor
            parts.append(_gapped(path, b"%b", noise.raw(sizes[-1] - 7), named, version=version))
        self._managed = b"".join(parts)
        self._schema_size = draw.randint(80, 200)
        self._schema = _gapped(b"/schemas%b/topic-%b", b"%b", noise.raw(self._schema_size - 7), named, version=0)
        ledgers: list[bytes] = []
        for _ in range(LEDGERS_PER_TOPIC):
            sizes.append(draw.randint(300, 1_000))
            version = 1 if draw.random() < 0.3 else 0
            path, numbered = b"/ledgers/00/%b/L%b", (b"0000",) * 4
            ledgers.append(_gapped(path, b"%b%b", noise.raw(sizes[-1] - 8), numbered, version=version))
        self._ledgers = b"".join(ledgers)
        self._sizes = sizes

    def topic(self, where: bytes, number: int, counts: _Counts) -> bytes:
        name = b"%07d" % number
        filled = [self._managed % ((where, name, name) * (1 + CURSORS_PER_TOPIC))]
        if number % 2 == 0:
            filled.append(self._schema % (where, name, name))
            counts.add("schema", 1, self._schema_size)
        group, within = divmod(number * LEDGERS_PER_TOPIC, LEDGERS_PER_GROUP)
        ids = [(b"%04d" % group, b"%04d" % low) * 2 for low in range(within, within + LEDGERS_PER_TOPIC)]
        filled.append(self._ledgers % tuple(text for pair in ids for text in pair))
        counts.add("managed ledger", 1, sum(self._sizes))
        counts.add("cursor", CURSORS_PER_TOPIC, 0)
        counts.add("ledger", LEDGERS_PER_TOPIC, 0)
        return b"".join(filled)


def _node(path: bytes, value: bytes, *, version: int, created: int = 0) -> bytes:
    return _LENGTH.pack(len(path)) + path + _LENGTH.pack(len(value)) + value + _stat(version, created)


def _stat(version: int, created: int) -> bytes:
    return _STAT.pack(_OPEN_ACL, _ZXID, _ZXID, _CREATED_MS, _CREATED_MS, version, created, 0, 0, _ZXID)


def _gapped(path: bytes, head: bytes, rest: bytes, gaps: tuple[bytes, ...], *, version: int, created: int = 0) -> bytes:
    """Return a node with `%b` gaps in its path and in the head of its value; `gaps` has the same lengths."""
    in_path = path.count(b"%b")
    path_size, head_size = len(path % gaps[:in_path]), len(head % gaps[in_path:])
    before, between = _LENGTH.pack(path_size), _LENGTH.pack(head_size + len(rest))
    return _literal(before) + path + _literal(between) + head + _literal(rest + _stat(version, created))


def _literal(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
