"""Choices of applications; names and numbers are those of pulsar-client where it has them."""

from __future__ import annotations

from enum import IntEnum


class ConsumerType(IntEnum):
    """How consumers share a subscription."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(IntEnum):
    """Where a new subscription begins."""

    Latest = 0
    Earliest = 1


class ConsumerKind(IntEnum):
    """Whose order counts: a STREAM gets segments once all of their ancestors are drained, CHECKPOINT at once.

    The controller shares the segments among the consumers of a subscription in both cases.
    """

    STREAM = 0
    CHECKPOINT = 1


class Compression(IntEnum):
    """How a payload is compressed."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4
