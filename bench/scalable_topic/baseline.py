"""The peer: the brokers' own command for each topic, and an operator who looks at what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from bench.scalable_topic.results import TopicFlip
from bench.scalable_topic.subject import PARALLEL
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName

_LOOK_SECONDS = 60.0


def migrate_bare(admin: PulsarAdmin, admin_url: str, topics: Sequence[str]) -> list[TopicFlip]:
    """Make topics scalable by the brokers' command alone, and look at the statistics of each once.

    That look has a broker take charge of the topic, and collect its old segments from then on.

    Args:
        admin: of the brokers.
        admin_url: of the broker whose statistics are asked for.
        topics: their regular names.
    """

    def migrate(topic: str) -> TopicFlip:
        begin = time.monotonic()
        admin.scalable_topics.migrate(TopicName.parse(topic))
        seconds = time.monotonic() - begin
        return TopicFlip(topic, call_seconds=seconds, work_seconds=seconds, flip_seconds=seconds)

    with ThreadPoolExecutor(PARALLEL) as pool:
        flips = list(pool.map(migrate, topics))
    with httpx.Client(timeout=_LOOK_SECONDS) as operator:
        for topic in topics:
            path = TopicName.parse(topic).local_path
            operator.get(f"{admin_url}/admin/v2/scalable/{path}/stats").raise_for_status()
    return flips
