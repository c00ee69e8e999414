"""The dev stack's promises, on real servers."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.testing import WorkflowEnvironment

from clients.pulsar.admin.errors import AdminError
from pulsar_devstack.errors import ServerFailed, StackConflict
from pulsar_devstack.plain_links import plain_ports
from pulsar_devstack.servers import processes
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.containers import ContainerStack
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_until_equal

SPEC = StackSpec(zookeepers=1, bookies=1, brokers=1, oxias=1, temporal=True)
# Neither of these libraries has types.
pulsar: Any = importlib.import_module("pulsar")
kazoo: Any = importlib.import_module("kazoo.client")
TOPIC = "persistent://public/default/devstack"


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """One of each server."""
    return make_stack(SPEC)


def until(holds: Callable[[], bool], limit: float = 60.0) -> bool:
    """Return whether the condition becomes true within the limit, in seconds."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def read_znode(stack: Stack, path: str) -> bytes:
    """Return a node's value, over a connection of its own."""
    client = kazoo.KazooClient(stack.zk_url.removeprefix("zk:"), timeout=5)
    client.start(timeout=10)
    try:
        return client.get(path)[0]
    finally:
        client.stop()
        client.close()


def test_all_servers_are_ready(stack: Stack) -> None:
    """Every server of the spec answers its probe, and the Web UI its page."""
    # A probe takes a second at most, and a busy machine may take longer for an answer.
    ready = dict.fromkeys(SPEC.names, "ready")
    wait_until_equal("the servers", lambda: {row.name: row.state for row in stack.status()}, ready, 60)
    assert httpx.get(stack.temporal_ui, timeout=60, follow_redirects=True, trust_env=False).is_success


def test_ports_without_tls_are_found(stack: Stack) -> None:
    """Each port of Pulsar's servers serves a client without TLS."""
    names = ["zookeeper-1.client", "bookie-1.client", "bookie-1.http", "broker-1.client", "broker-1.http"]
    # A server has a second, and the first connection may take longer.
    wait_until_equal("the ports", lambda: plain_ports(stack), names, 60)


def test_messages_survive_kills_of_bookie_and_broker(stack: Stack) -> None:
    """Acknowledged messages can be read after a bookie and a broker were killed and started on the same data."""
    before = {row.name: row.ports for row in stack.status()}
    client = pulsar.Client(stack.broker_url, operation_timeout_seconds=30)
    client.subscribe(TOPIC, "reader", initial_position=pulsar.InitialPosition.Earliest).close()
    client.create_producer(TOPIC).send(b"kept")
    client.close()

    stack["broker-1"].kill()
    stack["bookie-1"].kill()
    assert not stack["broker-1"].alive
    assert [*stack["bookie-1"].folder.glob("data/librocksdbjni*")], "what Java unpacked goes with the stack's folder"
    stack["bookie-1"].start()
    stack["broker-1"].start()

    assert {row.name: row.ports for row in stack.status()} == before
    client = pulsar.Client(stack.broker_url, operation_timeout_seconds=30)
    try:
        assert client.subscribe(TOPIC, "reader").receive(timeout_millis=30_000).data() == b"kept"
    finally:
        client.close()


def test_zookeeper_keeps_nodes_over_a_kill(stack: Stack) -> None:
    """A node written before SIGKILL is read after the start."""
    client = kazoo.KazooClient(stack.zk_url.removeprefix("zk:"), timeout=5)
    client.start(timeout=10)
    client.create("/kept", b"value")
    client.stop()
    client.close()

    stack["zookeeper-1"].kill()
    stack["zookeeper-1"].start()

    assert read_znode(stack, "/kept") == b"value"


def test_a_paused_server_is_alive_and_silent(stack: Stack) -> None:
    """A paused server keeps its process, does not answer, and answers again after resume."""
    oxia = stack["oxia-1"]
    oxia.pause()
    assert (oxia.alive, oxia.status().state, oxia.ready) == (True, "paused", False)
    oxia.resume()
    assert until(lambda: oxia.ready)


def test_another_shell_sees_and_restarts_servers(stack: Stack) -> None:
    """A stack opened from its folder shows the same processes, and its verbs act on them."""
    if isinstance(stack, ContainerStack):
        pytest.skip("containers belong to the process that started them")
    other = Stack.open(stack.folder)
    assert [row.pid for row in other.status()] == [row.pid for row in stack.status()]
    before = stack["temporal"].pid
    other["temporal"].kill()
    assert not stack["temporal"].alive
    other["temporal"].start()
    assert stack["temporal"].pid not in (None, before)
    assert until(lambda: stack["temporal"].ready)


def test_a_running_stack_is_not_started_twice(stack: Stack, toolchain: Toolchain) -> None:
    """A second stack in the folder of a running one is refused."""
    with pytest.raises(StackConflict, match="another stack"):
        Stack(SPEC, stack.folder, toolchain)


def test_a_server_that_cannot_start_shows_its_log(make_stack: MakeStack) -> None:
    """A broken setting ends the start at once, with the server's name, exit code and own message."""
    begin = time.monotonic()
    with pytest.raises(ServerFailed) as failure:
        make_stack(StackSpec(zookeepers=1, zookeeper_settings={"tickTime": "nonsense"}))
    # Long before the time for a start is over.
    assert time.monotonic() - begin < 120
    assert (failure.value.name, failure.value.exit_code) == ("zookeeper-1", 2)
    assert "nonsense" in "\n".join(failure.value.tail)


def test_a_server_that_hangs_at_its_start_shows_where(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not ready in time is asked for the stack of its main thread."""
    server = next(each for each in stack if each.name == "bookie-1")
    server.kill()
    before = len(server.log.read_bytes())

    def never() -> bool:
        # Once it logs, it answers signals.
        assert until(lambda: len(server.log.read_bytes()) > before, 60)
        return False

    late = replace(server.plan(), ready=never, start_limit=0.0)
    monkeypatch.setattr(server, "plan", lambda: late)
    with pytest.raises(ServerFailed, match='"main" '):
        server.start()
    monkeypatch.undo()
    server.restart()


def test_settings_change_with_a_restart(make_stack: MakeStack) -> None:
    """`reconfigure` restarts the server with the new line and leaves its data."""
    stack = make_stack(StackSpec(second_zookeepers=1))
    server = stack["second-zookeeper-1"]
    before = server.pid
    stack.reconfigure(server.name, tickTime="1500")
    assert server.pid not in (None, before)
    assert "tickTime=1500" in (server.folder / "zoo.cfg").read_text()


def test_no_server_survives_its_parent(tmp_path: Path, toolchain: Toolchain) -> None:
    """When the process that started a stack is killed, the kernel kills the servers, paused ones too."""
    script = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from pulsar_devstack.servers.provision import provision\n"
        "from pulsar_devstack.servers.stack import Stack, StackSpec\n"
        "stack = Stack(StackSpec(oxias=2), Path(sys.argv[1]), provision())\n"
        "stack.up()\n"
        "stack['oxia-2'].pause()\n"
        "print(*(server.pid for server in stack), flush=True)\n"
        "signal.pause()\n"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert [processes.inspect(pid) is not None for pid in pids] == [True, True]
        parent.send_signal(signal.SIGKILL)
    assert until(lambda: all(processes.inspect(pid) is None for pid in pids))


def test_a_detached_stack_outlives_its_parent(tmp_path: Path, toolchain: Toolchain) -> None:
    """With `detach` the servers stay when the process ends, until another shell stops them."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pulsar_devstack.servers.provision import provision\n"
        "from pulsar_devstack.servers.stack import Stack, StackSpec\n"
        "Stack(StackSpec(oxias=1), Path(sys.argv[1]), provision(), detach=True).up()\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=root, check=True, timeout=60)
    stack = Stack.open(tmp_path)
    try:
        assert until(lambda: stack["oxia-1"].ready)
    finally:
        stack.down()
    assert not stack["oxia-1"].alive


@pytest.mark.exhaustive
def test_pulsar_on_oxia_survives_a_kill_and_takes_another_broker(make_stack: MakeStack) -> None:
    """Data that a broker has written to Oxia survives a kill of Oxia, for the old broker and for a new one."""
    stack = make_stack(StackSpec(oxias=1, oxia_shards=2, bookies=1, brokers=1, metadata="oxia"))
    with StackAdmin(stack.admin_urls[0]) as admin:
        admin.create_tenant("kept", stack.state.spec.cluster)

    stack["oxia-1"].kill()
    stack["oxia-1"].start()
    added = stack.add("broker-2")

    def has_tenant(admin_url: str) -> bool:
        try:
            with StackAdmin(admin_url, timeout=10) as admin:
                return "kept" in admin.tenants.names()
        except AdminError:
            return False

    assert (added.name, len(stack.admin_urls)) == ("broker-2", 2)
    assert all(until(lambda url=url: has_tenant(url), 60) for url in stack.admin_urls)


async def test_the_test_server_skips_time(toolchain: Toolchain) -> None:
    """Temporal's test server starts from the toolchain, and a day passes in less than a minute."""
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(toolchain.test_server), test_server_startup_timeout=timedelta(minutes=2)
    ) as environment:
        begin = time.monotonic()
        before = await environment.get_current_time()
        await environment.sleep(timedelta(days=1))
        assert await environment.get_current_time() - before >= timedelta(days=1)
        assert time.monotonic() - begin < 60
