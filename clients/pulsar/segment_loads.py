"""The traffic of segments, as the brokers that own them report it to their metadata store (PIP-483).

They look every 10 s, and report what has changed by a quarter or more.
"""

from __future__ import annotations

from clients.cas.store import CasReader
from clients.pulsar.admin.answers import Answer, Rate
from clients.pulsar.names import TopicName


class SegmentLoad(Answer):
    """Rates per second of one segment.

    Attributes:
        msg_rate_in, msg_rate_out: messages.
        byte_rate_in, byte_rate_out: bytes.
    """

    msg_rate_in: Rate = 0.0
    byte_rate_in: Rate = 0.0
    msg_rate_out: Rate = 0.0
    byte_rate_out: Rate = 0.0

    @property
    def byte_rate(self) -> float:
        """Bytes in and out."""
        return self.byte_rate_in + self.byte_rate_out

    @property
    def msg_rate(self) -> float:
        """Messages in and out."""
        return self.msg_rate_in + self.msg_rate_out


def segment_load(store: CasReader, topic: TopicName, segment_id: int) -> SegmentLoad:
    """Return the last report on a segment; zero where there is none yet."""
    node = store.get(f"{topic.scalable_path}/segments/{segment_id}/load")
    return SegmentLoad.model_validate_json(node.value) if node and node.value else SegmentLoad()
