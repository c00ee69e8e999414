"""Secrets that this process has read, and their removal from texts that leave it.

A server, or a library, may repeat a credential in its error message. Code remembers each secret where it reads or sends
it (`remember`). Texts are redacted where they leave the process: in failures and payloads for Temporal, in the log, and
in the messages of our own errors, which also reach terminals and the logs of executors.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit

HIDDEN = "[hidden]"
"""Replaces a secret."""

SHORTEST = 8
"""Characters of the shortest secret that is removed: a shorter one is part of many words."""

_NEWEST = 128
"""Secrets that are remembered next to those of the settings: renewed tokens replace each other without end."""

# A text that is cut may end within a secret, so the first characters are enough to find it.
_START = 16


class Redactor:
    """Removes secrets from texts; for all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._permanent: dict[str, frozenset[str]] = {}
        self._newest: dict[str, frozenset[str]] = {}
        self._by_start: dict[str, list[str]] = {}
        self._starts: tuple[bytes, ...] = ()

    def remember(self, secrets: Iterable[str], *, permanent: bool = False) -> None:
        """Remember secrets.

        Args:
            secrets: each as it is; a text of many lines, such as a private key, counts as its lines.
            permanent: whether they are kept for the life of the process; otherwise newer ones replace them.
        """
        for secret in (line for text in secrets for line in _lines(text)):
            with self._lock:
                self._remember(secret, permanent=permanent)

    def redact(self, text: str) -> str:
        """Return a text without secrets, also where they are encoded in Base64, URLs, hexadecimal digits or JSON."""
        for start, forms in self._by_start.items():
            if start in text:
                text = _without(text, start, forms)
        return text

    def may_have_secret(self, data: bytes) -> bool:
        """Return whether encoded text may have a secret."""
        return any(start in data for start in self._starts)

    def _remember(self, secret: str, *, permanent: bool) -> None:
        secrets = self._permanent if permanent else self._newest
        if (forms := secrets.pop(secret, None)) is not None:
            # The newest is the last.
            secrets[secret] = forms
            return
        secrets[secret] = _forms(secret)
        while len(self._newest) > _NEWEST:
            del self._newest[next(iter(self._newest))]
        all_forms = {form for forms in (*self._permanent.values(), *self._newest.values()) for form in forms}
        by_start: dict[str, list[str]] = {}
        # The longest first: one that contains another is removed as a whole.
        for form in sorted(all_forms, key=lambda form: (-len(form), form)):
            by_start.setdefault(form[:_START], []).append(form)
        self._by_start = by_start
        self._starts = tuple(start.encode(errors="replace") for start in by_start)


REDACTOR = Redactor()
"""The one of this process."""


def remember(*secrets: str, permanent: bool = False) -> None:
    """Remember secrets of this process; see `Redactor.remember`."""
    REDACTOR.remember(secrets, permanent=permanent)


def redacted(text: str) -> str:
    """Return a text without the secrets of this process."""
    return REDACTOR.redact(text)


def redacted_json(data: bytes, *, sentences_only: bool) -> bytes:
    """Return JSON whose texts have no secrets of this process.

    Args:
        data: JSON.
        sentences_only: change only texts with a space. Names, paths and addresses are data that steps act on: a weak
            password that is also the name of a topic must not change the topic.
    """
    if not REDACTOR.may_have_secret(data):
        return data
    value = _redacted_value(json.loads(data), sentences_only=sentences_only)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def url_secrets(url: str) -> tuple[str, ...]:
    """Return what may be secret in an address: the path with its query, values of the query, and a password."""
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    values = (pair.partition("=")[2] for pair in parts.query.split("&"))
    return (target, *map(unquote, values), unquote(parts.password or ""))


def _redacted_value(value: Any, *, sentences_only: bool) -> Any:
    if isinstance(value, str):
        return value if sentences_only and not any(map(str.isspace, value)) else redacted(value)
    if isinstance(value, list):
        return [_redacted_value(item, sentences_only=sentences_only) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: _redacted_value(item, sentences_only=sentences_only) for name, item in items}
    return value


def _lines(text: str) -> list[str]:
    """Return the secrets of a text: its lines, without those that begin or end a key in PEM."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if len(line) >= SHORTEST and not line.startswith("-----")]


def _forms(secret: str) -> frozenset[str]:
    data = secret.encode(errors="replace")
    plain = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), data.hex(), data.hex().upper()}
    plain |= {repr(secret)[1:-1], repr(data)[2:-1]}
    in_json = {json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in plain for ascii_only in (True, False)}
    return frozenset(plain | in_json | _in_base64(data))


def _in_base64(data: bytes) -> set[str]:
    """Return the characters that Base64 has for data anywhere in a longer value, whatever comes before and after."""
    forms: set[str] = set()
    for before in range(3):
        padded = bytes(before) + data
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(padded).decode().rstrip("=")
            # The first and the last characters also have bits of the neighbours.
            first = (0, 2, 3)[before]
            forms.add(encoded[first:-1] if len(padded) % 3 else encoded[first:])
    return forms


def _without(text: str, start: str, forms: Iterable[str]) -> str:
    """Return a text without forms of secrets that start so; where it ends within one, without that one's beginning."""
    parts: list[str] = []
    position = 0
    while (first := text.find(start, position)) >= 0:
        end = first + max(_common(text, first, form) for form in forms)
        parts += [text[position:first], HIDDEN]
        position = end
    return "".join((*parts, text[position:]))


def _common(text: str, position: int, form: str) -> int:
    """Return how many characters of a form a text has at a position."""
    pairs = zip(text[position : position + len(form)], form, strict=False)
    return next(
        (index for index, (there, here) in enumerate(pairs) if there != here), min(len(form), len(text) - position)
    )
