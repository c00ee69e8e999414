"""Reads the migration flag of a ZooKeeper store (PIP-454, "Migration State")."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import ValidationError

from clients.cas.store import CasReader
from clients.errors import StoreConflict
from models.base import faults
from models.migration_flag import FLAG, Flag, FlagPhase


class StandingFlag(NamedTuple):
    """Current migration flag.

    Attributes:
        flag: what services read; NOT_STARTED where there is none.
        version: version of its record; -1 where there is none.
        modified_ms: when it was set, by the server's clock; 0 where there is none.
    """

    flag: Flag
    version: int
    modified_ms: int


def read_flag(store: CasReader) -> StandingFlag:
    """Return the current flag.

    Raises:
        StoreConflict: the record is not a flag.
    """
    node = store.get(FLAG)
    if node is None:
        return StandingFlag(Flag(phase=FlagPhase.NOT_STARTED), -1, 0)
    if not node.value:
        return StandingFlag(Flag(phase=FlagPhase.NOT_STARTED), node.version, node.modified_ms)
    try:
        return StandingFlag(Flag.model_validate_json(node.value), node.version, node.modified_ms)
    except ValidationError as error:
        message = f"{FLAG} in {store.url} holds no migration flag ({faults(error)}); find out who set it"
        raise StoreConflict(message) from error


def moved_to(flag: Flag) -> str:
    """Return the message that a store is not in use any more."""
    return f"the migration flag is COMPLETED (target {flag.targetUrl}): this store is not in use any more"


def foreign_flag(flag: Flag) -> str:
    """Return the error that another migration changed the flag."""
    return (
        f"the migration flag {FLAG} is {flag.phase} (target {flag.targetUrl}), and this migration did not set it: "
        "another tool migrates this cluster, perhaps with Pulsar's own command"
    )
