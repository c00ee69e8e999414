"""Bodies of answers over HTTP, with a limit on what is received and on what that is unpacked to."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import cast

import httpx

LARGEST_BODY = 256 << 20
"""Bytes of an answer. The largest one is a list of topics: a million of them have about 100 MB."""

LARGEST_REFUSAL = 64 << 10
"""Bytes that are read of an answer that is not a success. Pulsar's longest refusals are stack traces of some kB."""

ENCODING = "gzip"
"""The only encoding that is asked for and accepted: it is unpacked here, piece by piece."""

_PACKED = ("content-encoding", "content-length", "transfer-encoding")


class BodyRefused(httpx.DecodingError):
    """A body that is too large, or packed in a way that was not asked for."""


def with_body(answer: httpx.Response) -> httpx.Response:
    """Return an answer with its body, received whole and unpacked. Of a refusal only the start is read.

    Raises:
        BodyRefused: the body is too large, or cannot be unpacked.
        httpx.HTTPError: the connection is lost.
    """
    body = _body_of(answer) if answer.is_success else _refusal_of(answer)
    # A HEAD has headers of a body that does not come.
    names = _PACKED if body else ()
    headers = [(name, value) for name, value in answer.headers.multi_items() if name not in names]
    return httpx.Response(
        answer.status_code, headers=headers, stream=httpx.ByteStream(body), extensions=answer.extensions
    )


def text_of(answer: httpx.Response) -> str:
    """Return the body as text.

    The answer's own charset is not used: it may be any of Python's codecs, also one that unpacks.
    """
    return answer.content.decode(errors="replace").strip()


def _body_of(answer: httpx.Response) -> bytes:
    body, is_whole = _unpacked(answer, LARGEST_BODY)
    if not is_whole:
        raise BodyRefused(f"the answer has more than {LARGEST_BODY:,} bytes, which is the most that is accepted")
    return bytes(body)


def _refusal_of(answer: httpx.Response) -> bytes:
    try:
        return bytes(_unpacked(answer, LARGEST_REFUSAL)[0])
    except BodyRefused as error:
        # The status says more than the body.
        return str(error).encode()


def _unpacked(answer: httpx.Response, limit: int) -> tuple[bytearray, bool]:
    """Return at most so many bytes of a body, and whether that is all of it."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", ENCODING}:
        raise BodyRefused(f"the answer is packed as {encoding[:40]!r}; expected {ENCODING} or nothing")
    is_packed = encoding == ENCODING
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    body = bytearray()
    received = 0
    for chunk in cast("Iterable[bytes]", answer.stream):
        received += len(chunk)
        try:
            body += unpacker.decompress(chunk, limit + 1 - len(body)) if is_packed else chunk
        except zlib.error as error:
            raise BodyRefused(f"the answer is not {ENCODING}: {error}") from error
        if max(received, len(body)) > limit:
            del body[limit:]
            return body, False
    if is_packed and received and not unpacker.eof:
        raise BodyRefused(f"the answer ends before its {ENCODING} data")
    return body, True
