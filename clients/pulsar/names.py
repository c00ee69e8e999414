"""Names of topics and cursors: as people write them, in paths of the admin interface, and in nodes' paths."""

from __future__ import annotations

import re
from typing import NamedTuple, Self
from urllib.parse import quote, quote_plus, unquote_plus

from models.topic_names import partition_number, whole_name

_MANAGED_LEDGERS = "/managed-ledgers/"
_SCALABLE = "/topics/"
_SEGMENT = "segment://"
_WATERMARKS = "/txn/segment-state/watermark/"
_NAMESPACE = "public/default"
_DOMAIN = re.compile(r"(persistent|non-persistent)://")
# What brokers take for something else, and what ZooKeeper allows in no path: characters beyond U+FFFF among it.
_NOT_RECORDABLE = re.compile(
    r"[/;{}\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]|%[0-9A-Fa-f]{2}|^\.{1,2}$"
)


class TopicName(NamedTuple):
    """A topic, or one partition of it.

    Attributes:
        tenant: to whom it belongs.
        namespace: its namespace within the tenant, without the tenant.
        topic: its name within the namespace.
        domain: `persistent` or `non-persistent`.
    """

    tenant: str
    namespace: str
    topic: str
    domain: str = "persistent"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name as Pulsar's clients do: in full, as tenant/namespace/topic, or short (of `public/default`).

        Raises:
            ValueError: it is none of these.
        """
        domain = _DOMAIN.match(text)
        path = text[domain.end() :] if domain else text
        if "/" not in path and not domain:
            path = f"{_NAMESPACE}/{path}"
        parts = path.split("/", 2)
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{text!r} is not a topic name; expected persistent://tenant/namespace/topic")
        tenant, namespace, topic = parts
        return cls(tenant, namespace, topic, domain[1] if domain else "persistent")

    @property
    def namespace_path(self) -> str:
        """`tenant/namespace`."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def rest_path(self) -> str:
        """`persistent/tenant/namespace/topic`, encoded for a path of the admin interface."""
        return f"{encoded(self.domain)}/{self.local_path}"

    @property
    def local_path(self) -> str:
        """The same without the domain, as scalable topics have it."""
        return "/".join(map(encoded, (self.tenant, self.namespace, self.topic)))

    @property
    def schema_path(self) -> str:
        """The same without the domain, which schemas do not have."""
        return "/".join((encoded(self.tenant), encoded(self.namespace), encoded_twice(self.topic)))

    @property
    def managed_ledger_path(self) -> str:
        """The node of its managed ledger in the metadata store."""
        return f"{_MANAGED_LEDGERS}{self.tenant}/{self.namespace}/{self.domain}/{_as_node(self.topic)}"

    @property
    def scalable_path(self) -> str:
        """The node of the scalable topic of this name in the metadata store."""
        return f"{_SCALABLE}{self.tenant}/{self.namespace}/{_as_node(self.topic)}"

    @property
    def partition(self) -> int | None:
        """Number of the partition that this is; None for a whole topic."""
        return partition_number(self.topic)

    @property
    def whole(self) -> Self:
        """The partitioned topic of a partition; itself otherwise."""
        return self._replace(topic=whole_name(self.topic))

    def of_partition(self, number: int) -> Self:
        """Return the name of one of its partitions."""
        return self._replace(topic=f"{self.topic}-partition-{number}")

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.topic}"


class SegmentName(NamedTuple):
    """The topic that holds the messages of one segment of a scalable topic.

    Brokers serve it in their binary protocol like any other, and have next to nothing for it in their admin interface.

    Attributes:
        scalable: the scalable topic; its domain does not count.
        descriptor: the segment's part of the name, `{first hash}-{last hash}-{id}`.
    """

    scalable: TopicName
    descriptor: str

    @property
    def managed_ledger_path(self) -> str:
        """The node of its managed ledger in the metadata store."""
        return f"{self.folder(self.scalable)}/{self.descriptor}"

    @property
    def watermark_path(self) -> str:
        """The node with the last position that consumers may read, where brokers have transactions."""
        return f"{_WATERMARKS}{_as_node(str(self))}"

    @staticmethod
    def folder(scalable: TopicName) -> str:
        """Return the node beneath which all segments of a scalable topic have their managed ledgers."""
        tenant, namespace, topic, _ = scalable
        return f"{_MANAGED_LEDGERS}{tenant}/{namespace}/segment/{_as_node(topic)}"

    def __str__(self) -> str:
        return f"{_SEGMENT}{self.scalable.namespace_path}/{self.scalable.topic}/{self.descriptor}"


StoredTopic = TopicName | SegmentName
"""What holds messages: a topic without partitions, one partition, or a segment."""


def stored_topic(text: str) -> StoredTopic:
    """Return the topic or segment of a full name, `persistent://…` or `segment://…`.

    Raises:
        ValueError: it names neither.
    """
    if not text.startswith(_SEGMENT):
        return TopicName.parse(text)
    scalable, separator, descriptor = text.removeprefix(_SEGMENT).rpartition("/")
    if not separator:
        raise ValueError(f"{text!r} names no segment; write segment://tenant/namespace/topic/descriptor")
    return SegmentName(TopicName.parse(f"persistent://{scalable}"), descriptor)


class CursorName(NamedTuple):
    """A cursor, as clients name it.

    Attributes:
        topic: whose cursor it is.
        cursor: the subscription, or another of the topic's cursors.
    """

    topic: TopicName
    cursor: str

    def __str__(self) -> str:
        return f"cursor {self.cursor} of {self.topic}"


def cursor_name(path: str) -> CursorName | None:
    """Return the cursor whose node this is, None if it is none of a persistent topic.

    Brokers encode the names of topics and cursors as `java.net.URLEncoder` does, a space as a plus.
    """
    parts = path.removeprefix(_MANAGED_LEDGERS).split("/")
    if len(parts) != 5 or parts[2] != "persistent":
        return None
    tenant, namespace, _, topic, cursor = parts
    return CursorName(TopicName(tenant, namespace, unquote_plus(topic)), unquote_plus(cursor))


def _as_node(name: str) -> str:
    """Return the name of a topic, as brokers name nodes: as `java.net.URLEncoder` encodes."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def encoded(name: str) -> str:
    """Return one part of a path of the admin interface."""
    return quote(name, safe="")


def recordable(subscription: str) -> bool:
    """Return whether brokers take a subscription's name as it is in requests for scalable topics and their segments.

    They take what comes after a slash, or a semicolon, for something else, fail over braces and unprintable characters,
    and decode once too often (5.0.1, seen): then cursors of another name keep messages that no consumer reads.
    They answer 500 for what ZooKeeper refuses, an emoji for example, at every attempt (seen).
    """
    return not _NOT_RECORDABLE.search(subscription)


def encoded_namespace(name: str) -> str:
    """Return `tenant/namespace` for a path of the admin interface."""
    return "/".join(map(encoded, name.split("/")))


def encoded_twice(name: str) -> str:
    """Return a subscription, or the topic of a schema, in a path of the admin interface: brokers decode these twice."""
    return encoded(encoded(name))
