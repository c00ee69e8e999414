"""Topics of both sides, asked for by the same requests: brokers' own, and those of our REST gateway."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.lifecycle.results import Side
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from models.segments.segment import SegmentInfo, SubscriptionKind
from pulsar_devstack.traffic.plan import Language

ORDERED, SHARED = "billing", "audit"
_MOST_SEGMENTS = 6


@dataclass(frozen=True)
class Topic:
    """One scalable topic.

    Attributes:
        side: who controls it.
        admin: where it is changed.
        name: of the topic.
    """

    side: Side
    admin: PulsarAdmin
    name: TopicName

    @classmethod
    def create(cls, side: Side, admin: PulsarAdmin, path: str, segments: int) -> Topic:
        """Create a topic without auto-scaling, with an ordered subscription and a shared one."""
        topic = cls(side, admin, TopicName.parse(path))
        admin.scalable_topics.create(topic.name, segments)
        if side is Side.PEER:
            admin.scalable_topics.set_auto_scale_policy(topic.name, AutoScalePolicy(enabled=False))
        admin.scalable_topics.register(topic.name, ORDERED, SubscriptionKind.STREAM)
        admin.scalable_topics.register(topic.name, SHARED, SubscriptionKind.QUEUE)
        return topic

    @property
    def language(self) -> Language:
        """Of the clients."""
        return Language.PYTHON_SCALABLE if self.side is Side.OURS else Language.JAVA_V5

    @property
    def url(self) -> str:
        """Name of the topic for clients."""
        domain = "persistent" if self.side is Side.OURS else "topic"
        return f"{domain}://{self.name.local_path}"

    @property
    def active(self) -> list[SegmentInfo]:
        """Segments that take messages, in the order of their hashes."""
        return self.admin.scalable_topics.layout(self.name).active

    def plan(self, number: int, dice: random.Random) -> tuple[str, Callable[[], None]]:
        """Choose segments at random, to be split and merged in turn; returns what it is, and asks for it."""
        active, topics = self.active, self.admin.scalable_topics
        if (number % 2 and len(active) > 1) or len(active) >= _MOST_SEGMENTS:
            place = dice.randrange(len(active) - 1)
            first, other = (segment.segment_id for segment in active[place : place + 2])
            return "merge", lambda: topics.merge(self.name, first, other)
        parent = dice.choice(active).segment_id
        return "split", lambda: topics.split(self.name, parent)
