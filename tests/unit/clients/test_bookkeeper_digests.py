"""Entries as BookKeeper's Java client made them, with each kind of digest."""

from __future__ import annotations

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from clients.bookkeeper.digests import (
    EntryCorrupt,
    EntryHeader,
    count_valid,
    master_key,
    pack_entry,
    read_header,
    verify_entry,
)
from clients.bookkeeper.metadata import DigestType

PASSWORD = b"secret"
# Taken off a bookie of BookKeeper 4.18: ledgers 0 to 3 with the password above, entries of 5, 0 and 17 bytes.
DATAS = (b"\0\0\0\7\0", b"", bytes.fromhex("0000000700000002000000070000000200"))
LENGTHS = (5, 5, 22)
DIGESTS = {
    DigestType.CRC32: ("00000000b3b64c26", "0000000079a8e75b", "00000000046d9568"),
    DigestType.HMAC: (
        "ddfbde1bc4a1475379721325eb8cee1975714c35",
        "c13fb69ecf866f4f27c2abecd21152dd68a29e15",
        "f4a17e257a70c789545f0a9ebd3e9bd165c2f41f",
    ),
    DigestType.CRC32C: ("7806306a", "d5fd4664", "19aa284d"),
    DigestType.DUMMY: ("", "", ""),
}


def captured(ledger_id: int, digests: tuple[str, str, str]) -> list[bytes]:
    """Return the bodies as they were taken off: header, digest, data."""
    return [
        bytes.fromhex(f"{ledger_id:016x}{entry:016x}ffffffffffffffff{LENGTHS[entry]:016x}{digests[entry]}") + data
        for entry, data in enumerate(DATAS)
    ]


CASES = [(digest, ledger_id, captured(ledger_id, values)) for ledger_id, (digest, values) in enumerate(DIGESTS.items())]
every_digest = pytest.mark.parametrize(
    ("digest", "ledger_id", "bodies"), CASES, ids=[digest.name for digest, *_ in CASES]
)


@every_digest
def test_entries_of_the_java_client_are_valid(digest: DigestType, ledger_id: int, bodies: list[bytes]) -> None:
    """Every entry of the Java client counts as valid, and its header is read."""
    assert count_valid(bodies, ledger_id, 0, digest, PASSWORD) == (3, "")
    assert [read_header(body) for body in bodies] == [
        EntryHeader(ledger_id, entry, -1, length) for entry, length in enumerate(LENGTHS)
    ]


@every_digest
def test_entries_are_packed_as_the_java_client_does(digest: DigestType, ledger_id: int, bodies: list[bytes]) -> None:
    """Packing the same data gives the same bytes."""
    assert bodies == [
        pack_entry(
            ledger_id,
            entry,
            data,
            length=LENGTHS[entry],
            last_add_confirmed=-1,
            digest=digest,
            password=PASSWORD,
        )
        for entry, data in enumerate(DATAS)
    ]


@every_digest
def test_another_id_is_noticed(digest: DigestType, ledger_id: int, bodies: list[bytes]) -> None:
    """An entry in another's place is none of its ledger, whatever its digest says."""
    assert count_valid([bodies[0], bodies[2]], ledger_id, 0, digest, PASSWORD) == (
        1,
        f"it calls itself entry 2 of ledger {ledger_id}",
    )
    with pytest.raises(EntryCorrupt, match=f"entry 0 of ledger {ledger_id}"):
        verify_entry(bodies[0], ledger_id + 1, 0, digest, PASSWORD)


@pytest.mark.parametrize("case", CASES[:3], ids=["CRC32", "HMAC", "CRC32C"])
@pytest.mark.parametrize("place", [16, 31, 33, -1])
def test_a_changed_byte_is_noticed(case: tuple[DigestType, int, list[bytes]], place: int) -> None:
    """A byte that changed in header, digest or data ends the valid entries."""
    digest, ledger_id, bodies = case
    changed = bytearray(bodies[2])
    changed[place] ^= 1
    assert count_valid([*bodies[:2], bytes(changed)], ledger_id, 0, digest, PASSWORD) == (
        2,
        f"its {digest.name} digest differs",
    )


@every_digest
def test_a_cut_entry_is_noticed(digest: DigestType, ledger_id: int, bodies: list[bytes]) -> None:
    """An entry that is too short for header and digest is not checked any further."""
    whole = len(bodies[1])
    with pytest.raises(EntryCorrupt, match="too few"):
        verify_entry(bodies[1][: whole - 1], ledger_id, 1, digest, PASSWORD)
    assert count_valid([b""], ledger_id, 0, digest, PASSWORD)[0] == 0


def test_a_digest_with_a_key_depends_on_the_password() -> None:
    """HMAC notices another password."""
    digest, ledger_id, bodies = CASES[1]
    with pytest.raises(EntryCorrupt, match="HMAC digest differs"):
        verify_entry(bodies[0], ledger_id, 0, digest, b"other")


def test_master_key() -> None:
    """The key of Pulsar's empty password is the one that its brokers send."""
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"


@for_any(
    st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.binary(max_size=100), st.sampled_from(DigestType), st.binary()
)
def test_packed_entries_are_valid(
    ledger_id: int, entry_id: int, data: bytes, digest: DigestType, password: bytes
) -> None:
    """A packed entry is valid, under its own ids and with its own password."""
    body = pack_entry(ledger_id, entry_id, data, length=len(data), digest=digest, password=password)
    assert count_valid([body], ledger_id, entry_id, digest, password) == (1, "")
    assert body.endswith(data)
