"""Who owns a topic, as redirects have told: the next request for it goes there at once."""

from __future__ import annotations

import re
import time

import httpx

_TOPIC = re.compile(r"/admin/v2/(?:non-)?persistent/[^/]+/[^/]+/[^/]+")
_MOST = 1000
_SECONDS = 20.0
"""How long it counts: a broker sends on what is not its own, but an address may be given to another cluster."""


class Owners:
    """What the redirects of one session have told; for many threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[httpx.URL, float]] = {}

    def take(self, url: httpx.URL) -> httpx.URL | None:
        """The same address at the broker to which the last request for its topic was sent on; None for none.

        It is forgotten, until it has answered well: another broker may own the topic now.
        """
        broker, until = self._known.pop(_key(url), (None, 0.0))
        if broker is None or time.monotonic() > until:
            return None
        return url.copy_with(scheme=broker.scheme, host=broker.host, port=broker.port)

    def learn(self, asked: httpx.URL, answered: httpx.URL) -> None:
        """A request was answered where it was sent on to."""
        if key := _key(asked):
            if len(self._known) >= _MOST:
                # A step goes through all topics of a cluster, and asks few of them soon again.
                self._known.clear()
            self._known[key] = (answered, time.monotonic() + _SECONDS)


def _key(url: httpx.URL) -> str:
    """The topic with the broker that was asked, since another cluster may have one of its name."""
    found = _TOPIC.match(url.raw_path.decode())
    return f"{url.scheme}://{url.netloc.decode()}{found[0]}" if found else ""
