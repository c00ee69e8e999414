"""Values from outside: what they claim and what they hold is bounded before memory is allocated."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import cramjam
import pytest

from clients.errors import StoreProtocolError
from clients.pulsar.compression import LARGEST, Compression, compressed, decompressed

BODY = b"orders" * 1_000
PACKED = [kind for kind in Compression if kind is not Compression.NONE]


@pytest.mark.parametrize("compression", Compression)
def test_content_comes_back(compression: Compression) -> None:
    """Content that was compressed is read again, also an empty one."""
    for body in (BODY, b"x", b""):
        assert decompressed(compression, compressed(compression, body), len(body)) == body


@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("claim", [10, len(BODY) - 1, len(BODY) + 1])
def test_wrong_size_is_refused(compression: Compression, claim: int) -> None:
    """A value that holds more or less than it claims is damaged."""
    with pytest.raises(StoreProtocolError):
        decompressed(compression, compressed(compression, BODY), claim)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("claim", [-1, LARGEST + 1, 2**32 - 1])
def test_impossible_claim_is_refused(compression: Compression, claim: int) -> None:
    """A claim of 4 GiB allocates nothing."""
    with pytest.raises(StoreProtocolError, match=f"claims to hold {claim:,} bytes; at most {LARGEST:,} are read"):
        decompressed(compression, b"", claim)


def test_small_values_that_hold_gigabytes() -> None:
    """With 512 MiB of memory the process refuses values of a few kB that hold 1 GiB, and continues."""
    bombs = {
        Compression.ZSTD: bytes(cramjam.zstd.compress(bytes(1 << 30))),
        Compression.ZLIB: compressed(Compression.ZLIB, bytes(1 << 26)),
        # The header says 4 GiB.
        Compression.SNAPPY: b"\xff\xff\xff\xff\x0f" + bytes(100),
        Compression.LZ4: bytes(cramjam.lz4.compress_block(bytes(1 << 26), store_size=False)),
    }
    program = textwrap.dedent(
        f"""
        import resource
        from clients.errors import StoreProtocolError
        from clients.pulsar.compression import Compression, decompressed

        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        for number, value in {[(kind.value, body.hex()) for kind, body in bombs.items()]}:
            try:
                decompressed(Compression(number), bytes.fromhex(value), 10)
            except StoreProtocolError:
                print(Compression(number).name, "refused")
        """
    )
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split("\n")[:-1] == [f"{kind.name} refused" for kind in bombs], done.stderr
