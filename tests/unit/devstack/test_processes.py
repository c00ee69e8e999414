"""Processes are known by more than their number, and ports stay with their stack."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_devstack.errors import StackConflict
from pulsar_devstack.servers import processes
from pulsar_devstack.servers.containers import image_of, security_folders, shell_command
from pulsar_devstack.servers.plans import ServerPlan
from pulsar_devstack.servers.ports import PortBlock
from pulsar_devstack.servers.processes import ProcessId, ProcessRecord, ProcessRunner
from pulsar_devstack.servers.spec import PulsarSecurity, StackSpec
from tests.support.waiting import timeout_for

SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]


def test_a_reused_number_is_another_process() -> None:
    """A record with another start time is dead, whatever runs under its number, and a signal to it has no effect."""
    with subprocess.Popen(SLEEP, start_new_session=True) as child:
        inspected = processes.inspect(child.pid)
        assert inspected is not None
        same, other = ProcessId(pid=child.pid, started=inspected[1]), ProcessId(pid=child.pid, started="1")
        assert (same.alive, other.alive) == (True, False)
        other.send(signal.SIGKILL)
        assert child.poll() is None
        same.send(signal.SIGKILL)
        assert child.wait(timeout=timeout_for(60)) == -signal.SIGKILL
    assert not same.alive


def test_a_dead_child_that_was_not_reaped_is_dead() -> None:
    """A zombie can do nothing any more and counts as gone."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.inspect(child.pid) is None


def test_verbs_of_a_process(tmp_path: Path) -> None:
    """Start, pause, stop of a paused one, and kill do what they say; the exit code tells which signal it was."""
    runner = ProcessRunner("sleeper", tmp_path, tmp_path / "log", detach=False)
    plan = ServerPlan(name="sleeper", command=SLEEP, ready=None)
    assert (runner.pid, runner.exit_code) == (None, None)
    runner.start(plan)
    assert (runner.pid is not None, runner.paused) == (True, False)
    runner.pause()
    assert runner.paused
    assert runner.stop(60)
    assert (runner.pid, runner.exit_code) == (None, -signal.SIGTERM)
    runner.start(plan)
    runner.kill()
    assert (runner.pid, runner.exit_code) == (None, -signal.SIGKILL)


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    """A missing program ends the start with its name in the log."""
    runner = ProcessRunner("none", tmp_path, tmp_path / "log", detach=False)
    runner.start(ServerPlan(name="none", command=["/no/such/program"], ready=None))
    process = ProcessRecord(tmp_path / "process.json").read()
    assert process is None or processes.wait_gone(process, None, 60)
    assert "cannot run /no/such/program" in processes.tail(tmp_path / "log", 1)[0]


def test_two_stacks_never_share_a_block_of_ports() -> None:
    """A held block is refused to others and free again after its release; ports in use are passed over."""
    block = PortBlock()
    with pytest.raises(StackConflict, match="held by another stack"):
        PortBlock(block.first)
    first = block.take(set())
    # A server may listen where connections of an earlier stack linger.
    with socket.create_server(("127.0.0.1", first)):
        assert block.take(set()) > first
    assert block.take({first}) > first
    block.release()
    PortBlock(block.first).release()


def test_containers_see_certificates_and_keys() -> None:
    """The folders of all files of a stack's security are known to its containers; a plain stack has none."""
    security = PulsarSecurity(
        authorities=Path("/authorities/ca.pem"),
        server=Path("/servers/server.pem"),
        client=Path("/servers/client.pem"),
        token_key=Path("/keys/token.secret"),
        broker_role="brokers",
        bookie_role="bookies",
    )
    spec = StackSpec(zookeepers=1, bookies=1, brokers=1, pulsar_security=security)
    assert security_folders(spec) == {Path("/authorities"), Path("/servers"), Path("/keys")}
    assert security_folders(spec.model_copy(update={"pulsar_security": None})) == frozenset()


def test_containers_run_the_images_own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command keeps its arguments, quoted, and takes program, jars and image from the settings."""
    plan = ServerPlan(
        name="zookeeper-1",
        command=["/jdk/java", "-XX:SharedArchiveFile=/a.jsa", "-cp", "/jars/*", "Main", "a b"],
        ready=None,
    )
    command = shell_command(plan, "ZOOKEEPER", Path("/stack/log"))
    assert command == "exec java -cp \"$(echo /apache-zookeeper-*/lib)/*\" Main 'a b' >> /stack/log 2>&1"
    monkeypatch.setenv("PULSAR_MIGRATE_IMAGE_OXIA", "mine/oxia:1")
    assert (image_of("OXIA"), image_of("ZOOKEEPER")) == ("mine/oxia:1", "zookeeper:3.9")
