"""A stand-in for the REST server of a controller of ours, which is not part of this package.

It registers consumers, and gives each segment to one of them: round robin over active segments in the order of their
hashes, and over consumers in the order of their names. Segments that are sealed are given to all who ask while they are
not drained; the test says which are.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from pulsar_scalable.controlled.layout import ControlledLayout
from pulsar_scalable.layout import Segment
from pulsar_scalable.names import TopicName

pulsar: Any = importlib.import_module("pulsar")


class StandIn:
    """Plays the controller's part of sessions; a context manager.

    Args:
        broker_url: where assignments are published.
        topic: whose consumers register.
        layout: the topic's layout now.
        is_drained: whether a subscription needs a sealed segment no more.

    Attributes:
        consumers: those that are registered, with their kinds.
        requests: what was asked: method, path and token.
    """

    def __init__(
        self,
        broker_url: str,
        topic: TopicName,
        layout: Callable[[], ControlledLayout],
        is_drained: Callable[[Segment], bool],
    ) -> None:
        self._topic = topic
        self._layout = layout
        self._is_drained = is_drained
        self._client = pulsar.Client(broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._producer = self._client.create_producer(topic.layout_topic, batching_enabled=False)
        self._generation = 0
        self._told: dict[str, list[int]] = {}
        self._subscription = ""
        self._lock = threading.RLock()
        self.consumers: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._server.serve_forever, daemon=True),
            threading.Thread(target=self._coordinate, daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._threads[1].join()
        self._client.close()

    def evict(self, name: str) -> None:
        """Forget a consumer, and tell it."""
        with self._lock:
            del self.consumers[name]
            self._told.pop(name, None)
            self._publish(name, [], evicted=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(stand_in.join(self.path, body["kind"]))

            def do_DELETE(self) -> None:
                stand_in.leave(urlsplit(self.path).path)
                self._answer(None)

            def _answer(self, found: dict[str, Any] | None) -> None:
                stand_in.requests.append((self.command, self.path, self.headers.get("Authorization")))
                content = b"" if found is None else json.dumps(found).encode()
                self.send_response(204 if found is None else 200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
                """Say nothing."""

        return Handler

    def join(self, path: str, kind: str) -> dict[str, Any]:
        """Register a consumer; its assignment."""
        _, subscription, _, name = path.rsplit("/", 3)
        with self._lock:
            self._subscription = unquote(subscription)
            self.consumers[unquote(name)] = kind
            assigned = self._assigned()[unquote(name)]
            self._told[unquote(name)] = assigned
            self._generation += 1
            return self._told_as(assigned)

    def leave(self, path: str) -> None:
        """Forget a consumer."""
        with self._lock:
            name = unquote(path.rsplit("/", 1)[1])
            self.consumers.pop(name, None)
            self._told.pop(name, None)

    def _coordinate(self) -> None:
        while not self._stop.wait(0.2):
            with self._lock:
                for name, assigned in self._assigned().items():
                    if assigned != self._told.get(name):
                        self._told[name] = assigned
                        self._publish(name, assigned)

    def _assigned(self) -> dict[str, list[int]]:
        layout = self._layout()
        names = sorted(self.consumers)
        found: dict[str, list[int]] = {name: [] for name in names}
        waiting = {segment.id for segment in layout.segments if not segment.active and not self._is_drained(segment)}
        ready = [
            segment
            for segment in layout.segments
            if (segment.active or segment.id in waiting) and not waiting & _ancestors(layout, segment.id)
        ]
        for place, one in enumerate(sorted(ready, key=lambda one: (one.start, one.end, one.id))):
            if names:
                found[names[place % len(names)]].append(one.id)
        return found

    def _publish(self, name: str, assigned: list[int], *, evicted: bool = False) -> None:
        self._generation += 1
        content = json.dumps({**self._told_as(assigned), "evicted": evicted}).encode()
        self._producer.send(content, partition_key=f"assignment/{self._subscription}/{name}")

    def _told_as(self, assigned: list[int]) -> dict[str, Any]:
        layout = self._layout()
        segments = [
            {
                "segmentId": one.id,
                "hashRange": {"start": one.start, "end": one.end},
                "topic": layout.topic_of(one),
            }
            for one in (layout.by_id[number] for number in assigned)
        ]
        return {
            "createdMs": layout.created_ms,
            "layoutEpoch": layout.epoch,
            "generation": self._generation,
            "segments": segments,
        }


def _ancestors(layout: ControlledLayout, number: int) -> set[int]:
    found: set[int] = set()
    left = [number]
    while left:
        parents = layout.by_id[left.pop()].parents
        found.update(parents)
        left += parents
    return found
