"""The generator of ledger ids if Pulsar's driver keeps ledgers in Oxia: its next id, and how to raise it.

Source: PulsarLedgerIdGenerator and OxiaMetadataStore of Pulsar 5.0.1. For a sequential record brokers write its
parent, and take the parent's modification count for its number: 1 for the first one beneath a new parent.
"""

from __future__ import annotations

from contextlib import suppress

from clients.bookkeeper.idgen import IdGenerator, generator_state, high_path, raise_above
from clients.bookkeeper.layout import ID_GENERATOR, INSTANCE_ID, LONG_ID_GENERATOR
from clients.errors import StoreUnsupported, VersionConflict
from clients.oxia.access import ANONYMOUS, OxiaAccess
from clients.oxia.client import OxiaClient
from clients.oxia.reader import OxiaReader
from clients.store import ABSENT, name_of
from models.store_url import StoreUrl

#: Pulsar's driver always keeps ledgers here.
_LEDGERS = "/ledgers"


def read_oxia_generator(url: StoreUrl, *, access: OxiaAccess = ANONYMOUS, timeout: float) -> IdGenerator | None:
    """Return the next id without using it; None if no ledgers are kept there.

    Raises:
        StoreError: the store cannot be read.
    """
    with OxiaClient(url, access=access, timeout=timeout) as client:
        # The instance id exists from the setup of the cluster on, the generator from its first ledger on.
        initialized = any(client.get(_path(path)) for path in (INSTANCE_ID, ID_GENERATOR, LONG_ID_GENERATOR))
        return _read_state(client, timeout) if initialized else None


def raise_oxia_generator(url: StoreUrl, above: int, *, access: OxiaAccess = ANONYMOUS, timeout: float) -> IdGenerator:
    """Make the generator assign ids above this one; change nothing if it already does.

    It cannot be lowered. The call can be repeated, and run twice at once. Brokers see it through a notification.

    Raises:
        StoreUnsupported: no ledgers are kept there, or there is no id above this one.
        StoreConflict: others keep changing the generator.
        StoreError: the store cannot be read or written.
    """
    if read_oxia_generator(url, access=access, timeout=timeout) is None:
        raise StoreUnsupported(f"there are no ledgers in {url}; start its bookies and brokers")
    with OxiaClient(url, access=access, timeout=timeout) as client:

        def create_high(high: int) -> None:
            # The child first: a generator that finds the parent alone would create a child of its own.
            for path in (high_path(high), LONG_ID_GENERATOR):
                with suppress(VersionConflict):
                    client.put(_path(path), b"", ABSENT)

        return raise_above(above, url, read=lambda: _read_state(client, timeout), create_high=create_high)


def _read_state(client: OxiaClient, timeout: float) -> IdGenerator:
    short_next = _next(client, ID_GENERATOR)
    if client.get(_path(LONG_ID_GENERATOR)) is None:
        return generator_state(short_next, None, lambda _: 0)
    with OxiaReader(client.url, access=client.access, timeout=timeout) as reader:
        names = [name_of(child) for child in reader.children(_path(LONG_ID_GENERATOR))]
    return generator_state(short_next, names, lambda name: _next(client, f"{LONG_ID_GENERATOR}/{name}"))


def _next(client: OxiaClient, path: str) -> int:
    record = client.get(_path(path))
    return record.count + 1 if record else 1


def _path(path: str) -> bytes:
    return f"{_LEDGERS}{path}".encode()
