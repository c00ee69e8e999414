"""A set of very many paths, of which only the digests are kept."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

_ROWS = 256


class PathSet:
    """Paths, at eight bytes each; two of them count as one with a probability of 1 in 2^64."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        rows = [array("Q") for _ in range(_ROWS)]
        for path in paths:
            one = xxh3_64_intdigest(path)
            rows[one % _ROWS].append(one)
        # Row by row: Python sorts objects, which take five times as much.
        for number, row in enumerate(rows):
            rows[number] = array("Q", sorted(row))
        self._rows = rows

    def __contains__(self, path: bytes) -> bool:
        one = xxh3_64_intdigest(path)
        row = self._rows[one % _ROWS]
        at = bisect_left(row, one)
        return at < len(row) and row[at] == one
