"""Addresses of BookKeeper clusters: the metadataServiceUri, in the forms that bookies and brokers take."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.store_url import StoreUrl, parse_store_url

_FORMS = (
    "zk://host:port[;host:port...]/ledgers (also zk+null, zk+hierarchical, zk+longhierarchical) or "
    "metadata-store:zk:host:port[;host:port...][/chroot]"
)
_LAYOUTS: dict[str, Literal["hierarchical", "longhierarchical"] | None] = {
    "zk": None,
    "zk+null": None,
    "zk+hierarchical": "hierarchical",
    "zk+longhierarchical": "longhierarchical",
}
_PULSAR_DRIVER = "metadata-store:"
# Pulsar's driver always keeps ledgers here, beneath the chroot.
_PULSAR_LEDGERS = "/ledgers"


class LedgerStoreUri(BaseModel):
    """Store of the metadata of a BookKeeper cluster's ledgers.

    Attributes:
        text: as it was written.
        url: the ZooKeeper, with the ledgers' root (`/ledgers`) as its root.
        layout: the layout that the scheme asks for; None leaves it to what the root's `LAYOUT` says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    url: StoreUrl
    layout: Literal["hierarchical", "longhierarchical"] | None = None

    def __str__(self) -> str:
        return self.text


def ledgers_of_pulsar(text: str) -> StoreUrl | None:
    """Return the metadata store that a URI of Pulsar's own driver names; None for one of BookKeeper's drivers.

    Raises:
        ValueError: it names no store that is known.
    """
    if not text.startswith(_PULSAR_DRIVER):
        return None
    return _store(text, text.removeprefix(_PULSAR_DRIVER))


def parse_ledger_store_uri(text: str) -> LedgerStoreUri:
    """Read a metadataServiceUri.

    Raises:
        ValueError: it has no form that is taken; the message names those.
    """
    if store := ledgers_of_pulsar(text):
        if store.scheme != "zk":
            raise ValueError(f"{text!r} keeps ledgers in {store.display}; ledgers are moved on ZooKeeper only")
        return LedgerStoreUri(text=text, url=store.model_copy(update={"root": store.root + _PULSAR_LEDGERS}))
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _LAYOUTS:
        raise ValueError(f"unsupported metadataServiceUri {text!r}; expected {_FORMS}")
    store = _store(text, f"zk://{rest}")
    if not store.root:
        raise ValueError(f"{text!r} names no root of the ledgers; write {_FORMS}")
    return LedgerStoreUri(text=text, url=store, layout=_LAYOUTS[scheme])


def _store(text: str, address: str) -> StoreUrl:
    try:
        # BookKeeper splits its settings at commas, so its URIs join hosts by semicolons.
        return parse_store_url(address.replace(";", ","))
    except ValueError as error:
        raise ValueError(f"invalid metadataServiceUri {text!r}; expected {_FORMS}") from error
