"""Senders of requests: their names, roles and tenants."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, AwareDatetime, Field

from models.base import Frozen
from models.topic_controller.sessions import json_size

EVERYTHING = "*"
"""Entry of `tenants` for all tenants."""

MAX_NAME = 128
"""Most bytes of a name in JSON; it is stored with each consumer's session."""

_SCOPE = re.compile(r"[\w.~-]+(/[\w.~-]+)?", re.ASCII)


class Role(StrEnum):
    """Rights, each with those of the roles before it.

    READER: list topics, read layouts and statistics.
    CLIENT: register consumers, and end their sessions.
    ADMIN: everything.
    """

    READER = "reader"
    CLIENT = "client"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        """Return whether the role includes a needed one."""
        order = [*Role]
        return order.index(self) >= order.index(needed)


class Principal(NamedTuple):
    """The sender of a request.

    Attributes:
        identity: `token:<name>` or `jwt:<role>`, for logs, notes and sessions of consumers; `local` without tokens.
        role: what it may do.
        tenants: where: `tenant` or `tenant/namespace`, or `*` for everywhere.
    """

    identity: str
    role: Role
    tenants: tuple[str, ...]

    def may_use(self, tenant: str, namespace: str) -> bool:
        """Return whether it may use the topics of a namespace."""
        # mutant: topic-controller/a-token-reaches-other-tenants
        return not {EVERYTHING, tenant, f"{tenant}/{namespace}"}.isdisjoint(self.tenants)


LOCAL = Principal("local", Role.ADMIN, (EVERYTHING,))
"""Each sender where no tokens are set: then only the gateway's own machine can connect."""


def _check_name(name: str) -> str:
    if not 0 < json_size(name) <= MAX_NAME:
        raise ValueError(f"a name has {json_size(name):,} bytes in JSON; write 1 to {MAX_NAME}")
    if not name.isprintable() or name != name.strip():
        raise ValueError("invalid name; write printable characters, without a space at its ends")
    return name


def _check_scope(scope: str) -> str:
    if scope != EVERYTHING and not _SCOPE.fullmatch(scope):
        raise ValueError(f'invalid tenant {scope!r}; write "tenant", "tenant/namespace", or "*" for all tenants')
    return scope


class Grant(Frozen):
    """Entry of a file of tokens or roles.

    Attributes:
        name: of the token, or of the role in a JWT.
        role: what it may do.
        tenants: where; see `Principal`.
        expires: when it ends; None for never.
    """

    name: Annotated[str, AfterValidator(_check_name)]
    role: Role
    tenants: tuple[Annotated[str, AfterValidator(_check_scope)], ...] = Field(min_length=1)
    expires: AwareDatetime | None = None

    def principal(self, kind: str) -> Principal:
        """Return the sender that this entry describes."""
        return Principal(f"{kind}:{self.name}", self.role, self.tenants)
