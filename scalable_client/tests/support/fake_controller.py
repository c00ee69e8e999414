"""A fake of a controller's REST server, which is not part of this package.

It registers consumers, and assigns each segment to one of them: round robin over active segments in the order of their
hashes, and over consumers in the order of their names. A sealed segment is assigned until the test says that it is
drained.
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


class FakeController:
    """Fake controller that assigns segments to consumers; a context manager.

    Args:
        broker_url: service URL of the broker.
        topic: topic of the consumers.
        layout: returns the topic's current layout.
        is_drained: returns whether a sealed segment is drained.

    Attributes:
        consumers: kinds of the registered consumers, by name.
        requests: method, path and token of each request.
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
        self._published: dict[str, list[int]] = {}
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
        """Remove a consumer, and publish its eviction."""
        with self._lock:
            del self.consumers[name]
            self._published.pop(name, None)
            self._publish(name, [], evicted=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        controller = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(controller.join(self.path, body["kind"]))

            def do_DELETE(self) -> None:
                controller.leave(urlsplit(self.path).path)
                self._answer(None)

            def _answer(self, answer: dict[str, Any] | None) -> None:
                controller.requests.append((self.command, self.path, self.headers.get("Authorization")))
                content = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(204 if answer is None else 200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
                """Log nothing."""

        return Handler

    def join(self, path: str, kind: str) -> dict[str, Any]:
        """Register a consumer; return its assignment."""
        _, subscription, _, name = path.rsplit("/", 3)
        with self._lock:
            self._subscription = unquote(subscription)
            self.consumers[unquote(name)] = kind
            assigned = self._assigned()[unquote(name)]
            self._published[unquote(name)] = assigned
            self._generation += 1
            return self._assignment_body(assigned)

    def leave(self, path: str) -> None:
        """Remove a consumer."""
        with self._lock:
            name = unquote(path.rsplit("/", 1)[1])
            self.consumers.pop(name, None)
            self._published.pop(name, None)

    def _coordinate(self) -> None:
        while not self._stop.wait(0.2):
            with self._lock:
                for name, assigned in self._assigned().items():
                    if assigned != self._published.get(name):
                        self._published[name] = assigned
                        self._publish(name, assigned)

    def _assigned(self) -> dict[str, list[int]]:
        layout = self._layout()
        names = sorted(self.consumers)
        assigned: dict[str, list[int]] = {name: [] for name in names}
        waiting = {segment.id for segment in layout.segments if not segment.active and not self._is_drained(segment)}
        ready = [
            segment
            for segment in layout.segments
            if (segment.active or segment.id in waiting) and not waiting & _ancestors(layout, segment.id)
        ]
        for place, ready_segment in enumerate(
            sorted(ready, key=lambda segment: (segment.start, segment.end, segment.id))
        ):
            if names:
                assigned[names[place % len(names)]].append(ready_segment.id)
        return assigned

    def _publish(self, name: str, assigned: list[int], *, evicted: bool = False) -> None:
        self._generation += 1
        content = json.dumps({**self._assignment_body(assigned), "evicted": evicted}).encode()
        self._producer.send(content, partition_key=f"assignment/{self._subscription}/{name}")

    def _assignment_body(self, assigned: list[int]) -> dict[str, Any]:
        layout = self._layout()
        segments = [
            {
                "segmentId": segment.id,
                "hashRange": {"start": segment.start, "end": segment.end},
                "topic": layout.topic_of(segment),
            }
            for segment in (layout.by_id[number] for number in assigned)
        ]
        return {
            "createdMs": layout.created_ms,
            "layoutEpoch": layout.epoch,
            "generation": self._generation,
            "segments": segments,
        }


def _ancestors(layout: ControlledLayout, number: int) -> set[int]:
    ancestors: set[int] = set()
    pending = [number]
    while pending:
        parents = layout.by_id[pending.pop()].parents
        ancestors.update(parents)
        pending += parents
    return ancestors
