"""Bearer tokens: a file of their hashes, each with its role."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from clients.tls import stamp_of

_LINE = re.compile(r"(?P<role>\w+)\s+(?P<hash>[0-9a-fA-F]{64})")
_log = logging.getLogger(__name__)


class Role(StrEnum):
    """Rights of a token.

    ADMIN: everything.
    CLIENT: read layouts, register and unregister consumers.
    """

    ADMIN = "admin"
    CLIENT = "client"

    def allows(self, needed: Role) -> bool:
        """Return whether the role includes a needed one."""
        return self is Role.ADMIN or self is needed


class TokensError(ValueError):
    """The file of tokens cannot be used; the message says why, and shows no hash."""


class _Token(NamedTuple):
    role: Role
    hash: bytes


class Tokens:
    """The tokens of a file, which is read again when it changes.

    One line for each token: its role, and the SHA-256 of it in hexadecimal digits; `#` begins a comment. If a changed
    file has an invalid line, that is reported and the previous tokens stay valid. A file that is deleted, unreadable or
    empty revokes all tokens.

    Args:
        file: the file of tokens.

    Raises:
        TokensError: the file is wrong, or cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: tuple[int, ...] = ()
        self._tokens: tuple[_Token, ...] = ()
        self._reported = ""
        self._read()

    def role_of(self, token: str) -> Role | None:
        """Return the role of a token; None for one that is not in the file."""
        try:
            self._read()
            self._reported = ""
        except TokensError as error:
            if str(error) != self._reported:
                self._reported = str(error)
                _log.error("%s; %s", error, "the previous tokens stay valid" if self._tokens else "no token is valid")
        given = sha256(token.encode()).digest()
        # Compares all, so that the duration does not show which one matches.
        roles = [entry.role for entry in self._tokens if hmac.compare_digest(entry.hash, given)]
        return roles[0] if roles else None

    def _read(self) -> None:
        try:
            stamp = stamp_of(self._file)
            if stamp == self._stamp:
                return
            lines = self._file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self._stamp, self._tokens = (), ()
            raise TokensError(f"{self._file} cannot be read: {error}") from error
        # Also for an invalid file, so that it is reported once.
        self._stamp = stamp
        tokens = tuple(_parse(self._file, lines))
        if not tokens:
            self._tokens = ()
            raise TokensError(f"{self._file} has no token, so every request is refused; add one line for each token")
        self._tokens = tokens


def _parse(file: Path, lines: Iterable[str]) -> list[_Token]:
    tokens: list[_Token] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        if match is None or match["role"] not in {*Role}:
            raise TokensError(
                f"{file}, line {number}: invalid; expected {' or '.join(Role)} and the token's SHA-256 in 64 digits"
            )
        tokens.append(_Token(Role(match["role"]), bytes.fromhex(match["hash"])))
    return tokens
