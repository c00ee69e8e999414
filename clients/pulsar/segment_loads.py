"""The traffic of segments, as the brokers that own them report it to their metadata store (PIP-483).

They report every 10 s what has changed by a quarter or more. The interface for statistics tells no rates, and makes the
broker that is asked a controller of the topic (5.0.0-M1, seen).
"""

from __future__ import annotations

from clients.cas.store import CasReader
from clients.pulsar.admin.answers import Answer
from clients.pulsar.names import TopicName


class SegmentLoad(Answer):
    """Rates per second of one segment.

    Attributes:
        msg_rate_in, msg_rate_out: messages.
        bytes_rate_in, bytes_rate_out: bytes.
    """

    msg_rate_in: float = 0.0
    bytes_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    bytes_rate_out: float = 0.0

    @property
    def bytes_rate(self) -> float:
        """Bytes in and out."""
        return self.bytes_rate_in + self.bytes_rate_out

    @property
    def msg_rate(self) -> float:
        """Messages in and out."""
        return self.msg_rate_in + self.msg_rate_out


def segment_load(store: CasReader, topic: TopicName, segment_id: int) -> SegmentLoad:
    """The last report on a segment; zero where there is none yet."""
    node = store.get(f"{topic.scalable_path}/segments/{segment_id}/load")
    return SegmentLoad.model_validate_json(node.value) if node and node.value else SegmentLoad()
