"""A ledger's metadata, as BookKeeper writes it into ZooKeeper.

A znode's value is `BookieMetadataFormatVersion`, a tab, the version, a line's end, and by version

* 3, since BookKeeper 4.9: the length as a varint and `LedgerMetadataFormat`;
* 2: the same message in protobuf's text form;
* 1, before BookKeeper 4.2: lines of figures, which have no digest type and are refused.

Source: LedgerMetadataSerDe of BookKeeper 4.18.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from clients.bookkeeper.ledger_metadata_pb2 import LedgerMetadataFormat
from clients.errors import StoreProtocolError, StoreUnsupported
from clients.varint import encode_varint

#: Key of the custom metadata by which Pulsar names the use of a ledger.
COMPONENT = "component"

COPY_TOKEN = int.from_bytes(b"pulsmigr")
"""Token in the metadata of our copies: it tells an unclosed copy from an unclosed original of the same topic.

BookKeeper chooses a token at random when it creates a ledger, compares it only then, and writes 0 whenever it writes
the metadata of the ledger again.
"""

_LARGEST_ENSEMBLE = 128
"""More bookies than any ledger uses; a forged quorum of two billion would take all memory."""
_HEADER = b"BookieMetadataFormatVersion\t"
_KNOWN = tuple(field.name for field in LedgerMetadataFormat.DESCRIPTOR.fields)


class LedgerState(IntEnum):
    """State of a ledger: only an open one can grow."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """Algorithm of the digest that protects entries."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class Segment(NamedTuple):
    """Entries that lie on the same bookies.

    Attributes:
        first_entry: the first of them; the next segment's first one ends them.
        ensemble: ids of the bookies.
    """

    first_entry: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """Metadata of a ledger.

    Attributes:
        ensemble_size: bookies of one segment.
        write_quorum: replicas of an entry.
        ack_quorum: bookies that must acknowledge an entry.
        state: whether it may grow.
        length: bytes of all entries' data; 0 unless closed.
        last_entry: last entry's id; -1 unless closed, or if it is empty.
        segments: ascending by first entry, at least one.
        digest: the algorithm of the entries' digest.
        password: from which the master key and the digest's key are made.
        ctime: milliseconds since 1970, None where it is not kept (Pulsar's ledgers).
        custom: custom metadata in the order in which it was written.
        token: BookKeeper's mark of the client that created it, 0 once it was written again; `COPY_TOKEN` of our copies.
        closed_before: znode of the closed ledger that an open copy of ours replaces; empty if there was none.
        unknown: fields that a newer BookKeeper wrote, in protobuf's form.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    length: int
    last_entry: int
    segments: tuple[Segment, ...]
    digest: DigestType
    password: bytes = field(default=b"", repr=False)
    ctime: int | None = None
    custom: tuple[tuple[str, bytes], ...] = ()
    token: int | None = None
    closed_before: bytes = b""
    unknown: bytes = b""

    @property
    def custom_map(self) -> dict[str, bytes]:
        """Custom metadata by key."""
        return dict(self.custom)

    @property
    def component(self) -> str:
        """Pulsar's use of the ledger, for example `managed-ledger` or `schema`; empty if it is not recorded."""
        return self.custom_map.get(COMPONENT, b"").decode(errors="replace")

    @property
    def closed(self) -> bool:
        """Whether length and last entry are final."""
        return self.state is LedgerState.CLOSED

    @property
    def entry_size(self) -> int | None:
        """Bytes of data in an average entry; None if it is not known: the ledger is open or empty, or its length false.

        BookKeeper's own recovery may record a length of 0 although there are entries.
        """
        entries = self.last_entry + 1
        return self.length // entries if self.length >= entries > 0 else None

    @property
    def is_copy(self) -> bool:
        """Whether a migration created it, and no other client has changed its metadata since."""
        return self.token == COPY_TOKEN

    def segment_of(self, entry: int) -> Segment:
        """Return the segment that holds an entry, which need not exist yet.

        Raises:
            ValueError: the entry is negative, and so in no segment.
        """
        index = bisect_right(self.segments, entry, key=lambda segment: segment.first_entry)
        if not index:
            raise ValueError(f"entry {entry} lies before the ledger's first segment")
        return self.segments[index - 1]

    def replicas(self, entry: int) -> tuple[str, ...]:
        """Return ids of the bookies that hold an entry, in the order in which BookKeeper asks them."""
        ensemble = self.segment_of(entry).ensemble
        return tuple(ensemble[(entry + number) % len(ensemble)] for number in range(self.write_quorum))

    def same_content(self, other: LedgerMetadata) -> bool:
        """Return whether both describe the same content of the ledger; its bookies and replicas do not matter."""
        return self._content() == other._content()

    def _content(self) -> tuple[object, ...]:
        # mutant: bookie-cluster/last-entries-are-not-compared
        return self.state, self.last_entry, self.length, self.digest, self.password, self.custom_map


def decode_metadata(data: bytes) -> LedgerMetadata:
    """Read a ledger's znode.

    Raises:
        StoreUnsupported: it has version 1, or one that is newer than BookKeeper 4.18; or it has no digest type.
        StoreProtocolError: it is not a ledger's metadata.
    """
    line, _, body = data.partition(b"\n")
    if not line.startswith(_HEADER):
        raise StoreProtocolError(f"not a ledger's metadata: it begins with {data[:40]!r}; check the ledgers root")
    version = line.removeprefix(_HEADER)
    if version == b"3":
        return _metadata(_parse_binary(body))
    if version == b"2":
        return _metadata(_parse_text(body))
    raise StoreUnsupported(
        f"the ledger's metadata has format version {version.decode(errors='replace')!r}, and versions 2 and 3 are "
        "read; "
        "have its own BookKeeper write it again"
    )


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the znode that BookKeeper would write, always of version 3; unknown fields come last."""
    form = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry,
        state=LedgerMetadataFormat.State.Name(metadata.state),
        segment=[
            LedgerMetadataFormat.Segment(ensembleMember=segment.ensemble, firstEntryId=segment.first_entry)
            for segment in metadata.segments
        ],
        digestType=LedgerMetadataFormat.DigestType.Name(metadata.digest),
        password=metadata.password,
        ackQuorumSize=metadata.ack_quorum,
        ctime=metadata.ctime,
        customMetadata=[LedgerMetadataFormat.cMetadataMapEntry(key=key, value=value) for key, value in metadata.custom],
        cToken=metadata.token,
        closedBefore=metadata.closed_before or None,
    )
    body = form.SerializeToString() + metadata.unknown
    return _HEADER + b"3\n" + encode_varint(len(body)) + body


def _metadata(form: LedgerMetadataFormat) -> LedgerMetadata:
    if not form.HasField("digestType"):
        raise StoreUnsupported("the ledger's metadata names no digest type (BookKeeper before 4.1); delete the ledger")
    # Top-level unknown fields are kept; those inside of segments would be dropped when the node is written again.
    if any(len(UnknownFieldSet(message)) for message in (*form.segment, *form.customMetadata)):
        raise StoreUnsupported("the ledger's metadata was written by a newer BookKeeper than 4.18, and would be cut")
    if form.segment and min(segment.firstEntryId for segment in form.segment):
        raise StoreProtocolError("the ledger's metadata has no segment for the first entries; check who wrote it")
    if not form.segment or any(len(segment.ensembleMember) != form.ensembleSize for segment in form.segment):
        raise StoreProtocolError("the ledger's metadata has no segment, or one without its number of bookies")
    ack_quorum = form.ackQuorumSize if form.HasField("ackQuorumSize") else form.quorumSize
    if not 0 <= ack_quorum <= form.quorumSize <= form.ensembleSize <= _LARGEST_ENSEMBLE or not form.quorumSize:
        raise StoreProtocolError(
            f"the ledger's metadata has ensemble {form.ensembleSize}, write quorum {form.quorumSize} and ack quorum "
            f"{ack_quorum}; expected ack <= write <= ensemble <= {_LARGEST_ENSEMBLE}; check which client wrote it"
        )
    return LedgerMetadata(
        ensemble_size=form.ensembleSize,
        write_quorum=form.quorumSize,
        ack_quorum=ack_quorum,
        state=LedgerState(form.state),
        length=form.length,
        last_entry=form.lastEntryId if form.HasField("lastEntryId") else -1,
        segments=tuple(
            sorted(Segment(segment.firstEntryId, tuple(segment.ensembleMember)) for segment in form.segment)
        ),
        digest=DigestType(form.digestType),
        password=form.password,
        ctime=form.ctime if form.HasField("ctime") else None,
        custom=tuple((entry.key, entry.value) for entry in form.customMetadata),
        token=form.cToken if form.HasField("cToken") else None,
        closed_before=form.closedBefore,
        unknown=_unknown(form),
    )


def _unknown(form: LedgerMetadataFormat) -> bytes:
    if not len(UnknownFieldSet(form)):
        return b""
    for name in _KNOWN:
        form.ClearField(name)
    return form.SerializePartialToString()


def _parse_binary(body: bytes) -> LedgerMetadataFormat:
    size, start = _read_varint(body)
    if start + size > len(body):
        raise StoreProtocolError(f"the ledger's metadata should have {size} bytes, and has {len(body) - start}")
    try:
        return _complete(LedgerMetadataFormat.FromString(body[start : start + size]))
    except DecodeError as cause:
        raise StoreProtocolError(f"the ledger's metadata cannot be read: {cause}") from cause


def _parse_text(body: bytes) -> LedgerMetadataFormat:
    form = LedgerMetadataFormat()
    try:
        text_format.Parse(body, form)
    except text_format.ParseError as cause:
        raise StoreProtocolError(f"the ledger's metadata cannot be read: {cause}") from cause
    return _complete(form)


def _complete(form: LedgerMetadataFormat) -> LedgerMetadataFormat:
    """Raise an error if a required field is missing, which parsing does not check."""
    if not form.IsInitialized():
        raise StoreProtocolError("the ledger's metadata lacks a field that it must have")
    return form


def _read_varint(data: bytes) -> tuple[int, int]:
    """Return a number and the offset after it."""
    number = 0
    for index, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, index + 1
    raise StoreProtocolError("the ledger's metadata has no length")
