"""Scalable topics without pulsar-client: layouts, producers and consumers of segments, registrations (PIP-468)."""

from pulsar_scalable.enums import Compression, ConsumerKind, ConsumerType, InitialPosition
from pulsar_scalable.native.client import NativeClient
from pulsar_scalable.native.consumer import SegmentConsumer
from pulsar_scalable.native.message import Message, MessageId
from pulsar_scalable.native.producer import SegmentProducer
from pulsar_scalable.native.registration import AssignedSegment, Assignment, Registration
from pulsar_scalable.native.watch import Watch

__all__ = [
    "AssignedSegment",
    "Assignment",
    "Compression",
    "ConsumerKind",
    "ConsumerType",
    "InitialPosition",
    "Message",
    "MessageId",
    "NativeClient",
    "Registration",
    "SegmentConsumer",
    "SegmentProducer",
    "Watch",
]
