"""Copying what is confirmed of ledgers whose writers go on."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from clients.bookkeeper.batch_copy import copy_batch
from clients.bookkeeper.bulk_recovery import recover_batch
from clients.bookkeeper.cluster import Cluster, open_clusters
from clients.bookkeeper.copy_result import Begun, Verdict
from clients.bookkeeper.metadata import LedgerState
from clients.bookkeeper.open_copy import copy_open
from clients.bookkeeper.reader import LedgerReader
from clients.bookkeeper.writer import LedgerWriter
from clients.stores import Access
from deploy.devstack.provision import Toolchain
from deploy.devstack.stack import StackSpec
from models.ledger_store import parse_ledger_store_uri
from tests.support.clients.java_ledgers import HeldLedger, JavaLedgers, Ledger
from tests.support.stacks import MakeStack

PAYLOADS = [b"more %d" % number for number in range(30)]


@pytest.fixture(scope="module")
def held(
    make_stack: MakeStack, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[HeldLedger, Cluster, Cluster, JavaLedgers]]:
    """A ledger that a Java client writes, and one bookie in each cluster."""
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, second_bookies=1))
    source, target = (parse_ledger_store_uri(uri).url for uri in (stack.bookkeeper_uri, stack.second_bookkeeper_uri))
    with (
        JavaLedgers(toolchain, tmp_path_factory.mktemp("java")) as java,
        open_clusters(source, target, Access(), None, 5.0) as (mine, theirs),
    ):
        yield java.hold(stack.bookkeeper_uri, Ledger(entries=20, custom={"component": b"x"})), mine, theirs, java


def test_open_ledger_is_copied_while_it_grows(held: tuple[HeldLedger, Cluster, Cluster, JavaLedgers]) -> None:
    """Its writer goes on; each time only what is new is copied, in the end the rest; a late attempt does no harm."""
    writer, source, target, _ = held
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
    bodies = [body for part in LedgerReader(source.bookies).entries(ids[0], original.metadata) for body in part]
    late = LedgerWriter(target.bookies)
    late.add(ids[0], copy.metadata, 0, bodies[:20])
    late.flush()
    assert [body for part in LedgerReader(target.bookies).entries(ids[0], closed.metadata) for body in part] == bodies
    assert len(bodies) == 51
    assert copy_open(source, target, ids, {}, check=lambda _: None) == []
