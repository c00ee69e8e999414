"""Enums of options; names and numbers are those of pulsar-client where it has them."""

from __future__ import annotations

from enum import IntEnum


class ConsumerType(IntEnum):
    """Subscription type of a consumer."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(IntEnum):
    """Position at which a new subscription starts."""

    Latest = 0
    Earliest = 1


class ConsumerKind(IntEnum):
    """Order that a consumer needs: STREAM gets a segment once its ancestors are drained, CHECKPOINT immediately.

    The controller divides the segments among the consumers of a subscription in both cases.
    """

    STREAM = 0
    CHECKPOINT = 1


class Compression(IntEnum):
    """Compression of a payload."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4
