"""Files with grants, in TOML: bearer tokens by their hashes, and roles of JWTs."""

from __future__ import annotations

import hmac
import tomllib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import Field, ValidationError

from gateway.access.principals import Grant
from models.base import faults
from process.followed_file import EmptyFileError, FileError, FollowedFile

GrantT = TypeVar("GrantT", bound=Grant)


class TokenGrant(Grant):
    """A token.

    Attributes:
        sha256: hash of the token, in hexadecimal digits. Two entries of one name let a token be replaced.
    """

    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]


class Tokens:
    """The tokens of a file, which is read again when it changes.

    Args:
        file: TOML with a table `[[tokens]]` for each token.

    Raises:
        FileError: the file cannot be used.
    """

    def __init__(self, file: Path) -> None:
        self._followed = FollowedFile(file, _tokens)

    def grant_of(self, token: str) -> TokenGrant | None:
        """Return what a token grants; None for one that is not in the file."""
        given = sha256(token.encode()).digest()
        # Compares all, so that the duration does not show which one matches.
        matches = [hmac.compare_digest(bytes.fromhex(grant.sha256), given) for grant in self._grants]
        return next((grant for grant, same in zip(self._grants, matches, strict=True) if same), None)

    @property
    def _grants(self) -> tuple[TokenGrant, ...]:
        return self._followed.content() or ()


class JwtRoles:
    """The roles of JWTs in a file, which is read again when it changes.

    Args:
        file: TOML with a table `[[roles]]` for each role of Pulsar.

    Raises:
        FileError: the file cannot be used.
    """

    def __init__(self, file: Path) -> None:
        self._followed = FollowedFile(file, _roles)

    def grant_of(self, role: str) -> Grant | None:
        """Return what a role grants; None for one that is not in the file."""
        return next((grant for grant in self._followed.content() or () if grant.name == role), None)


def _tokens(file: Path, data: bytes) -> tuple[TokenGrant, ...]:
    grants = _entries(file, data, "tokens", TokenGrant)
    by_name: dict[str, Grant] = {}
    for grant in grants:
        other = by_name.setdefault(grant.name, grant)
        if (grant.role, grant.tenants) != (other.role, other.tenants):
            raise FileError(f"{file}: tokens of the name {grant.name!r} have different rights; give them other names")
    return grants


def _roles(file: Path, data: bytes) -> tuple[Grant, ...]:
    grants = _entries(file, data, "roles", Grant)
    names = [grant.name for grant in grants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FileError(f"{file}: more than one table [[roles]] has the name {twice[0]!r}; leave one")
    return grants


def _entries(file: Path, data: bytes, key: str, kind: type[GrantT]) -> tuple[GrantT, ...]:
    cure = f"write a table [[{key}]] with {', '.join(name for name in kind.model_fields if name != 'expires')} for each"
    try:
        tables: dict[str, Any] = tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise FileError(f"{file} is not text in UTF-8; {cure}") from None
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{file} is not TOML ({error}); {cure}") from None
    entries = tables.pop(key, [])
    if tables or not isinstance(entries, list):
        raise FileError(f"{file} has more than tables [[{key}]]; {cure}")
    if not entries:
        raise EmptyFileError(f"{file} has no [[{key}]], so it grants nothing; {cure}")
    return tuple(_entry(file, key, number, entry, kind) for number, entry in enumerate(cast("list[Any]", entries), 1))


def _entry(file: Path, key: str, number: int, entry: object, kind: type[GrantT]) -> GrantT:
    try:
        return kind.model_validate(entry)
    except ValidationError as error:
        name = cast("Mapping[str, Any]", entry).get("name", "") if isinstance(entry, dict) else ""
        raise FileError(f"{file}, [[{key}]] {number} {name}: {faults(error)}") from None
