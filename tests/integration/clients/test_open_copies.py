"""Copying what is confirmed of ledgers whose writers continue."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import pytest

from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.cluster import Cluster, open_clusters
from clients.bookkeeper.copy_result import Begun, Verdict
from clients.bookkeeper.metadata import LedgerState
from clients.bookkeeper.open_copy import copy_open
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.recovery import recover_batch
from clients.bookkeeper.writer import LedgerWriter
from clients.errors import LedgerUnreadable
from clients.stores import Access
from models.ledger_store import parse_ledger_store_uri
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import StackSpec
from tests.support.clients.java_ledgers import HeldLedger, JavaLedgers, Ledger
from tests.support.stacks import MakeStack

PAYLOADS = [b"more %d" % number for number in range(30)]


class Place(NamedTuple):
    """One bookie in each cluster, and a Java client that writes to the source."""

    source: Cluster
    target: Cluster
    java: JavaLedgers
    uri: str

    def hold(self, **custom: bytes) -> HeldLedger:
        """Write twenty entries to a ledger with the client, and keep it open."""
        return self.java.hold(self.uri, Ledger(entries=20, custom=custom))


@pytest.fixture(scope="module")
def place(make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """Both clusters."""
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, second_bookies=1))
    source, target = (parse_ledger_store_uri(uri).url for uri in (stack.bookkeeper_uri, stack.second_bookkeeper_uri))
    with (
        JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as java,
        open_clusters(source, target, Access(), 5.0) as (mine, theirs),
    ):
        yield Place(mine, theirs, java, stack.bookkeeper_uri)


def test_open_ledger_is_copied_while_it_grows(place: Place) -> None:
    """Its writer continues; each time only what is new is copied, in the end the rest; a late attempt does no harm."""
    source, target, writer = place.source, place.target, place.hold(component=b"x")
    ids = [writer.ledger_id]
    sizes: list[int] = []

    [first] = copy_open(source, target, ids, {}, check=sizes.append)
    assert first.begun is not None
    writer.add(*PAYLOADS)
    [second] = copy_open(source, target, ids, {writer.ledger_id: first.begun}, check=lambda _: None)
    [third] = copy_open(source, target, ids, {writer.ledger_id: Begun(1, 7, mzxid=1)}, check=lambda _: None)
    assert second.begun is not None

    # The newest entry is confirmed by the one after it.
    assert (first.verdict, first.begun.through, first.entries) == (Verdict.OPEN, 18, 19)
    assert (second.begun.through, second.entries) == (48, 30)
    assert third.entries == 49, "what was known is of a copy on other bookies"
    assert sum(sizes) == first.bytes > 0
    (copy,) = target.directory.read(ids)
    assert copy is not None
    assert (copy.metadata.state, copy.metadata.custom_map) == (LedgerState.OPEN, {"component": b"x"})
    assert writer.add(b"the last") == 50

    assert recover_batch(source, ids) == []
    [done] = copy_batch(source, target, ids, begun={writer.ledger_id: second.begun})
    assert (done.verdict, done.entries) == (Verdict.COPIED, 2)
    (original,) = source.directory.read(ids)
    (closed,) = target.directory.read(ids)
    assert original is not None
    assert closed is not None
    assert original.metadata.same_content(closed.metadata)
    bodies = [body for entry in LedgerReader(source.bookies).entries(ids[0], original.metadata) for body in entry]
    late = LedgerWriter(target.bookies)
    late.add(ids[0], copy.metadata, 0, bodies[:20])
    late.flush()
    assert [body for entry in LedgerReader(target.bookies).entries(ids[0], closed.metadata) for body in entry] == bodies
    assert len(bodies) == 51
    assert copy_open(source, target, ids, {}, check=lambda _: None) == []


def test_a_copy_that_was_only_created_is_known(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The original may be deleted before it is closed; what was created of its copy can be removed by its node then."""
    source, target, writer = place.source, place.target, place.hold()
    ids = [writer.ledger_id]

    def vanish(*_: object) -> Iterator[list[bytes]]:
        raise LedgerUnreadable("the ledger was deleted")

    with monkeypatch.context() as patched:
        patched.setattr(LedgerReader, "entries", vanish)
        [created] = copy_open(source, target, ids, {}, check=lambda _: None)
    (copy,) = target.directory.read(ids)
    assert copy is not None
    nothing = Begun(-1, 0, copy.mzxid)
    assert created.begun == nothing
    [done] = copy_open(source, target, ids, {writer.ledger_id: nothing}, check=lambda _: None)
    assert done.begun is not None
    assert (done.entries, done.begun.through) == (19, 18)
    with monkeypatch.context() as patched:
        patched.setattr(LedgerReader, "entries", vanish)
        writer.add(b"more")
        [same] = copy_open(source, target, ids, {writer.ledger_id: done.begun}, check=lambda _: None)
    assert same.begun == done.begun, "what was compared stays known"
