"""Consumers keep their registration with a controller: assignments in the layout topic, answers over HTTP."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler
from typing import Any, Self, cast

import pytest

from models.topic_controller.record import ControlledLayout as Record
from models.topic_controller.record import PublishedLayout
from models.topic_controller.sessions import ConsumerAssignment, assignment_of
from pulsar_scalable.controlled import rest
from pulsar_scalable.controlled.layout import LAYOUT_KEY, AssignmentMessage, assignment_key
from pulsar_scalable.controlled.library import Library, pulsar
from pulsar_scalable.controlled.rest import ConsumerKey, RestAccess
from pulsar_scalable.controlled.sessions import ControlledSession
from pulsar_scalable.enums import ConsumerKind
from pulsar_scalable.names import TopicName
from pulsar_scalable.native.registration import Assignment
from tests.support.http_server import HttpServer
from tests.support.waiting import wait_for, wait_until_equal

TOPIC = TopicName("public/default/orders")
CONSUMER = ConsumerKey(TOPIC, "bill", "one", "instance-1")
KEY = assignment_key(CONSUMER.subscription, CONSUMER.name)
OLD, NEW = 1000, 2000
_LIMIT = 20.0
_LEDGER = 7


class Said:
    """A message of the layout topic."""

    def __init__(self, key: str, content: bytes, entry: int) -> None:
        self._key, self._content, self._entry = key, content, entry

    def message_id(self) -> Said:
        """Return the id."""
        return self

    def ledger_id(self) -> int:
        """Return the id of the only ledger."""
        return _LEDGER

    def entry_id(self) -> int:
        """Return its number."""
        return self._entry

    def batch_index(self) -> int:
        """Return -1: there are no batches."""
        return -1

    def partition_key(self) -> str:
        """Return the key."""
        return self._key

    def data(self) -> bytes:
        """Return the content."""
        return self._content


class LayoutTopic:
    """Fake of pulsar-client's client and reader, with their topic."""

    def __init__(self) -> None:
        self._messages = deque[Said]()
        self.shared = self
        self.stored = self.opened = self.looks = 0
        self.there = True

    def store(self, key: str, content: bytes) -> None:
        """Store a message."""
        self._messages.append(Said(key, content, self.stored))
        self.stored += 1

    def tell(self, key: str, content: bytes) -> None:
        """Store a message, and wait until it is read."""
        self.store(key, content)
        wait_for("it is read", lambda: not self._messages, _LIMIT)

    def layout(self, created_ms: int, *, deleted: bool = False) -> None:
        """Publish a layout of two segments."""
        record = Record.created(2, {}, created_ms).model_copy(update={"deleting": deleted})
        self.tell(LAYOUT_KEY, PublishedLayout.of(record).encode())

    def end_of(self, topic: str) -> tuple[int, int] | None:
        """Return the topic's last entry."""
        assert topic == TOPIC.layout_topic
        self.looks += 1
        return (_LEDGER, self.stored - 1) if self.there else None

    def create_reader(self, *_: object, **__: object) -> LayoutTopic:
        """Open it."""
        self.opened += 1
        self.there = True
        return self

    def read_next(self, timeout_millis: int) -> Said:
        """Return the next message."""
        if not self._messages:
            time.sleep(timeout_millis / 10_000)
            raise pulsar.Timeout("nothing")
        return self._messages.popleft()

    def has_message_available(self) -> bool:
        """Return whether there is a next message."""
        return bool(self._messages)

    def is_connected(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the reader."""


class World:
    """A controller, its layout topic, and a consumer.

    Attributes:
        registered: what was answered, in order.
        before_answer: called once before the next answer is sent.
        broken: answers that are sent in its place, one after the other.
        reported: assignments that the consumer received.
        left: how often it said that it leaves.
        instances: that it said it is, when it registered and when it left.
    """

    def __init__(self) -> None:
        self.topic = LayoutTopic()
        self.created_ms = OLD
        self.registered: list[ConsumerAssignment] = []
        self.before_answer: Callable[[], None] | None = None
        self.broken: list[bytes] = []
        self.reported: list[tuple[int, ...]] = []
        self.left = 0
        self.instances: list[str] = []
        self._generation = 0
        self._server = HttpServer(_handler(self))

    def __enter__(self) -> Self:
        self._server.__enter__()
        self.topic.store(LAYOUT_KEY, PublishedLayout.of(Record.created(2, {}, OLD)).encode())
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)

    def register(self) -> bytes:
        """Answer a registration."""
        self._generation += 1
        record = Record.created(2, {}, self.created_ms)
        self.registered.append(assignment_of(str(TOPIC.path), record, self._generation, (0, 1)))
        answer = self.registered[-1].model_dump_json(by_alias=True).encode()
        if self.before_answer is not None:
            act, self.before_answer = self.before_answer, None
            act()
        return answer

    def evict(self, *, read: bool = True) -> None:
        """Remove the consumer, and wait until a reader can notice it."""
        self._generation += 1
        ended = self.registered[-1].model_copy(update={"evicted": True, "segments": (), "generation": self._generation})
        (self.topic.tell if read else self.topic.store)(KEY, ended.model_dump_json(by_alias=True).encode())

    def session(self, token: Callable[[], str] | None = None) -> ControlledSession:
        """Create the consumer's session."""
        access = RestAccess((self._server.base_url,), token, 5, None)
        return ControlledSession(
            cast("Library", self.topic), access, CONSUMER, ConsumerKind.STREAM, self._assigned, timeout=_LIMIT
        )

    def _assigned(self, assignment: Assignment) -> None:
        self.reported.append(tuple(segment.id for segment in assignment.segments))


def _handler(world: World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            world.instances.append(asked["instance"])
            body = world.register()
            if world.broken:
                self.wfile.write(world.broken.pop())
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            world.left += 1
            world.instances.append(self.path.partition("?instance=")[2])
            self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Log nothing."""

    return Handler


@pytest.fixture
def world() -> Generator[World]:
    """A topic that has a layout."""
    with World() as world:
        yield world


def test_forgotten_before_the_first_answer(world: World) -> None:
    """An eviction that comes before the first answer leads to a second registration."""
    world.before_answer = world.evict
    session = world.session()
    wait_until_equal("the second registration", lambda: len(world.registered), 2, _LIMIT)
    wait_until_equal("its assignment", lambda: world.reported[-1], (0, 1), _LIMIT)
    assert (0, 1) in world.reported
    session.detach()


def test_forgotten_before_a_later_answer(world: World) -> None:
    """An eviction that comes during a second registration leads to a third one."""
    session = world.session()
    world.before_answer = world.evict
    world.evict()
    wait_until_equal("the third registration", lambda: len(world.registered), 3, _LIMIT)
    wait_until_equal("its assignment", lambda: world.reported, [(0, 1), (), (0, 1), (), (0, 1)], _LIMIT)
    session.detach()


@pytest.mark.parametrize("answer", [b"", b"gibberish\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"])
def test_answers_that_break(world: World, answer: bytes) -> None:
    """Broken answers are requested again, the first one and later ones."""
    world.broken = [answer]
    session = world.session()
    assert len(world.registered) == 2
    world.broken = [answer]
    world.evict()
    wait_until_equal("its assignment", lambda: world.reported, [(0, 1), (), (0, 1)], _LIMIT)
    session.detach()


def test_a_registration_that_fails_of_anything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer waits for it alone, so it is tried again."""
    session = world.session()
    join, failures = rest.join, [RuntimeError("unexpected")]

    def fail_once(*said: Any) -> AssignmentMessage:
        if failures:
            raise failures.pop()
        return join(*said)

    monkeypatch.setattr(rest, "join", fail_once)
    world.evict()
    wait_until_equal("its assignment", lambda: world.reported, [(0, 1), (), (0, 1)], _LIMIT)
    session.detach()


def test_a_function_for_tokens_that_fails(world: World) -> None:
    """A token function that fails is called again."""
    session = world.session(_token_that_fails_once())
    world.evict()
    wait_until_equal("its assignment", lambda: world.reported, [(0, 1), (), (0, 1)], _LIMIT)
    session.detach()


def test_a_consumer_that_was_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long absence it registers again, because messages may be missing, and keeps its assignment."""
    session = world.session()
    monkeypatch.setattr("pulsar_scalable.controlled.follower._AWAY", 0.0)
    wait_for("the second registration", lambda: len(world.registered) > 1, _LIMIT)
    session.detach()
    assert world.reported == [(0, 1)]


def test_an_eviction_of_an_earlier_life(world: World) -> None:
    """An older eviction in the layout topic does not end a newer registration."""
    world.register()
    world.evict(read=False)
    session = world.session()
    world.topic.layout(OLD)
    assert (len(world.registered), world.reported) == (2, [(0, 1)])
    session.detach()


@pytest.mark.parametrize("goes_soon", [True, False])
def test_a_topic_that_was_created_again(world: World, *, goes_soon: bool) -> None:
    """The controller of a recreated topic does not know the consumer, so the consumer registers again."""
    session = world.session()
    world.topic.layout(OLD, deleted=True)
    world.topic.there = not goes_soon
    wait_for("it is looked for", lambda: world.topic.looks > 1, _LIMIT)
    assert (world.topic.opened, len(world.registered)) == (1, 1)
    world.topic.there, world.created_ms = True, NEW
    world.topic.layout(NEW)
    wait_until_equal("the second registration", lambda: len(world.registered), 2, _LIMIT)
    wait_until_equal("its assignment", lambda: session.assignment.incarnation, NEW, _LIMIT)
    session.detach()


def _token_that_fails_once() -> Callable[[], str]:
    answers = iter(["first", None, "third"])

    def token() -> str:
        answer = next(answers)
        if answer is None:
            raise RuntimeError("no token now")
        return answer

    return token


def test_a_consumer_that_leaves_while_it_registers_again(world: World) -> None:
    """A consumer unregisters again, because its registration may have arrived after the end of its session."""
    session = world.session()
    world.before_answer = session.leave
    world.evict(read=False)
    wait_until_equal("it leaves again", lambda: world.left, 2, _LIMIT)
    assert {*world.instances} == {CONSUMER.instance}
