"""How a scalable topic's messages are copied to a regular topic, and what is told of it."""

from __future__ import annotations

from enum import StrEnum

from models.base import Result

KEEPER = "pulsar-migrate-copy"
"""A subscription of the regular topic for which its messages are kept until its consumers have their own."""


class KeyHash(StrEnum):
    """The hash by which producers of the regular topic choose a partition for a key.

    JAVA is the default of Java's clients, CPP that of C++'s, Python's and Node.js's. MURMUR3 is what both have where it
    is set (`Murmur3_32Hash`), and what clients for scalable topics take (V5).
    """

    JAVA = "java"
    CPP = "cpp"
    MURMUR3 = "murmur3"


class SegmentFigures(Result):
    """What was copied of one segment: the same was read from it and from the regular topic.

    Attributes:
        segment: its descriptor.
        messages: how many.
        size: bytes of their payloads.
        digest: of all their content, in order.
    """

    segment: str
    messages: int
    size: int
    digest: str


class CopiedOut(Result):
    """A scalable topic's messages are in a regular topic.

    Attributes:
        target: the regular topic.
        partitions: that it has; 0 for none.
        seconds: that it took.
        segments: that were copied, or, in a dry run, would be.
        entries: that this call copied, or, in a dry run, are stored; a batch is one.
        found: of these, what a lost attempt had copied.
        messages: that were read from the segments and are in the regular topic, equal and in order.
        size: bytes of their payloads.
        digest: of all of them.
        certificate: each segment's figures, 100 at most.
        caught_up: whether the last look at the segments found nothing new. Where not, producers still send: stop them,
            and copy again.
    """

    target: str
    partitions: int
    seconds: float
    segments: int
    entries: int
    found: int = 0
    messages: int = 0
    size: int = 0
    digest: str = ""
    certificate: tuple[SegmentFigures, ...] = ()
    caught_up: bool = False
