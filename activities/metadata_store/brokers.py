"""What PRECHECK of the metadata store migration asks the registered brokers: whether their ledgers move too."""

from __future__ import annotations

from collections.abc import Sequence

from activities.lifecycle.precheck import Findings
from activities.lifecycle.releases import SeenBroker
from models.ledger_store import ledgers_of_pulsar, parse_ledger_store_uri
from models.lifecycle.failures import Blocker
from models.metadata_store.input import MetadataStoreInput
from models.store_url import StoreUrl, parse_store_url

_ELSEWHERE = "elsewhere"
_METADATA, _BOOKKEEPER = "metadataStoreUrl", "bookkeeperMetadataServiceUri"


def check_brokers(input: MetadataStoreInput, brokers: Sequence[SeenBroker], findings: Findings) -> None:
    """Refuse brokers whose ledgers' metadata would not follow the commit.

    Without `bookkeeperMetadataServiceUri` they do: Pulsar's own driver uses the brokers' metadata store then.
    """
    elsewhere: dict[str, str] = {}
    for broker in brokers:
        settings = broker.settings or {}
        uri = settings.get(_BOOKKEEPER) or ""
        why = "" if broker.settings is not None else broker.why
        try:
            stores = [input.source_url, parse_store_url(settings.get(_METADATA) or input.source)]
            where = _relation(uri, stores) if uri else ""
        except ValueError as error:
            where, why = "", str(error)
        if why:
            findings.block(
                "BROKERS_UNKNOWN",
                f"{broker.name}: its {_BOOKKEEPER} is not known ({why}), so that nothing proves that its ledgers' "
                "metadata follow the migration",
                "let the worker reach its admin interface, with credentials of a superuser if it asks for them, and "
                "trust its certificate (PULSAR_MIGRATE_ADMIN_*); a broker that was killed vanishes when its session "
                "has expired",
            )
        elif where == _ELSEWHERE:
            elsewhere[broker.name] = uri
        elif where:
            findings.block(
                "BOOKKEEPER_STAYS",
                f"{broker.name} has {_BOOKKEEPER}={uri}: {where}, so that after the commit it would write the metadata "
                "of new ledgers to the source alone",
                f"remove {_BOOKKEEPER} from its broker.conf, or set it to metadata-store:{input.source}, and restart "
                "it; bookies need the same",
            )
    if elsewhere:
        named = ", ".join(f"{name} ({uri})" for name, uri in sorted(elsewhere.items()))
        cause = f"brokers keep the metadata of ledgers outside of {input.source}: {named}"
        if input.leave_ledgers:
            findings.warn(f"{cause}; it stays there")
        else:
            findings.blockers.append(ledgers_elsewhere(cause))


def ledgers_elsewhere(cause: str) -> Blocker:
    """Return the blocker for a cluster whose ledgers' metadata is in another store, chroot or namespace."""
    return Blocker(
        code="LEDGERS_ELSEWHERE",
        cause=f"{cause}; this migration moves one store",
        cure='to leave the metadata of ledgers where it is, set "leave_ledgers": true and keep '
        f"{_BOOKKEEPER} as it is, also after the migration; to move it as well, give both one store first, or migrate "
        "each offline, with all services stopped during both",
    )


def _relation(uri: str, stores: list[StoreUrl]) -> str:
    """Return where a broker's ledgers are: empty if they follow, `_ELSEWHERE`, or why they would not follow."""
    if pulsars := ledgers_of_pulsar(uri):
        if any(pulsars.overlaps(store) and pulsars.root == store.root for store in stores):
            return ""
        inside = any(pulsars.overlaps(store) for store in stores)
        return "it is another chroot of the same tree, with a migration flag of its own" if inside else _ELSEWHERE
    root = parse_ledger_store_uri(uri).url
    if any(root.overlaps(store) for store in stores):
        return "this driver of BookKeeper takes no part in a migration"
    return _ELSEWHERE
