"""Checks of registered brokers: their releases, and whether all stores that they use follow the migration.

PRECHECK runs them, and PREPARATION again: a broker may have been restarted in between with other settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from activities.lifecycle.precheck import Findings
from activities.metadata_store.indexed import has_scalable_topics
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.brokers import BrokerView
from activities.pulsar.registrations import Service
from activities.pulsar.releases import SeenBroker, check_releases
from clients.errors import StoreError
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access, open_reader, trees_overlap
from models.broker_settings import configuration_store_apart, metadata_store_of
from models.defects import Product
from models.ledger_store import ledgers_of_pulsar, parse_ledger_store_uri
from models.lifecycle.failures import Blocker, summarize
from models.metadata_store.input import MetadataStoreInput, Mode
from models.releases import Behaviour
from models.store_url import parse_broker_setting

BOOKKEEPER_STAYS = "BOOKKEEPER_STAYS"
LEDGERS_ELSEWHERE = "LEDGERS_ELSEWHERE"
LEDGERS_UNKNOWN = "LEDGERS_UNKNOWN"
"""Codes of blockers for where a broker keeps the metadata of ledgers."""

_BOOKKEEPER = "bookkeeperMetadataServiceUri"
# Names in one blocker.
_some = partial(summarize, shown=10)
_SYNC_TOPICS = ("metadataSyncEventTopic", "configurationMetadataSyncEventTopic")
# With all three, segments of scalable topics take part in transactions (5.0.1; both latter ones are the default).
_TRANSACTIONS = (
    "transactionCoordinatorEnabled",
    "transactionCoordinatorScalableTopicsEnabled",
    "scalableTopicsEnabled",
)


def ask_brokers(
    input: MetadataStoreInput, brokers: Sequence[Service], access: Access, admin: AdminAccess, findings: Findings
) -> None:
    """Check whether each of these brokers can take part in this migration.

    Args:
        input: of the migration.
        brokers: registered in the source; may be empty.
        access: credentials and timeout of stores.
        admin: access to brokers.
        findings: get the results.
    """
    with BrokerView(admin) as view:
        seen = [view.read(broker) for broker in brokers]
    if input.mode is Mode.LIVE:
        check_ledgers(input, seen, access, findings)
        check_settings(input, seen, access, findings)
    stores = (input.source_url, input.target_url)
    unseen = (Product.OXIA,) if any(store.scheme == "oxia" for store in stores) else ()
    oldest = check_releases(findings, input.kind, seen, accepted=input.accepted, unseen=unseen)
    if input.mode is Mode.LIVE and oldest and not oldest.has(Behaviour.LIVE_MIGRATION):
        findings.block(
            "NO_LIVE_MIGRATION",
            f"brokers of Pulsar {oldest} take no part in a migration of their metadata store (PIP-454)",
            'use "mode": "offline", or upgrade all brokers and bookies to 4.2 or newer',
        )


def check_ledgers(input: MetadataStoreInput, brokers: Sequence[SeenBroker], access: Access, findings: Findings) -> None:
    """Refuse brokers whose ledgers' metadata would not follow the commit.

    Without `bookkeeperMetadataServiceUri` they do: Pulsar's own driver uses the brokers' metadata store then.
    """
    elsewhere: dict[str, str] = {}
    # Many brokers have the same settings.
    relation = cache(partial(_relation, input, access))
    for broker in brokers:
        settings = broker.settings or {}
        uri = settings.get(_BOOKKEEPER) or ""
        if broker.settings is None:
            code, why = BROKERS_UNKNOWN, broker.why
        else:
            code, why = relation(uri, metadata_store_of(settings) or input.source) if uri else ("", "")
        if code == BROKERS_UNKNOWN:
            findings.block(
                code,
                f"{broker.name}: its {_BOOKKEEPER} is not known ({why}), so that nothing proves that its ledgers' "
                "metadata follow the migration",
                "let the worker reach its admin interface, with credentials of a superuser if it asks for them, and "
                "trust its certificate (PULSAR_MIGRATE_ADMIN_*); a broker that was killed vanishes when its session "
                "has expired",
            )
        elif code == LEDGERS_UNKNOWN:
            findings.block(
                code,
                f"{broker.name} has {_BOOKKEEPER}={uri}, which may be {input.source} by another name: {why}",
                f"let the worker reach it, or set {_BOOKKEEPER} to metadata-store:{input.source} if it is that store",
            )
        elif code == BOOKKEEPER_STAYS:
            findings.block(
                code,
                f"{broker.name} has {_BOOKKEEPER}={uri}: {why}, so that after the commit it would write the metadata "
                "of new ledgers to the source alone",
                f"remove {_BOOKKEEPER} from its broker.conf, or set it to metadata-store:{input.source}, and restart "
                "it; bookies need the same",
            )
        elif code == LEDGERS_ELSEWHERE:
            elsewhere[broker.name] = uri
    if elsewhere:
        named = ", ".join(f"{name} ({uri})" for name, uri in sorted(elsewhere.items()))
        cause = f"brokers keep the metadata of ledgers outside of {input.source}: {named}"
        if input.leave_ledgers:
            findings.warn(f"{cause}; it stays there")
        else:
            findings.blockers.append(ledgers_elsewhere(cause))


def check_settings(
    input: MetadataStoreInput, brokers: Sequence[SeenBroker], access: Access, findings: Findings
) -> None:
    """Refuse brokers with a setting that keeps a part of them on the source after the commit.

    `check_ledgers` reports brokers whose settings are not known.
    """
    synced: list[str] = []
    elsewhere: list[str] = []
    subscribed: list[str] = []
    differs = cache(partial(_configuration_differs, input, access))
    for broker in brokers:
        settings = broker.settings or {}
        # mutant: metadata-store/metadata-is-exchanged-by-the-source
        synced += [f"{broker.name} ({name}={settings[name]})" for name in _SYNC_TOPICS if settings.get(name)]
        # Ask the servers only about settings that differ.
        name, store = configuration_store_apart(settings)
        if name and (why := differs(store, metadata_store_of(settings) or input.source)):
            elsewhere.append(f"{broker.name} ({name}={store}{why})")
        if all(settings.get(name) == "true" for name in _TRANSACTIONS):
            subscribed.append(broker.name)
    if synced:
        findings.block(
            "METADATA_SYNC",
            f"brokers exchange metadata changes with other clusters: {_some(synced)}. After a live migration that "
            "exchange still uses the source: changes of other clusters are written there, and those of this cluster "
            "are not published",
            f'remove {" and ".join(_SYNC_TOPICS)} from broker.conf and restart the brokers, or use "mode": "offline"',
        )
    if elsewhere:
        findings.block(
            "CONFIGURATION_ELSEWHERE",
            f"the configuration store of brokers is not {input.source}: {_some(elsewhere)}. This migration moves one "
            "store, and sets the migration flag of that store only",
            'stop the services of all clusters that use either store, and use "mode": "offline": migrate each store '
            "that you want to move to a target of its own, and start the brokers with both addresses",
        )
    if subscribed and _has_scalable_topics(input, access):  # mutant: metadata-store/segments-listen-to-the-source
        findings.block(
            "TRANSACTIONS",
            f"transactions on scalable topics are enabled on {_some(subscribed)}, and {input.source} has scalable "
            "topics. Segments that are loaded wait for the end of transactions in the source, also after the commit; "
            "what a transaction writes would not be delivered",
            "set transactionCoordinatorScalableTopicsEnabled=false in broker.conf and restart the brokers, or use "
            '"mode": "offline"',
        )


def ledgers_elsewhere(cause: str) -> Blocker:
    """Return the blocker for a cluster whose ledgers' metadata is in another store, chroot or namespace."""
    return Blocker(
        code=LEDGERS_ELSEWHERE,
        cause=f"{cause}; this migration moves one store",
        cure='to leave the metadata of ledgers where it is, set "leave_ledgers": true and keep '
        f"{_BOOKKEEPER} as it is, also after the migration; to move it as well, stop all services, migrate both stores "
        'with "mode": "offline", this one with "leave_ledgers": true, each to a target of its own, and start the '
        "services with both new addresses",
    )


def _configuration_differs(input: MetadataStoreInput, access: Access, configuration: str, own: str) -> str:
    """Return why a configuration store is not, or may not be, the broker's metadata store; empty if it is.

    Args:
        input: the migration.
        access: credentials and timeout.
        configuration: the broker's name of its configuration store.
        own: the broker's own name of its metadata store.
    """
    try:
        store = parse_broker_setting(configuration)
        # mutant: metadata-store/configuration-stores-are-chroots
        stores = [same for same in (input.source_url, parse_broker_setting(own)) if same.root == store.root]
        if any(same.overlaps(store) for same in stores) or any(trees_overlap(same, store, access) for same in stores):
            return ""
    except (ValueError, StoreError) as error:
        return f", which may be another store: {error}"
    return ", another store"


def _has_scalable_topics(input: MetadataStoreInput, access: Access) -> bool:
    with open_reader(input.source_url, access) as reader:
        return has_scalable_topics(reader)


def _relation(input: MetadataStoreInput, access: Access, uri: str, own: str) -> tuple[str, str]:
    """Return a blocker's code and why, for where a broker keeps the metadata of ledgers; both empty if they follow.

    Args:
        input: the migration.
        access: credentials and timeout.
        uri: where the broker keeps them.
        own: the broker's own name of its metadata store.
    """
    try:
        stores = [input.source_url, parse_broker_setting(own)]
        pulsars = ledgers_of_pulsar(uri)
        root = pulsars or parse_ledger_store_uri(uri).url
    except ValueError as error:
        return BROKERS_UNKNOWN, str(error)
    try:
        # A broker's own name is enough: it is registered in the source.
        holders = [store for store in stores if store.overlaps(root)] or [
            store for store in stores if trees_overlap(store, root, access)
        ]
    except StoreError as error:
        return LEDGERS_UNKNOWN, str(error)
    if not holders:
        return LEDGERS_ELSEWHERE, ""
    if pulsars is None:
        return BOOKKEEPER_STAYS, "this driver of BookKeeper takes no part in a migration"
    if any(root.root == store.root for store in holders):
        return "", ""
    return BOOKKEEPER_STAYS, "it is another chroot of the same tree, with a migration flag of its own"
