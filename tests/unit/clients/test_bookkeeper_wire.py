"""Frames as they went between this client and a bookie of BookKeeper 4.18, and what is made of them."""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from threading import Event

import pytest

from clients.bookkeeper import wire_v2, wire_v3
from clients.bookkeeper.connection import BookieConnection, Refused
from clients.bookkeeper.digests import master_key
from clients.bookkeeper.pending_adds import RefusedAdd
from clients.bookkeeper.transport import EventLoop
from clients.errors import StoreDenied, StoreProtocolError, StoreUnreachable, StoreUnsupported
from clients.tls import Tls

LEDGER = 4
KEY = master_key(b"")
BODY_1 = bytes.fromhex("00000000000000040000000000000001ffffffffffffffff000000000000000ac5aa751f0000000000")
BODY_2 = bytes.fromhex("00000000000000040000000000000002ffffffffffffffff000000000000000f7c511aad0000000000")
BODY_3 = bytes.fromhex("000000000000000400000000000000030000000000000002000000000000001439d486da616761696e")
READ_ANSWER = bytes.fromhex("00000041020200000000000000000000000000040000000000000001") + BODY_1
NO_ENTRY_ANSWER = bytes.fromhex("00000018020200000000000200000000000000040000000000000009")
BATCH_ANSWER = (
    bytes.fromhex("0000007a0207000000000000000000000000000400000000000000010000000000000001")
    + bytes.fromhex("00000029")
    + BODY_1
    + bytes.fromhex("00000029")
    + BODY_2
)
NO_BATCH_ANSWER = bytes.fromhex("000000200207000000000002000000000000000400000000000000090000000000000001")
FENCE_ANSWER = bytes.fromhex("0000004102020000000000000000000000000004ffffffffffffffff") + BODY_2
ADD_ANSWER = bytes.fromhex("00000018020100000000000000000000000000040000000000000003")
FENCED_ADD_ANSWER = bytes.fromhex("00000018020100000000006800000000000000040000000000000003")


def test_requests_of_version_2() -> None:
    """Requests are byte for byte those that a bookie understood."""
    assert wire_v2.read_request(LEDGER, 1).hex() == "000000140202000000000000000000040000000000000001"
    assert wire_v2.read_request(LEDGER, wire_v2.LAST_ENTRY, KEY).hex() == (
        "00000028020200010000000000000004ffffffffffffffff850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    )
    assert wire_v2.batch_request(LEDGER, 1, 77, 10, 1 << 20).hex() == (
        "000000280207000000000000000000040000000000000001000000000000004d0000000a0000000000100000"
    )
    assert wire_v2.add_head(len(BODY_3), KEY).hex() == "0000004102010002850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    urgent = wire_v2.add_head(len(BODY_3), KEY, high_priority=True)
    assert urgent.hex() == "0000004102010006850bf1071c5e3d8c24235676f8816ae0cbe2f14f"


def test_messages_of_version_3() -> None:
    """Space and TLS are asked for as a bookie understood it, and its answers are read."""
    assert wire_v3.space_request().hex() == "0000000d0a06080310081801ca06020803"
    assert wire_v3.start_tls_request().hex() == "0000000b0a06080310091801d20600"
    answer = bytes.fromhex("0a060803100818011000ca060f08001080a0e7f1ef071880e0f7937c")
    assert wire_v3.read_space(answer, "b") == wire_v3.Space(270553174016, 33327804416)


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        ("0a06080310091801109403d20600", StoreUnsupported, "has no TLS"),
        ("0a06080310081801109403", StoreProtocolError, "status 404"),
        ("0a0608031008180110f603", StoreDenied, "refuses us"),
        ("ff", StoreProtocolError, "check the port"),
        ("0a060803100818011000", StoreProtocolError, "how much space"),
    ],
)
def test_refusals_of_version_3(payload: str, kind: type[Exception], text: str) -> None:
    """The error distinguishes a bookie without TLS, one that refuses credentials, and another kind of server."""
    with pytest.raises(kind, match=text):
        wire_v3.read_space(bytes.fromhex(payload), "b")


class Peer:
    """A connection whose other end the test holds.

    Args:
        read_timeout: seconds of waiting without a byte while an entry is due; by default only a defect reaches it.
        add_timeout: the same while only answers to adds are awaited.
    """

    def __init__(self, read_timeout: float = 60.0, add_timeout: float = 60.0) -> None:
        ours, self.end = socket.socketpair()
        self.end.settimeout(5)
        self.loop = EventLoop()
        self.lost: list[str] = []
        self.answers: list[tuple[str, list[bytes] | Refused]] = []
        self.connection = BookieConnection(
            "b",
            ours,
            self.loop,
            read_timeout=read_timeout,
            add_timeout=add_timeout,
            on_lost=lambda reason, _awaiting: self.lost.append(reason),
        )

    def read(self, name: str, entry_id: int) -> None:
        """Ask for an entry."""
        self.connection.read(LEDGER, entry_id, partial(self._keep, name))

    def batch(self, name: str, first_entry: int) -> None:
        """Ask for a batch."""
        self.connection.read_batch(LEDGER, first_entry, 10, 1 << 20, partial(self._keep, name))

    def turn_until(self, count: int) -> None:
        """Turn until so many answers have come, or the connection is lost."""
        while len(self.answers) < count and not self.lost:
            self.loop.poll()

    def _keep(self, name: str, answer: list[bytes] | Refused) -> None:
        self.answers.append((name, answer))

    def close(self) -> None:
        """Free both ends."""
        self.connection.lose("the test is over")
        self.end.close()
        self.loop.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    """Both ends of a connection."""
    ends = Peer()
    yield ends
    ends.close()


def test_answers_find_their_requests(peer: Peer) -> None:
    """Answers reach their requests even if they arrive in another order."""
    peer.read("entry", 1)
    peer.read("missing", 9)
    peer.batch("batch", 1)
    peer.read("last", wire_v2.LAST_ENTRY)
    peer.end.sendall(FENCE_ANSWER + BATCH_ANSWER + NO_ENTRY_ANSWER + READ_ANSWER)
    peer.turn_until(4)
    assert peer.answers == [
        ("last", [BODY_2]),
        ("batch", [BODY_1, BODY_2]),
        ("missing", Refused(wire_v2.NO_ENTRY, "does not have the entry")),
        ("entry", [BODY_1]),
    ]
    assert not peer.connection.awaiting


def test_answers_come_in_pieces(peer: Peer) -> None:
    """However the bytes are cut, the same answers come out."""
    peer.batch("batch", 1)
    peer.read("entry", 1)
    peer.connection.add([], [BODY_3, BODY_3], 2)
    for byte in BATCH_ANSWER + ADD_ANSWER + READ_ANSWER + ADD_ANSWER:
        peer.end.sendall(bytes([byte]))
        peer.loop.poll()
    assert peer.answers == [("batch", [BODY_1, BODY_2]), ("entry", [BODY_1])]
    assert (peer.connection.accepted_adds, peer.connection.awaiting) == (2, False)


def test_an_entry_larger_than_the_buffer(peer: Peer) -> None:
    """An answer of several megabytes is taken in whole, and so is what follows it."""
    large = bytes(range(256)) * (10 << 10)
    frame = bytes.fromhex("0202000000000000") + LEDGER.to_bytes(8) + (1).to_bytes(8) + large
    peer.read("large", 1)
    peer.read("missing", 9)
    unsent = memoryview(len(frame).to_bytes(4) + frame + NO_ENTRY_ANSWER)
    peer.end.settimeout(0)
    while len(peer.answers) < 2:
        if unsent:
            unsent = unsent[peer.end.send(unsent[: 64 << 10]) :]
        peer.loop.poll()
    assert peer.answers[0] == ("large", [large])


def test_batch_without_a_first_entry(peer: Peer) -> None:
    """A bookie that lacks a batch's first entry says so for the batch."""
    peer.batch("batch", 9)
    peer.end.sendall(NO_BATCH_ANSWER)
    peer.turn_until(1)
    assert peer.answers == [("batch", Refused(wire_v2.NO_ENTRY, "does not have the entry"))]


def test_adds_are_counted_and_refusals_kept(peer: Peer) -> None:
    """Adds are answered by number, and a refusal brings the refused entry back."""
    peer.connection.add([b"frames"], [BODY_2, BODY_3], 6)
    peer.loop.send()
    assert peer.end.recv(100) == b"frames"
    assert (peer.connection.unanswered_adds, peer.connection.bytes_in_flight) == (2, 6)
    peer.end.sendall(FENCED_ADD_ANSWER + ADD_ANSWER.replace(b"\3", b"\2"))
    while peer.connection.unanswered_adds:
        peer.loop.poll()
    assert peer.connection.refused_adds == [RefusedAdd(LEDGER, 3, wire_v2.FENCED, BODY_3)]
    assert (peer.connection.accepted_adds, peer.connection.bytes_in_flight) == (1, 0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (READ_ANSWER, "entry 1 of ledger 4, which was not asked for"),
        (ADD_ANSWER, "an add that was not sent"),
        (BATCH_ANSWER.replace(b"\0\0\0\1\0\0\0\x29", b"\0\0\0\7\0\0\0\x29"), "batch 7, which was not asked for"),
        (BATCH_ANSWER[:-46] + b"\0\0\1\0" + BATCH_ANSWER[-42:], "last entry of an answer is cut"),
        (bytes.fromhex("00000018020600000000000000000000000000040000000000000003"), "operation 6"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n....", "a frame of 1213486160 bytes"),
    ],
)
def test_answers_that_the_protocol_does_not_allow(peer: Peer, answer: bytes, reason: str) -> None:
    """An answer that matches no request ends the connection, and every waiting caller gets an error."""
    peer.batch("batch", 5)
    peer.end.sendall(answer)
    peer.turn_until(1)
    (name, refusal), *_ = peer.answers
    assert (name, isinstance(refusal, Refused)) == ("batch", True)
    assert isinstance(refusal, Refused)
    assert refusal.code == wire_v2.LOST
    assert re.search(reason, peer.lost[0])


def test_silence_ends_a_connection() -> None:
    """A bookie that does not answer is given up after the read timeout, and after the add timeout if it only writes."""
    with closing(Peer(0.2, 0.4)) as reading:
        reading.connection.add([b"frames"], [BODY_3], 6)
        reading.read("entry", 1)
        reading.turn_until(1)
        assert reading.answers == [("entry", Refused(wire_v2.LOST, "did not answer within 0.2 s"))]
        assert reading.loop.waited >= 0.2
    with closing(Peer(0.2, 0.4)) as writing:
        writing.connection.add([b"frames"], [BODY_3], 6)
        writing.turn_until(1)
        assert writing.lost == ["did not answer within 0.4 s"]


def test_a_caller_that_rests_is_not_taken_for_a_silent_bookie() -> None:
    """Answers that arrived while no caller waited are used, however long that was."""
    with closing(Peer(0.2, 0.4)) as peer:
        peer.read("entry", 1)
        peer.end.sendall(READ_ANSWER)
        with ThreadPoolExecutor(1) as pool:  # the loop is not polled for longer than the timeout
            pool.submit(Event().wait, 0.5).result()
        peer.turn_until(1)
        assert peer.answers == [("entry", [BODY_1])]


def _freeze_in_select(peer: Peer, seconds: float, arrives: bytes) -> None:
    """Freeze the process in its next wait; an answer arrives in that time, and the interrupted wait returns nothing."""
    selector = peer.loop._selector  # pyright: ignore[reportPrivateUsage] - no test can freeze itself
    select = selector.select

    def freeze(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        del timeout
        selector.select = select
        time.sleep(seconds)
        peer.end.sendall(arrives)
        return []

    selector.select = freeze


def test_a_frozen_process_reads_what_has_arrived() -> None:
    """A bookie whose answer arrived while this process was frozen is not silent."""
    with closing(Peer(0.2, 0.4)) as peer:
        peer.read("entry", 1)
        _freeze_in_select(peer, 0.3, READ_ANSWER)
        peer.turn_until(1)
        assert peer.answers == [("entry", [BODY_1])]


def test_a_freeze_is_not_time_that_a_request_takes() -> None:
    """A request is not late by the time that this process was frozen, even if others are answered first."""
    with closing(Peer(0.2, 0.4)) as peer:
        peer.read("entry", 1)
        peer.batch("batch", 1)
        _freeze_in_select(peer, 1.0, BATCH_ANSWER)
        peer.turn_until(1)
        peer.end.sendall(READ_ANSWER)
        peer.turn_until(2)
        assert peer.answers == [("batch", [BODY_1, BODY_2]), ("entry", [BODY_1])]


def test_a_closed_connection(peer: Peer) -> None:
    """When the bookie closes the connection, every waiting caller gets one error."""
    peer.read("entry", 1)
    peer.batch("batch", 1)
    peer.end.close()
    peer.turn_until(2)
    assert [name for name, _ in peer.answers] == ["entry", "batch"]
    assert len(peer.lost) == 1
    assert not peer.loop.due


def test_exchange_names_a_bookie_that_closes() -> None:
    """A bookie that closes before its answer is whole is unreachable, and one with a huge answer is none."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\0\0")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(StoreUnreachable, match="b-1 does not answer: it closed"):
            wire_v3.exchange(ours, b"x", "b-1")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP")
        with pytest.raises(StoreProtocolError, match="check the port"):
            wire_v3.exchange(ours, b"x", "b-1")


def test_tls_files_that_are_missing() -> None:
    """A missing authority is an error of its own, before any bookie is asked."""
    with pytest.raises((OSError, ssl.SSLError)):
        Tls("/nowhere.pem").context()
