"""Changes on a real broker that arrive right after their fence or never: cut off, frozen, and redirected."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clients.errors import Superseded
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminConflict, AdminUnreachable
from clients.pulsar.admin.late_requests import change_or_never
from clients.pulsar.names import TopicName
from pulsar_devstack.servers.stack import StackSpec
from tests.support.clients.proxy import Proxy
from tests.support.stacks import SharedStack
from tests.support.waiting import wait_until_equal

NAMESPACE = "public/default"
NOT_SENT = 7
DEAD = "http://127.0.0.1:1"
_ACCESS = AdminAccess()
_CHILD_LIMIT = 60.0
_IDLE_SECONDS = 3
# Of a line in /proc/net/tcp. In this state the other side has closed the connection.
_STATE, _INODE, _CLOSE_WAIT = 3, 9, "08"


@pytest.fixture(scope="module")
def url(shared_stack: SharedStack) -> str:
    """The admin interface of a broker that closes connections without requests after three seconds, not thirty."""
    settings = {"httpServerIdleTimeout": str(_IDLE_SECONDS * 1000)}
    return shared_stack(StackSpec(zookeepers=1, bookies=1, brokers=1, broker_settings=settings)).admin_urls[0]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> TopicName:
    """A topic that does not exist."""
    return TopicName.parse(f"{NAMESPACE}/{request.node.name.replace('[', '-').strip(']')}")


def _create(urls: list[str], topic: TopicName, fence: Callable[[], object]) -> None:
    change_or_never(
        _ACCESS,
        urls,
        connect=lambda admin: admin.topics.names(NAMESPACE),
        fence=fence,
        change=lambda admin: admin.topics.create(topic),
    )


def _exists(url: str, topic: TopicName) -> bool:
    with PulsarAdmin.open(_ACCESS, [url]) as admin:
        return str(topic) in admin.topics.names(NAMESPACE)


def test_a_change_is_made_once_the_fence_has_been_asked(url: str, topic: TopicName) -> None:
    """The next address is asked where one cannot be reached, and the fence right before the change alone."""
    asked: list[bool] = []
    _create([DEAD, url], topic, lambda: asked.append(_exists(url, topic)))
    assert asked == [False]
    assert _exists(url, topic)


def test_a_superseded_attempt_sends_nothing(url: str, topic: TopicName) -> None:
    """The error of the fence reaches the caller, and no request is sent."""

    def fence() -> None:
        raise Superseded("a newer attempt has begun")

    with pytest.raises(Superseded):
        _create([url], topic, fence)
    assert not _exists(url, topic)


def test_an_answer_that_is_no_success_is_raised(url: str, topic: TopicName) -> None:
    """No other broker is asked then: this one has answered."""
    fences: list[int] = []
    _create([url], topic, lambda: fences.append(1))
    with pytest.raises(AdminConflict):
        _create([url, url], topic, lambda: fences.append(2))
    assert fences == [1, 2]


def test_a_connection_that_was_cut_is_not_opened_again(url: str, topic: TopicName) -> None:
    """A cut connection is not reopened, so that no request can be late; another broker is asked again."""
    with Proxy(url.removeprefix("http://")) as proxy:

        def cut() -> None:
            proxy.cut()
            proxy.heal()

        with pytest.raises(AdminUnreachable) as caught:
            _create([f"http://{proxy.address}"], topic, cut)
        assert not caught.value.sent
        assert not _exists(url, topic)
        fences: list[bool] = []

        def cut_once() -> None:
            if not fences:
                cut()
            fences.append(_exists(url, topic))

        _create([f"http://{proxy.address}", url], topic, cut_once)
    assert fences == [False, False]
    assert _exists(url, topic)


def test_nothing_arrives_of_a_worker_that_was_frozen(url: str, topic: TopicName) -> None:
    """A worker that froze after the fence, or at the socket, finds its connection closed by the broker."""
    frozen = {
        where: topic._replace(topic=f"{topic.topic}-{where.__name__}") for where in (_at_the_fence, _at_the_write)
    }
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=where, args=(url, name)) for where, name in frozen.items()]
    for child in children:
        child.start()
    for child in children:
        stat = Path(f"/proc/{child.pid}/stat")
        wait_until_equal(
            "a frozen worker", lambda stat=stat: stat.read_text().rpartition(")")[2].split()[0], "T", _CHILD_LIMIT
        )
    wait_until_equal(
        "closed connections", lambda: [_connections(child.pid) for child in children], [{_CLOSE_WAIT}] * 2, _CHILD_LIMIT
    )
    for child in children:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGCONT)
    for child in children:
        child.join(_CHILD_LIMIT)
    assert [child.exitcode for child in children] == [NOT_SENT] * 2
    assert [_exists(url, name) for name in frozen.values()] == [False] * 2


def _connections(pid: int | None) -> set[str]:
    """Return the states of the TCP connections of a process, as the kernel names them."""
    files = {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {row[_STATE] for row in rows if f"socket:[{row[_INODE]}]" in files}


# In processes of their own -------------------------------------------------------------------------------------------


def _at_the_fence(url: str, topic: TopicName) -> None:
    _late(lambda: _create([url], topic, _freeze))


def _at_the_write(url: str, topic: TopicName) -> None:
    send = socket.socket.send

    def freeze_and_send(self: socket.socket, *data: Any) -> int:
        _freeze()
        return send(self, *data)

    def fence() -> None:
        socket.socket.send = freeze_and_send

    _late(lambda: _create([url], topic, fence))


def _freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _late(work: Callable[[], None]) -> None:
    try:
        work()
    except AdminUnreachable:
        raise SystemExit(NOT_SENT) from None
