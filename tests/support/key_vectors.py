"""Keys, and how the Java client 5.0.1 routes them.

The values come from `SegmentRouter` and `ScalableTopicHashing` of pulsar-client-v5 and pulsar-common 5.0.1, and from
`Murmur3_32Hash` for topics that are not scalable yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

KEYS = 10_000
"""Number of generated keys."""

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz0123456789-_.:/",
    "ÄÖÜäöüßéèñçøåłžİ",
    "γλώσσαжизньעבריתعربى",
    "日本語漢字中文한국어",
    "😀🙂🚀👩‍💻𝔘𐍈",
    '\x00\x01\t\n\r"\\ \x7f',
)
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 255, 1000)


def generated_keys() -> list[str]:
    """Return the 10,000 keys of the digest: empty, of one byte, short, long, ASCII and not."""
    keys = ["", *(chr(number) for number in range(128))]
    for number in range(KEYS - len(keys)):
        seed = hashlib.sha256(str(number).encode()).digest()
        alphabet = _ALPHABETS[seed[0] % len(_ALPHABETS)]
        length = _LENGTHS[seed[1] % len(_LENGTHS)]
        letters = hashlib.shake_256(seed).digest(length)
        keys.append("".join(alphabet[letter % len(alphabet)] for letter in letters))
    return keys


class KeyVector(NamedTuple):
    """The hashes of one key.

    Attributes:
        key: the text of the key.
        raw: Murmur3 (x86, seed 0) of its UTF-8 bytes, 32 bits without a sign.
        segment: the half that chooses the segment.
        bucket: the half that chooses the entry bucket.
        legacy: the hash that chooses a partition, 31 bits.
    """

    key: str
    raw: int
    segment: int
    bucket: int
    legacy: int


def digest(vectors: Iterable[KeyVector]) -> str:
    """Return the SHA-256 of one line for each key: `raw segment bucket legacy`, the first three in hexadecimal."""
    lines = "".join(
        f"{vector.raw:08x} {vector.segment:04x} {vector.bucket:04x} {vector.legacy}\n" for vector in vectors
    )
    return hashlib.sha256(lines.encode()).hexdigest()


GENERATED_DIGEST = "f99ab48e3c07a97e7b876a73feb765fee610ffc2b04cdfbc23383dd121fc08dd"
"""The digest of the Java client for `generated_keys`."""

VECTORS = (
    KeyVector("", 0x00000000, 0x0000, 0x0000, 0),
    KeyVector("a", 0x3C2569B2, 0x3C25, 0x69B2, 1_009_084_850),
    KeyVector("b", 0x95DE7E03, 0x95DE, 0x7E03, 366_902_787),
    KeyVector("c", 0xE132D65F, 0xE132, 0xD65F, 1_630_721_631),
    KeyVector("key-1", 0x98B115A0, 0x98B1, 0x15A0, 414_258_592),
    KeyVector("key-2", 0xF3F8550C, 0xF3F8, 0x550C, 1_945_654_540),
    KeyVector("order-17", 0x03C287C0, 0x03C2, 0x87C0, 63_080_384),
    KeyVector("k0", 0x0B616CD6, 0x0B61, 0x6CD6, 190_934_230),
    KeyVector("k7", 0x1B39BF7E, 0x1B39, 0xBF7E, 456_769_406),
    KeyVector("hello", 0x248BFA47, 0x248B, 0xFA47, 613_153_351),
    KeyVector("order-123456789", 0x7B2998F2, 0x7B29, 0x98F2, 2_066_323_698),
    KeyVector("x" * 40, 0x4E0FB89F, 0x4E0F, 0xB89F, 1_309_653_151),
    KeyVector("x" * 1000, 0x7120440E, 0x7120, 0x440E, 1_897_939_982),
    KeyVector("0123456789" * 4, 0xFA6198ED, 0xFA61, 0x98ED, 2_053_216_493),
    KeyVector("ß", 0x14147826, 0x1414, 0x7826, 336_885_798),
    KeyVector("é", 0x10110787, 0x1011, 0x0787, 269_551_495),
    KeyVector("Ünïcode", 0xF095BC36, 0xF095, 0xBC36, 1_888_861_238),
    KeyVector("Ελλάδα", 0xBDE87205, 0xBDE8, 0x7205, 1_038_643_717),
    KeyVector("привет", 0x3B364B6E, 0x3B36, 0x4B6E, 993_413_998),
    KeyVector("שלום", 0x53E37073, 0x53E3, 0x7073, 1_407_414_387),
    KeyVector("日本語", 0xA5A47297, 0xA5A4, 0x7297, 631_534_231),
    KeyVector("한국어", 0xFC706314, 0xFC70, 0x6314, 2_087_740_180),
    KeyVector("😀", 0xBEB42EFA, 0xBEB4, 0x2EFA, 1_051_995_898),
    KeyVector("👩‍💻", 0x8A528A80, 0x8A52, 0x8A80, 173_181_568),
    KeyVector("𝔘", 0x85BF7DF7, 0x85BF, 0x7DF7, 96_435_703),
    KeyVector("\x00", 0x514E28B7, 0x514E, 0x28B7, 1_364_076_727),
    KeyVector("\x7f", 0x5589D599, 0x5589, 0xD599, 1_435_096_473),
    KeyVector(" ", 0x7EF49B98, 0x7EF4, 0x9B98, 2_129_959_832),
    KeyVector("\n", 0x924EE0AB, 0x924E, 0xE0AB, 307_159_211),
    KeyVector("aaa", 0xB4D05FB7, 0xB4D0, 0x5FB7, 886_071_223),
    KeyVector("aaaa", 0x7EEED987, 0x7EEE, 0xD987, 2_129_582_471),
    KeyVector("aaaaa", 0xE9CA302B, 0xE9CA, 0x302B, 1_774_858_283),
)
"""Values of the Java client for single keys, to show where an implementation differs."""
