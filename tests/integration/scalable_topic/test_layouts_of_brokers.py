"""Layouts and hashes, compared with the code of brokers."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest

from models.segments.layout import SegmentLayout, key_hash
from pulsar_devstack.servers.child_programs import Refused
from pulsar_devstack.servers.toolchain import Toolchain
from tests.support.scalable_topic.layouts import JavaLayouts, Step, random_steps

pytestmark = pytest.mark.exhaustive

_KEYS = 10_000


@pytest.fixture(scope="module")
def java(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[JavaLayouts]:
    """The broker's own code."""
    with JavaLayouts(toolchain, tmp_path_factory.mktemp("layouts")) as program:
        yield program


@pytest.mark.parametrize("seed", range(8))
def test_changes_leave_the_same_bytes(java: JavaLayouts, seed: int) -> None:
    """After each of many splits, merges, rebuckets and prunes the stored value is the broker's, byte for byte."""
    chooser = random.Random(seed)
    count = chooser.randint(1, 9)
    names = [f"persistent://t/n/x-partition-{number}" for number in range(count)]
    begin = SegmentLayout.migrated(names, 999) if seed % 2 else SegmentLayout.initial(count, 999)
    done = list(random_steps(begin, chooser, 40))
    expected = java.change(begin.encode(), [step for step, _ in done])
    assert [layout.encode() for _, layout in done] == expected
    assert all(SegmentLayout.parse(value).encode() == value for value in expected)


def test_what_brokers_refuse(java: JavaLayouts) -> None:
    """Changes that our model refuses are refused by brokers."""
    layout = SegmentLayout.initial(3, 999)
    for step in (Step("split", (7,), 1), Step("merge", (0, 2), 1), Step("prune", (0,), 1)):
        with pytest.raises(ValueError, match="segment"):
            step.after(layout)
        with pytest.raises(Refused):
            java.change(layout.encode(), [step])


def test_keys_have_the_same_hash(java: JavaLayouts) -> None:
    """Clients in Java and we choose the same segment for a key, also for keys that are not ASCII."""
    chooser = random.Random(475)
    alphabets = ("abcdefghijklmnopqrstuvwxyz0123456789-", "äöüßéλжü漢字🙂", '\x00\t\n"\\ ')
    keys = ["".join(chooser.choices(chooser.choice(alphabets), k=chooser.randint(0, 40))) for _ in range(_KEYS)]
    assert [key_hash(key) >> 16 for key in keys] == java.hashes(keys)
