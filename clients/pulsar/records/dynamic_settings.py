"""Dynamic settings, which apply to all brokers of a cluster, in the brokers' metadata store.

Source: `DynamicConfigurationResources` of Pulsar; seen with 5.0.1. Brokers apply a change when the store notifies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clients.cas.store import CasReader, CasStore
from clients.pulsar.json_records import Record, change_record, read_record

_PATH = "/admin/configuration"


def read_dynamic_settings(store: CasReader) -> Record:
    """Return the settings that were changed, by name."""
    return read_record(store, _PATH) or {}


def change_dynamic_settings(
    store: CasStore, fence: Callable[[], object], change: Callable[[Record], Mapping[str, str]]
) -> Record:
    """Change settings, now and after restarts; return all of them. They are written in any case, as by `change_record`.

    A broker keeps the last value of a setting that is removed until it restarts.

    Args:
        store: the metadata store of the brokers.
        fence: see `change_record`.
        change: gets the settings, and returns what they must be; may be called again.

    Raises:
        StoreContention: others changed them again and again.
    """
    return change_record(store, _PATH, fence, lambda settings: dict(change(settings)), create=True)
