"""Input and results of the copy of a scalable topic's messages to a regular topic."""

from __future__ import annotations

from enum import StrEnum

from models.base import Result

KEEPER = "pulsar-migrate-copy"
"""Subscription that retains the messages of the regular topic until its consumers have subscriptions."""


class KeyHash(StrEnum):
    """The hash by which producers of the regular topic choose a partition for a key.

    JAVA is the default of Java's clients, CPP that of C++'s, Python's and Node.js's. MURMUR3 is what both have where it
    is configured (`Murmur3_32Hash`), and the hash of V5 clients.
    """

    JAVA = "java"
    CPP = "cpp"
    MURMUR3 = "murmur3"


class SegmentFigures(Result):
    """Verified figures of one segment: the source and the regular topic have the same messages.

    Attributes:
        segment: its descriptor.
        messages: their number.
        size: bytes of their payloads.
        digest: of their content, in order.
    """

    segment: str
    messages: int
    size: int
    digest: str


class CopiedOut(Result):
    """Result of a copy of a scalable topic's messages to a regular topic.

    Attributes:
        target: the regular topic.
        partitions: of the regular topic; 0 for an unpartitioned one.
        seconds: duration of the copy.
        segments: number of copied segments; in a dry run, of those to copy.
        entries: number of entries that this call copied; in a dry run, of stored entries. A batch is one entry.
        already_copied: number of these entries that a previous attempt had copied.
        messages: number of messages that are equal and in order on both sides.
        size: bytes of their payloads.
        digest: of all of them.
        certificate: figures of each segment, 100 at most.
        caught_up: true if the last scan of the segments found no new messages. If false, producers still send: stop
            them and copy again.
    """

    target: str
    partitions: int
    seconds: float
    segments: int
    entries: int
    already_copied: int = 0
    messages: int = 0
    size: int = 0
    digest: str = ""
    certificate: tuple[SegmentFigures, ...] = ()
    caught_up: bool = False
