"""Census of the services that still use the source of a metadata store migration."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping

from temporalio.exceptions import ApplicationError

from activities.lifecycle.step import step
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.occupied import ledgers_only_in
from activities.pulsar.brokers import BrokerView
from activities.pulsar.registrations import brokers, participants, registered, still_in_use
from clients.errors import StoreError
from clients.store import StoreReader, name_of
from clients.stores import Access, open_reader, trees_overlap
from clients.zookeeper.coordination import four_letter
from clients.zookeeper.sessions import own_sessions
from models.broker_settings import configuration_store_of, metadata_store_of
from models.ledger_store import ledgers_of_pulsar, parse_ledger_store_uri
from models.lifecycle.failures import FailureKind
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.results import Census
from models.store_url import StoreUrl, parse_broker_setting

# Each bookie that may have ledgers has one, whether it runs or not.
_COOKIES = b"/ledgers/cookies"
# Seconds until a server lists a session no more that was closed, also where it is busy.
_SECOND_LOOK = 2.0
_ABSENT = (
    "Start them on the target; of those that are gone for good, remove the cookies (bookkeeper shell cookie_delete)"
)


def not_restarted(target: StoreReader, sessions: Mapping[str, int]) -> dict[str, str]:
    """Return services that have not restarted since the commit, each with the evidence.

    A service that lost its session with the source may not have followed the commit. Such a bookie reads the source as
    soon as it can, and deletes ledgers that the source does not have.

    Args:
        target: reader of the target.
        sessions: of services in the target at the commit.
    """
    return {
        service.name: "its session in the target is the one of the commit, so that it has not restarted since"
        for service in registered(target)
        if sessions.get(service.name) == service.owner
    }


def absent_bookies(target: StoreReader) -> list[str]:
    """Return the bookies that have a cookie in the target, and are not registered there.

    Such a bookie may be frozen, or disconnected from both stores since before the commit. When it is back it reads the
    source, and deletes all ledgers that the source does not have any more (5.0.1).

    Args:
        target: reads the target.
    """
    there = {service.name for service in registered(target)}
    cookies = (name_of(path) for path in target.children(_COOKIES))
    return [name for bookie in sorted(cookies) if (name := f"bookie {bookie}") not in there]


def require_unused_source(input: MetadataStoreInput, access: Access, sessions: Mapping[str, int]) -> None:
    """Raise if registrations show that a service uses the source; called right before its cleanup.

    Args:
        input: the migration.
        access: credentials and timeout of stores.
        sessions: of services in the target at the commit.

    Raises:
        ApplicationError: `SourceInUse`, where a service uses the source or may use it.
        StoreError: a store cannot be read.
    """
    restart = "Restart them on the target"
    with open_reader(input.source_url, access) as source:
        _refuse("services came back to the source", still_in_use(source), restart)
    with open_reader(input.target_url, access) as target:
        _refuse("services have not restarted since the commit", not_restarted(target, sessions), restart)
        # mutant: metadata-store/a-cleanup-though-a-bookie-is-cut-off
        _refuse("bookies are not registered, and may be cut off from both stores", absent_bookies(target), _ABSENT)
    if newer := ledgers_only_in(input.source_url, input.target_url, access):
        _refuse("bookies used the source after the copy", [newer], "Leave the source as it is")


def _refuse(why: str, named: Collection[str], cure: str) -> None:
    if named:
        text = f"{why}: {', '.join(sorted(named))}. {cure}"
        raise ApplicationError(text, type=FailureKind.IN_USE, non_retryable=True)


@step(MetadataStoreTask, reads_only=True)
def census(task: MetadataStoreTask, sessions: dict[str, int] | None = None) -> Census:
    """Return which services still use the source, by their sessions and by the brokers' own configuration.

    Args:
        task: the migration.
        sessions: of services in the target at the commit.
    """
    input, access, admin = task.input, task.access, task.admin
    unknown: list[str] = []
    with open_reader(input.target_url, access) as target:
        running, services, absent = brokers(target), not_restarted(target, sessions or {}), absent_bookies(target)
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
                # It reads the flag in the source at each start, so it still depends on that store.
                if setting := _on_source(input, settings, access):
                    services.setdefault(broker.name, f"its configuration says {setting}")
            except (StoreError, ValueError) as error:
                unknown.append(f"{broker.name}: its configuration could not be read, or may name the source ({error})")
    unknown += [
        f"{bookie} is not registered, and may be cut off from both stores. {_ABSENT}"
        for bookie in absent  # mutant: metadata-store/a-bookie-that-is-cut-off-is-not-reported
        if bookie not in services
    ]
    if started and not services:
        named = ", ".join(f"0x{owner:x}" for owner in sorted(started))
        services["other participants"] = f"sessions {named}: started with the address of the source"
    if input.source_url.scheme == "zk":
        others, hidden = _other_clients(input.source_url, access)
        unknown += hidden
        # Weak evidence: an address may belong to a tool.
        if others and not services:
            services["other clients"] = f"connected to the source from {', '.join(sorted(others))}"
    named = (f"{name}: {why}{_ended(name)}" for name, why in sorted(services.items()))
    return Census(services=tuple(named), unknown=tuple(unknown))


def _ended(service: str) -> str:
    # Seen on 5.0.1: auditors and replication workers give up when PREPARATION has them lose their session.
    return "; autorecovery in it has ended until it restarts" if service.startswith("bookie ") else ""


def _on_source(input: MetadataStoreInput, settings: Mapping[str, str], access: Access) -> str:
    """Return the setting of a broker that names the source; empty without one.

    Raises:
        StoreError: a store must be read to compare addresses, and cannot be read.
        ValueError: a setting is not a store's address.
    """
    for setting, store in _stores(settings):
        if not store.overlaps(input.target_url) and trees_overlap(input.source_url, store, access):
            return setting
    return ""


def _stores(settings: Mapping[str, str]) -> list[tuple[str, StoreUrl]]:
    """Return the stores that a broker names, each with the setting that names it.

    Raises:
        ValueError: a setting is not a store's address.
    """
    # An empty address raises ValueError as well.
    store, (name, configuration) = metadata_store_of(settings), configuration_store_of(settings)
    stores = [(f"the metadata store {store}", parse_broker_setting(store))]
    if name:
        stores.append((f"{name}={configuration}", parse_broker_setting(configuration)))
    if ledgers := settings.get("bookkeeperMetadataServiceUri"):
        url = ledgers_of_pulsar(ledgers) or parse_ledger_store_uri(ledgers).url
        stores.append((f"bookkeeperMetadataServiceUri={ledgers}", url))
    return stores


def _other_clients(url: StoreUrl, access: Access) -> tuple[set[str], list[str]]:
    """Return the addresses of other clients of a ZooKeeper, and the servers that do not report theirs.

    Other checks of this process open and close sessions at the same time. A server still lists one that was just
    closed, and one that is being opened is not known as ours yet, so a client counts if it is seen twice.
    """
    others, hidden = _connections(url, access)
    if others:
        time.sleep(_SECOND_LOOK)
        again, hidden = _connections(url, access)
        others = {session: host for session, host in others.items() if session in again}
    return set(others.values()), hidden


def _connections(url: StoreUrl, access: Access) -> tuple[dict[int, str], list[str]]:
    """Return the hosts of others' sessions, and the servers that do not report theirs."""
    to_store = access.to(url)
    others: dict[int, str] = {}
    hidden: list[str] = []
    for host in url.hosts:
        try:
            text = four_letter(host, "cons", access=to_store.zookeeper, timeout=to_store.timeout)
        except StoreError as error:
            hidden.append(str(error))
            continue
        if text is None:
            hidden.append(f"connections of {host} are not visible: its 4lw.commands.whitelist lacks `cons`")
            continue
        seen = re.findall(r"/([^\s\[]+)\[\d+\]\([^)]*sid=0x([0-9a-f]+)", text)
        # The watch of the source is one of ours, and stays until the window has ended.
        own = own_sessions()
        for address, session in seen:
            if (number := int(session, 16)) not in own:
                others[number] = address.rpartition(":")[0]
    return others, hidden
