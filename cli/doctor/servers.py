"""Checks of the servers that a migration's input leads to: stores, brokers and bookies."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

from activities.lifecycle.precheck import Findings
from activities.pulsar.able_brokers import BROKERS_UNKNOWN
from activities.pulsar.brokers import BrokerView
from activities.pulsar.coverage import check_zookeeper, survey
from activities.pulsar.exclusion import CLUSTERS
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.registrations import Service
from activities.pulsar.registrations import brokers as registered_brokers
from activities.pulsar.releases import check_releases
from cli.doctor.findings import Check, Finding, failed, ok, run_checks, warning
from cli.doctor.process import variable
from cli.migrations import Servers
from clients.bookkeeper.ledgers import Bookie, LedgerDirectory
from clients.bookkeeper.pool import Bookies
from clients.errors import (
    DestinationRefused,
    NoCredentials,
    StoreDenied,
    StoreError,
    StoreProtocolError,
    StoreUnreachable,
)
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdminReader
from clients.store import StoreReader
from clients.stores import Access, StoreAccess, open_reader
from models.credentials import UnknownCredentials
from models.defects import Product
from models.lifecycle.input import Accepted
from models.lifecycle.units import Quantity, Unit, format_value
from models.releases import Release, behaviour_differences, default_differences
from models.settings import Settings
from models.store_url import StoreUrl
from process.exit_codes import CommandFailed, ExitCode
from pulsar_wire.hosts import is_listed

_NOTHING_ACCEPTED = Accepted()

# Yields findings of one cluster, and returns the oldest release of its brokers; None if it is unknown.
_FindingsAndRelease = Generator[Finding, None, Release | None]


def server_findings(
    servers: Servers, settings: Settings, migration: str = "", accepted: Accepted = _NOTHING_ACCEPTED
) -> Iterator[Finding]:
    """Check all servers of an input, read only; with two clusters also the differences of their releases.

    Args:
        servers: servers to check.
        settings: settings of the worker.
        migration: kind of the migration (`kind/mode`), to report known defects of the brokers.
        accepted: what the operator accepts of the releases.
    """
    release = yield from _cluster_findings(servers, settings, migration, accepted)
    for other in servers.others:
        # Defects of the brokers that the migration leaves are the ones that matter.
        other_release = yield from _cluster_findings(other, settings)
        if release and other_release:
            subject = f"releases of {servers.cluster} and {other.cluster}"
            yield from _differences(subject, release, other_release, migration)


def _differences(subject: str, first: Release, second: Release, migration: str) -> Iterator[Finding]:
    texts = [*behaviour_differences(first, second, migration), *default_differences(first, second, migration)]
    for text in texts or [f"nothing that differs between {first} and {second} matters"]:
        yield ok(subject, text)


def _cluster_findings(
    servers: Servers, settings: Settings, migration: str = "", accepted: Accepted = _NOTHING_ACCEPTED
) -> _FindingsAndRelease:
    names = {servers.metadata: servers.credentials, **servers.store_credentials}
    try:
        access = Access.of_each(names, partial(Access.from_settings, settings))
        admin = AdminAccess.from_settings(settings, servers.credentials)
    except UnknownCredentials as error:
        lacking = next(name for name in names.values() if name and name not in settings.credentials)
        cure = f"correct the input, or set {variable('credentials')}__{lacking.upper()}__…"
        yield failed(f"credentials of {servers.cluster}", CommandFailed(ExitCode.USAGE, str(error), cure))
        return None
    lists = {name: _Hosts(settings, name) for name in names.values()}
    hosts = lists[servers.credentials]
    for store in servers.stores.values():
        lists[names.get(store, servers.credentials)].add(store.hosts)
    checks = [
        Check(f"{role} {url.hosts[0]}", partial(_answers, url, access))
        for role, store in servers.stores.items()
        for url in _each_server(store)
    ]
    checks.append(Check(f"cluster {servers.cluster}", partial(_cluster, servers, access)))
    yield from run_checks(checks)
    release = yield from _brokers(servers, access, admin, hosts, migration, accepted)
    if migration:
        yield from _features(servers, access, admin, migration, accepted)
    for name, root in servers.bookie_clusters.items():
        own = lists[names.get(root, servers.credentials)]
        own.add(root.hosts)
        yield from _bookies(name, root, access, own)
    for each in lists.values():
        yield from each.findings()
    return release


class _Hosts:
    """Hosts that a cluster's credentials are used for, to compare them with the list in the settings."""

    def __init__(self, settings: Settings, credentials: str) -> None:
        self._needed = settings.credentials_of(credentials).has_secret
        self._destinations = settings.destinations_of(credentials)
        self._seen: dict[str, None] = {}

    def add(self, addresses: Iterable[str]) -> None:
        """Add hosts of `host:port` addresses and of URLs."""
        for address in addresses:
            if host := urlsplit(address if "://" in address else f"//{address}").hostname:
                self._seen[host] = None

    def findings(self) -> Iterator[Finding]:
        """Return a finding with the line to add if hosts are missing in the list."""
        listed, name = self._destinations.hosts, f"{self._destinations.setting}HOSTS"
        if not listed and not self._needed:
            return
        if missing := [host for host in self._seen if not is_listed(host, listed)]:
            cure = f"set {name}={','.join((*listed, *missing))} if they belong to the cluster"
            yield failed(name, CommandFailed(ExitCode.USAGE, f"it lacks {', '.join(missing)}", cure))
        else:
            yield ok(name, "it lists all hosts of the cluster that are known")


def _each_server(url: StoreUrl) -> list[StoreUrl]:
    """Return each server of a store by itself: a client of all of them needs only one that answers."""
    return [url.model_copy(update={"hosts": (host,)}) for host in url.hosts]


def _answers(url: StoreUrl, access: Access) -> str:
    begun = time.monotonic()
    top = _read(url, access, lambda reader: reader.children(b"/"))
    taken = time.monotonic() - begun
    where = f"{url.root} of " if url.root else ""
    own = access.to(url)
    how = " with TLS" if (own.zookeeper if url.scheme == "zk" else own.oxia).tls else ""
    took = format_value(taken, Unit(Quantity.TIME))
    return f"{where}{url.display} has {len(top)} nodes at its top; read{how} in {took}"


def _cluster(servers: Servers, access: Access) -> str | Finding:
    """Check that the store has a Pulsar cluster of this name: a wrong chroot looks like an empty store."""
    subject = f"cluster {servers.cluster}"
    paths = _read(servers.metadata, access, lambda reader: reader.children(CLUSTERS.encode()))
    names = sorted(path.rpartition(b"/")[2].decode() for path in paths)
    if not names:
        cure = "check the address, above all the path after the port"
        return warning(subject, f"{servers.metadata} has no Pulsar cluster (no {CLUSTERS})", cure)
    if servers.cluster not in names:
        return warning(
            subject, f"{servers.metadata} has only {', '.join(names)}", "check the cluster's name and the address"
        )
    return f"{servers.metadata} has its metadata"


def _brokers(  # noqa: PLR0917 - what a cluster's checks share
    servers: Servers, access: Access, admin: AdminAccess, hosts: _Hosts, migration: str, accepted: Accepted
) -> _FindingsAndRelease:
    reader = open_reader(servers.metadata, access)
    try:
        brokers = registered_brokers(reader)
    except StoreError as error:
        yield failed("brokers", _failure(error))
        return None
    finally:
        reader.close()
    for broker in brokers:
        # A broker without an address has a finding of its own.
        with suppress(StoreError):
            hosts.add(registered_urls(broker.data, admin))
    if servers.needs_brokers and not brokers:
        cure = "start them; the migration needs running brokers to start"
        yield warning("brokers", f"none is registered in {servers.metadata}", cure)
    yield from run_checks([Check(broker.name, partial(_broker, broker, admin)) for broker in brokers])
    return (yield from _releases(servers, brokers, admin, migration, accepted))


def _releases(
    servers: Servers, brokers: Sequence[Service], admin: AdminAccess, migration: str, accepted: Accepted
) -> _FindingsAndRelease:
    subject, findings = f"releases of {servers.cluster}", Findings()
    unseen = [Product.BOOKKEEPER] if servers.bookie_clusters else []
    if any(store.scheme == "oxia" for store in servers.stores.values()):
        unseen.append(Product.OXIA)
    try:
        with BrokerView(admin) as view:
            # A broker that does not answer has a finding of its own already.
            seen = [broker for service in brokers if (broker := view.read(service)).version]
    except (StoreDenied, NoCredentials) as error:
        yield failed(subject, _failure(error))
        return None
    if not seen:
        return None
    oldest = check_releases(findings, migration, seen, accepted=accepted, unseen=unseen)
    for blocker in findings.blockers:
        yield failed(subject, CommandFailed(ExitCode.USAGE, blocker.cause, blocker.cure))
    for text in findings.warnings:
        yield warning(subject, text, "")
    if oldest and not (findings.blockers or findings.warnings):
        yield ok(subject, f"no known defect of Pulsar {oldest} matters")
    return oldest


def _features(
    servers: Servers, access: Access, admin: AdminAccess, migration: str, accepted: Accepted
) -> Iterator[Finding]:
    """Compare what the cluster uses with the coverage table, without the statistics of topics."""
    subject, census, findings = f"features of {servers.cluster}", FeatureCensus(servers.cluster), Findings()
    try:
        survey(census, servers.metadata, access, admin, servers.selects)
    except StoreError as error:
        yield failed(subject, _failure(error))
        return
    # A broker that does not answer has a finding of its own already.
    uses = census.check(findings, migration, accepted.items, [BROKERS_UNKNOWN])
    check_zookeeper(findings, servers.metadata, access, accepted)
    for text in findings.warnings:
        yield warning(subject, text, "")
    for blocker in findings.blockers:
        yield failed(subject, CommandFailed(ExitCode.USAGE, blocker.cause, blocker.cure))
    if census.silent:
        yield warning(subject, f"the settings of {', '.join(census.silent)} are unknown", "see the lines above")
    elif not findings.blockers:
        yield ok(subject, f"{len(uses)} are in use, and the migration knows them; `pulsar-migrate features` lists them")


def _broker(broker: Service, admin: AdminAccess) -> str | Finding:
    try:
        urls = registered_urls(broker.data, admin)
        with PulsarAdminReader.open(admin, urls, connections=1) as client:
            version = client.brokers.version()
            # Only superusers may read it, and a migration must.
            client.brokers.runtime_configuration()
    except DestinationRefused as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "see the line of the hosts") from error
    except StoreDenied as error:
        cure = "give the worker a superuser's credentials: a token, or those of OAuth2 or TLS"
        raise CommandFailed(ExitCode.USAGE, str(error), cure) from error
    except StoreError as error:
        raise _failure(error) from error
    summary = f"Pulsar {version} at {urls[0]}"
    if admin.auth is not None and urls[0].startswith("http:"):
        cure = "enable HTTPS on it (webServicePortTls)"
        return warning(broker.name, f"{summary}, so that credentials are sent in clear text, as ALLOW_PLAIN says", cure)
    return summary


def _bookies(name: str, root: StoreUrl, access: Access, hosts: _Hosts) -> Iterator[Finding]:
    subject = f"bookies of {name}"
    try:
        with LedgerDirectory(root, access) as directory:
            up, members = directory.bookies(), directory.cookies()
    except StoreError as error:
        yield failed(subject, _failure(error))
        return
    hosts.add(f"{bookie.host}:{bookie.port}" for bookie in up.values())
    if not up:
        yield warning(subject, f"no bookie is registered below {root}", "start them, and check the address")
    if down := sorted(members - up.keys()):
        yield warning(subject, f"these are down: {', '.join(down)}", "start them; until then ledgers may lack replicas")
    own = access.to(root)
    yield from run_checks(
        [Check(f"bookie {bookie_id}", partial(_bookie, bookie, up, own)) for bookie_id, bookie in up.items()]
    )


def _bookie(bookie: Bookie, registered: dict[str, Bookie], access: StoreAccess) -> str | Finding:
    subject = f"bookie {bookie.bookie_id}"
    try:
        with Bookies(lambda: registered, access=access.bookies, read_timeout=access.timeout) as bookies:
            space = bookies.free_space(bookie.bookie_id)
    except StoreError as error:
        raise _failure(error) from error
    except OSError as error:
        raise CommandFailed(ExitCode.USAGE, f"TLS files cannot be used: {error}", "see the lines above") from error
    size, secured = Unit(Quantity.SIZE), ", with TLS" if access.bookies.tls else ""
    free = f"{size.format(space.free)} of {size.format(space.total)} are free{secured}"
    return free if bookie.writable else warning(subject, f"it is read-only; {free}", "free its disks")


def _read(url: StoreUrl, access: Access, read: Callable[[StoreReader], list[bytes]]) -> list[bytes]:
    reader = open_reader(url, access)
    try:
        return read(reader)
    except StoreError as error:
        raise _failure(error) from error
    finally:
        reader.close()


def _failure(error: StoreError) -> CommandFailed:
    if isinstance(error, StoreUnreachable):
        return CommandFailed(ExitCode.UNREACHABLE, str(error), "check the address, the network and the server's log")
    if isinstance(error, DestinationRefused):
        return CommandFailed(ExitCode.USAGE, str(error), "see the line of the hosts")
    if isinstance(error, StoreDenied):
        cure = "give the worker credentials, or change the ACL"
        return CommandFailed(ExitCode.USAGE, str(error), cure)
    cure = "check that the address leads to the right server" if isinstance(error, StoreProtocolError) else ""
    return CommandFailed(ExitCode.USAGE, str(error), cure)
