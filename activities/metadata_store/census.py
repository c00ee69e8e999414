"""Who still uses the source of a metadata store migration."""

from __future__ import annotations

import re
from collections.abc import Mapping

from activities.lifecycle.brokers import BrokerView
from activities.lifecycle.registrations import brokers, participants, registered
from clients.errors import StoreError
from clients.pulsar.admin.access import AdminAccess
from clients.store import StoreReader
from clients.stores import Access, open_reader, trees_overlap
from clients.zookeeper.coordination import four_letter
from clients.zookeeper.sessions import own_sessions
from models.broker_settings import configuration_store_of, metadata_store_of
from models.ledger_store import ledgers_of_pulsar, parse_ledger_store_uri
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.results import Census
from models.store_url import StoreUrl, parse_broker_setting


def not_restarted(target: StoreReader, sessions: Mapping[str, int]) -> dict[str, str]:
    """Return services that have not restarted since the commit, each with the evidence.

    One that has lost its session with the source may not have followed the commit. A bookie then reads the source as
    soon as it can, and deletes what that does not have.

    Args:
        target: reads the target.
        sessions: of services in the target at the commit.
    """
    return {
        service.name: "its session in the target is the one of the commit, so that it has not restarted since"
        for service in registered(target)
        if sessions.get(service.name) == service.owner
    }


def census(input: MetadataStoreInput, access: Access, admin: AdminAccess, sessions: Mapping[str, int]) -> Census:
    """Return which services still use the source, by their sessions and by the brokers' own configuration.

    Args:
        input: the migration.
        access: credentials and timeout of stores.
        admin: how brokers are asked.
        sessions: of services in the target at the commit.
    """
    unknown: list[str] = []
    with open_reader(input.target_url, access) as target:
        running, services = brokers(target), not_restarted(target, sessions)
    with open_reader(input.source_url, access) as source:
        # A service keeps its session in ZooKeeper after COMPLETED until its process restarts (4.2.4, 5.0.1).
        for service in registered(source):
            services[service.name] = "its session in the source is still open"
        # Participants of the commit are registered no more: these have started since, on the source's address.
        started = participants(source)
    with BrokerView(admin) as view:
        for broker in running:
            try:
                settings = view.configuration(broker)
                # It reads the flag in the source at each start, and so depends on that store still.
                if setting := _on_source(input, settings, access):
                    services.setdefault(broker.name, f"its configuration says {setting}")
            except (StoreError, ValueError) as error:
                unknown.append(f"{broker.name}: its configuration could not be read, or may name the source ({error})")
    if started and not services:
        named = ", ".join(f"0x{owner:x}" for owner in sorted(started))
        services["other participants"] = f"sessions {named}: started with the address of the source"
    if input.source_url.scheme == "zk":
        others, hidden = _connections(input.source_url, access)
        unknown += hidden
        # The weakest evidence: an address may be that of a tool.
        if others and not services:
            services["other clients"] = f"connected to the source from {', '.join(sorted(others))}"
    return Census(services=tuple(f"{name}: {why}" for name, why in sorted(services.items())), unknown=tuple(unknown))


def _on_source(input: MetadataStoreInput, settings: Mapping[str, str], access: Access) -> str:
    """Return the setting of a broker that names the source; empty without one.

    Raises:
        StoreError: only the stores themselves show it, and one of them cannot be read.
        ValueError: a setting names no store that is known.
    """
    for setting, store in _stores(settings):
        if not store.overlaps(input.target_url) and trees_overlap(input.source_url, store, access):
            return setting
    return ""


def _stores(settings: Mapping[str, str]) -> list[tuple[str, StoreUrl]]:
    """Return the stores that a broker names, each with the setting that names it.

    Raises:
        ValueError: a setting names no store that is known.
    """
    # An empty address is a wrong one.
    store, (name, configuration) = metadata_store_of(settings), configuration_store_of(settings)
    found = [(f"the metadata store {store}", parse_broker_setting(store))]
    if name:
        found.append((f"{name}={configuration}", parse_broker_setting(configuration)))
    if ledgers := settings.get("bookkeeperMetadataServiceUri"):
        url = ledgers_of_pulsar(ledgers) or parse_ledger_store_uri(ledgers).url
        found.append((f"bookkeeperMetadataServiceUri={ledgers}", url))
    return found


def _connections(url: StoreUrl, access: Access) -> tuple[set[str], list[str]]:
    """Addresses of the other clients of a ZooKeeper, and what could not be seen."""
    others: set[str] = set()
    hidden: list[str] = []
    for host in url.hosts:
        try:
            text = four_letter(host, "cons", timeout=access.timeout)
        except StoreError as error:
            hidden.append(str(error))
            continue
        if text is None:
            hidden.append(f"connections of {host} are not visible: its 4lw.commands.whitelist lacks `cons`")
            continue
        seen = re.findall(r"/([^\s\[]+)\[\d+\]\([^)]*sid=0x([0-9a-f]+)", text)
        # The watch of the source is one of ours, and stays until the window has ended.
        own = own_sessions()
        others.update(address.rpartition(":")[0] for address, session in seen if int(session, 16) not in own)
    return others, hidden
