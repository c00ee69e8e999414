"""Names of scalable topics, and of the topics that hold their segments and layouts."""

from __future__ import annotations

from typing import NamedTuple, Self

from pulsar_scalable.errors import Unsupported

_SCALABLE, _PERSISTENT = "topic", "persistent"
_DOMAINS = (_SCALABLE, _PERSISTENT)


class TopicName(NamedTuple):
    """Name of a scalable topic.

    Attributes:
        path: `tenant/namespace/topic`.
        native: whether the name starts with `topic://`, so that only a broker of Pulsar 5 can control it.
    """

    path: str
    native: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name as clients do: with a domain, as tenant/namespace/topic, or short (in `public/default`).

        Raises:
            Unsupported: the name is not one of a scalable topic.
        """
        domain, separator, rest = text.partition("://")
        path = rest if separator else text
        if not separator and "/" not in path:
            path = f"public/default/{path}"
        parts = path.split("/", 2)
        if (separator and domain not in _DOMAINS) or len(parts) != 3 or not all(parts):
            raise Unsupported(
                f"invalid scalable topic {text!r}; expected topic:// or persistent://tenant/namespace/topic"
            )
        return cls(path, native=bool(separator) and domain == _SCALABLE)

    @property
    def scalable(self) -> str:
        """`topic://tenant/namespace/topic`."""
        return f"{_SCALABLE}://{self.path}"

    @property
    def layout_topic(self) -> str:
        """Topic to which a workflow publishes the layout."""
        return f"{_PERSISTENT}://{self.path}.scalable.layout"

    def segment_topic(self, descriptor: str) -> str:
        """Return the topic of a segment that a workflow controls.

        Args:
            descriptor: `{first hash}-{last hash}-{id}`.
        """
        return f"{_PERSISTENT}://{self.path}.scalable.{descriptor}"
