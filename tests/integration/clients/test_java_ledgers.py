"""The Java client that other tests compare with, on two real bookies and a spare one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack
from tests.support.clients.bookies import start_killed
from tests.support.clients.java_ledgers import Digest, JavaLedgers, Ledger, Refused, payloads_digest

pytestmark = pytest.mark.exhaustive

PAIR = Ledger(ensemble=2, write=2, ack=2, entries=20)


@pytest.fixture
def stack(three_bookies: Stack) -> Stack:
    """Three bookies."""
    return three_bookies


@pytest.fixture
def uri(stack: Stack) -> str:
    """The cluster, as its bookies name it."""
    return f"metadata-store:{stack.zk_url}"


@pytest.mark.parametrize("digest", ["CRC32", "HMAC", "CRC32C", "DUMMY"])
def test_both_drivers_read_what_was_written(java: JavaLedgers, stack: Stack, uri: str, digest: Digest) -> None:
    """Ledgers of chosen ids hold the promised payloads and custom metadata, whichever metadata driver reads them."""
    made = Ledger(2, 2, 2, digest, b"secret", {"component": b"\x00schema"}, entries=700, sizes=(1, 3000, 0, 8), seed=-7)
    wanted = {"CRC32": 1 << 33, "HMAC": 1 << 34, "CRC32C": 1 << 35, "DUMMY": 1 << 36}[digest]

    assert java.create(uri, made, ids=[wanted]) == [wanted]

    other = stack.zk_url.replace("zk:", "zk+hierarchical://") + "/ledgers"
    [content] = java.read(other, [wanted], digest=digest, password=b"secret")
    assert (content.error, content.state, content.quorum) == (None, "CLOSED", (2, 2, 2))
    assert (content.entries, content.custom) == (700, {"component": b"\x00schema"})
    assert content.bytes == content.length == sum(map(len, made.payloads()))
    assert content.sha256 == payloads_digest(made.payloads())


def test_many_small_ledgers_take_ids_of_the_generator(java: JavaLedgers, uri: str) -> None:
    """Ledgers without chosen ids get new ones each, and so does the next; a taken or deleted one is refused."""
    ids = java.create(uri, Ledger(entries=1), count=300)
    assert len(set(ids)) == 300
    assert java.next_id(uri) > max(ids)
    assert {content.entries for content in java.read(uri, ids)} == {1}
    # What Pulsar's metadata driver makes of an id that is taken.
    with pytest.raises(Refused, match="BKLedgerExistException"):
        java.create(uri, Ledger(), ids=ids[:1])
    gone = "BKNoSuchLedgerExistsOnMetadataServerException"
    assert java.delete(uri, ids[:2]) == 2
    assert [content.error for content in java.read(uri, ids[:3])] == [gone, gone, None]


def test_a_new_owner_fences_the_writer(java: JavaLedgers, toolchain: Toolchain, uri: str, tmp_path: Path) -> None:
    """An open ledger is recovered with all entries, and then its writer's next entry is refused."""
    held = java.hold(uri, PAIR)
    assert held.add(b"one", b"two") == 21
    with JavaLedgers(toolchain, tmp_path) as other:
        assert other.read(uri, [held.ledger_id])[0].state == "OPEN"
        assert other.read(uri, [held.ledger_id], recover=True)[0].sha256 == payloads_digest(
            [*PAIR.payloads(), b"one", b"two"]
        )
    with pytest.raises(Refused) as refusal:
        held.add(b"late")
    assert refusal.value.kind == "BKLedgerFencedException"


def test_an_abandoned_ledger_stays_open(java: JavaLedgers, uri: str) -> None:
    """Without a close a ledger is left OPEN, by one writer as by many."""
    held = java.hold(uri, PAIR)
    held.abandon()
    ids = [held.ledger_id, *java.create(uri, PAIR, count=2, close=False)]
    assert [content.state for content in java.read(uri, ids)] == ["OPEN"] * 3


def test_a_bookie_that_stops_ends_a_segment(java: JavaLedgers, stack: Stack, uri: str) -> None:
    """When a bookie dies under a writer, another one takes its place in a new segment, and every entry is read."""
    held = java.hold(uri, PAIR)
    first = java.read(uri, [held.ledger_id])[0].segments[0]
    stack[first[0]].kill()
    try:
        held.add(b"after")
        held.close()
    finally:
        start_killed(stack, first[0])
    [content] = java.read(uri, [held.ledger_id])
    assert (content.entries, sorted(content.segments)) == (21, [0, 20])
    assert first[0] not in content.segments[20]
    assert content.sha256 == payloads_digest([*PAIR.payloads(), b"after"])
