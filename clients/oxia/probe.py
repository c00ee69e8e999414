"""Check of the features that a server must have before a migration may write to it."""

from __future__ import annotations

import secrets

from clients.errors import StoreUnsupported
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.connection import SERVICE, SERVICE_V1, OxiaConnection
from clients.oxia.reader import OxiaReader
from clients.oxia.writer import OxiaWriter
from clients.store import COORDINATOR, Record
from models.store_url import StoreUrl

# Nothing that a server would choose for a new record.
_VERSION, _COUNT = 42, 7


def probe_target(url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> None:
    """Write scratch records below Pulsar's coordination subtree, read them back, and remove them.

    Raises:
        StoreUnsupported: the server ignores version overrides, or does not sort keys by hierarchy, which Pulsar needs
            to list children.
        StoreError: the server cannot be used for another reason.
    """
    top = COORDINATOR + b"/probe-" + secrets.token_hex(8).encode()
    # Sorted by bytes alone, `a/grandchild` would lie among the children, after `a-b`.
    children = [top + b"/a", top + b"/a-b", top + b"/b"]
    scratch = [top, *children, top + b"/a/grandchild"]
    writer, reader = OxiaWriter(url, access=access, timeout=timeout), OxiaReader(url, access=access, timeout=timeout)
    try:
        for path in scratch:
            writer.put(Record(path, b"probe", _VERSION, _COUNT, 0, 0, 0), over=None)
        writer.flush()
        _check_versions(url, reader, scratch)
        if reader.children(top) != children:
            raise StoreUnsupported(
                f"Oxia at {url.hosts[0]} does not sort the keys of namespace {url.root!r} by hierarchy, so Pulsar "
                "cannot list children; create a namespace with keySorting: hierarchical, and name it as the target"
            )
    finally:
        try:
            # Also if the check failed: a refused target stays as empty as it was.
            for path in scratch:
                writer.delete(path)
            writer.flush()
        finally:
            writer.close()
            reader.close()


def speaks_v1(url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float = 10) -> bool:
    """Return whether the server knows the service's newer name, without writing anything.

    Servers that ignore version overrides do not know it (0.14.0). A yes is a sign, the proof is `probe_target`.

    Raises:
        StoreError: the server cannot be reached, or has no such namespace.
    """
    connection = OxiaConnection(url, access=access, timeout=timeout)
    try:
        # A namespace that does not exist is a different error, not a sign of an old server.
        connection.assignments(SERVICE)
        try:
            connection.assignments(SERVICE_V1)
        except StoreUnsupported:
            return False
        return True
    finally:
        connection.close()


def _check_versions(url: StoreUrl, reader: OxiaReader, paths: list[bytes]) -> None:
    for record in reader.read(paths):
        # Oxia 0.14 accepts puts with overrides and ignores the overrides; only a read shows it.
        if not isinstance(record, Record) or (record.version, record.count) != (_VERSION, _COUNT):
            raise StoreUnsupported(
                f"Oxia at {url.hosts[0]} ignores version overrides (PutRequest fields 9 and 10); "
                "needs Oxia 0.16 or newer"
            )
