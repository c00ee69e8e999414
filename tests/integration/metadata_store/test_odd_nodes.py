"""Nodes as no cluster has them, and nodes that change while they are copied: ZooKeeper to Oxia without any service."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for

CLUSTER = "odd"
SIBLINGS = 3_000
MB = 1_000_000
# Nothing that a registry, a terminal or a regular expression would like.
NAMES = [
    "ünïcödé",
    "日本語",
    "with space",
    "a+b=c&d",
    "%2F",
    "..."[:2] + "x",
    "'quoted\"",
    "back\\slash",
    "{json}",
    "😀"[:0] + "é",
]


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two stores, and an Oxia with shards."""
    return make_stack(StackSpec(zookeepers=1, oxias=1, oxia_shards=2, cluster=CLUSTER))


def test_odd_and_changing_nodes_arrive(stack: Stack, environment: Environment) -> None:
    """Every odd node is unchanged in the target; changes, moves and deletions of a writer during the copy arrive."""
    input = MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "accept": stores.OTHER_ROOTS,
            "source": stack.zk_url,
            "target": stack.oxia_url,
            "validation_window": "PT0S",
            "throttle": 4.0,
            "allow_no_brokers": True,
        }
    )
    with stores.kazoo(stack.zk_url) as source:
        _odd_nodes(source)
        _siblings(source)
        zxid, empty = stores.last_zxid(stack.zk_url), stores.read_oxia(stack.oxia_url, without_coordinator=False)
        assert environment.operator.run(input.model_copy(update={"dry_run": True})).summary.startswith("ready:")
        assert stores.last_zxid(stack.zk_url) == zxid
        assert stores.read_oxia(stack.oxia_url, without_coordinator=False) == empty == {}

        run = environment.operator.start(input)
        with stores.kazoo(stack.zk_url) as client, _Churn(source) as churn:
            run.wait_for_phase(Phase.PRE_COPY)
            # After PRECHECK, which would refuse it.
            client.create("/odd/session", b"gone with me", ephemeral=True)
            before = churn.done
            wait_for("changes during the copy", lambda: churn.done > before + 1_000, 60)
            run.wait_until("the session's name", lambda status: "/odd/session" in str(status.waiting))
        report = run.result()
        tree = stores.read_zookeeper(stack.zk_url)
    assert report.outcome is Outcome.DONE
    assert stores.assert_equal(tree, stores.read_oxia(stack.oxia_url)) > SIBLINGS
    assert report.figures["catch_up_rounds"] >= 1


def _odd_nodes(source: Any) -> None:
    # Without a cluster it would be the store of BookKeeper alone.
    source.ensure_path(f"/admin/clusters/{CLUSTER}")
    source.create("/odd/empty", b"", makepath=True)
    source.create("/odd/binary", bytes(range(256)) * 4)
    source.create("/odd/large", random.Random(1).randbytes(MB))
    source.create("/odd/wide", b"", makepath=True)
    for name in NAMES:
        source.create(f"/odd/wide/{name}", name.encode())
    source.create("/" + "/".join(f"d{depth}" for depth in range(200)), b"bottom", makepath=True)
    source.create("/odd/long-" + "n" * 1_000, b"name")
    _sequences(source)
    for number in range(30):
        source.set("/odd/binary", b"%d" % number)


def _sequences(source: Any) -> None:
    """Create parents whose next number counts, with children that exist and children that were deleted."""
    for parent in ("/ledgers/idgen", "/ledgers/idgen-long/HOB-0000000001", "/counters/producer-name"):
        source.ensure_path(parent)
        for _ in range(7):
            source.delete(source.create(f"{parent}/ID-", b"", sequence=True))
        source.create(f"{parent}/ID-", b"", sequence=True)
    source.ensure_path("/odd/sequence")
    for _ in range(5):
        source.create("/odd/sequence/n-", b"kept", sequence=True)


def _siblings(source: Any) -> None:
    source.ensure_path("/odd/siblings")
    for start in range(0, SIBLINGS, 1_000):
        asked = [source.create_async(f"/odd/siblings/{n:05}", b"%d" % n) for n in range(start, start + 1_000)]
        for answer in asked:
            answer.get(timeout=30)


class _Churn(BackgroundThread):
    """Changes, creates, deletes and recreates nodes without a rest.

    Attributes:
        done: number of changes so far.
    """

    def __init__(self, source: Any) -> None:
        super().__init__("churn", 0)
        self.done = 0
        self._source = source

    def work(self) -> None:
        """Change nodes."""
        draw = random.Random(7)
        for _ in self.ticks():
            _change(self._source, draw)
            self.done += 1


def _change(source: Any, draw: random.Random) -> None:
    """Make one change, of a kind that fits the existing nodes."""
    path = f"/odd/siblings/{draw.randrange(SIBLINGS):05}"
    fresh = f"/odd/churn/{draw.randrange(50)}"
    try:
        match draw.randrange(6):
            case 0:
                source.set(path, draw.randbytes(40))
            case 1:
                source.delete(path)
            case 2:
                source.delete(path)
                source.create(path, b"again")
            case 3:
                source.create(f"{fresh}/leaf-{draw.randrange(20)}", b"new", makepath=True)
            case 4:
                source.delete(fresh, recursive=True)
            case _:
                source.create("/odd/sequence/n-", b"during the copy", sequence=True)
    except (NoNodeError, NodeExistsError):
        return
