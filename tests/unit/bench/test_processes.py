"""The benchmark's view of processes, on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.lifecycle.processes import Meter, cpu_seconds, program, pss_bytes, rss_bytes, tree
from bench.memory.meter import MemoryMeter

_CHILD = """
import subprocess, sys, time
held = bytearray(b'x') * 60_000_000
command = [sys.executable, '-c', 'print(flush=True); input()']
inner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
# It takes its memory, and most of its processor time, until it prints.
inner.stdout.readline()
print(inner.pid, flush=True)
sys.stdin.readline()
begin = time.process_time()
while time.process_time() - begin < 0.5:
    pass
print('done', flush=True)
sys.stdin.readline()
inner.communicate(b'\\n')
"""


@pytest.fixture
def parent() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with a child; it burns half a second of processor time for each line of input."""
    process = subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, int(process.stdout.readline())
    process.communicate("\n\n", timeout=60)


def test_tree_holds_grandchildren(parent: tuple[subprocess.Popen[str], int]) -> None:
    """A process, its child and its grandchild are one tree, and nothing else is in it."""
    process, inner = parent
    assert tree([process.pid]) == {process.pid, inner}
    assert {os.getpid(), process.pid, inner} <= tree([os.getpid()])


def test_meter_sees_processor_time_and_memory(parent: tuple[subprocess.Popen[str], int]) -> None:
    """The meter reports the processor time of the measured section only, and at least the memory that is held."""
    process, _ = parent
    assert process.stdin is not None
    assert process.stdout is not None
    with Meter({"them": process.pid}) as meter:
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
    assert 0.2 < meter.cpu_seconds["them"] <= 0.7
    assert meter.peak_rss_bytes["them"] > 60_000_000


def test_processes_that_are_gone_count_nothing() -> None:
    """A process that has ended has no tree, no processor time and no memory."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert tree([process.pid]) == set()
    assert cpu_seconds([process.pid]) == 0
    assert rss_bytes([process.pid]) == 0


def test_memory_is_reported_by_role(parent: tuple[subprocess.Popen[str], int]) -> None:
    """The peak holds what the process at the top has, and what its children have next to it."""
    process, inner = parent
    with MemoryMeter(process.pid).peak() as usages:
        pass
    (usage,) = usages
    assert usage.worker >= 60_000_000
    assert 1_000_000 <= usage.executors < 60_000_000
    assert usage.driver == 0
    assert usage.total == usage.worker + usage.executors
    assert program(inner).startswith("python")
    assert pss_bytes(process.pid) <= rss_bytes([process.pid])


def test_a_process_that_has_ended_takes_nothing() -> None:
    """Of a process that is gone there is no memory and no name."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert (pss_bytes(process.pid), program(process.pid)) == (0, "")
