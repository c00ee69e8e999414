"""Names of the topics of which a scalable topic consists, for clients of the cluster."""

from __future__ import annotations

from clients.pulsar.names import TopicName
from models.topic_controller import names


def segment_topic(topic: TopicName, descriptor: str) -> TopicName:
    """Return the topic that contains the messages of a segment; see `models.topic_controller.names`."""
    return TopicName.parse(names.segment_topic(str(topic), descriptor))


def layout_topic(topic: TopicName) -> TopicName:
    """Return the topic in which clients see the layout; see `models.topic_controller.names`."""
    return TopicName.parse(names.layout_topic(str(topic)))
