"""Load records of segments, and the clients of a segment that a broker reports."""

from __future__ import annotations

from typing import cast

from clients.cas.store import CasReader, Node
from clients.pulsar.admin.scalable_topics import SegmentStats
from clients.pulsar.names import TopicName
from clients.pulsar.segment_loads import SegmentLoad, segment_load

_TOPIC = TopicName.parse("persistent://t/n/x")
_RECORD = b'{"msgRateIn":2.0,"byteRateIn":300.0,"msgRateOut":1.0,"byteRateOut":100.0}'


class _Store:
    """A store that has the load record of segment 3."""

    def get(self, path: str) -> Node | None:
        return Node(_RECORD, 0, 0, 0) if path == "/topics/t/n/x/segments/3/load" else None


def test_rates_of_a_segment() -> None:
    """Bytes and messages are read by the names that brokers of 5.0 write; no record means no traffic."""
    store = cast("CasReader", _Store())
    load = segment_load(store, _TOPIC, 3)
    assert (load.byte_rate, load.msg_rate) == (400.0, 3.0)
    assert segment_load(store, _TOPIC, 4) == SegmentLoad()


def test_clients_of_a_segment_have_their_own_names() -> None:
    """V5 clients connect as `name-seg-N`, and are reported as `name`."""
    stats = SegmentStats.model_validate(
        {
            "storageSize": 7,
            "producers": [{"producerName": "orders-seg-12"}],
            "subscriptions": {"billing": {"msgBacklog": 3, "consumers": [{"consumerName": "c-seg-x-seg-0"}]}},
        }
    )
    assert stats.clients == ["producer orders", "consumer c-seg-x of billing"]
    assert (stats.storage_size, stats.subscriptions["billing"].msg_backlog) == (7, 3)
