"""The part of PRECHECK that inspects the two BookKeeper clusters: their roots, bookies and disk space."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import Ledgers, scan
from activities.lifecycle.precheck import Findings
from activities.pulsar.registrations import persistent_registration
from clients.bookkeeper.layout import AVAILABLE, READ_ONLY
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.ledgers import Bookie, LedgerDirectory
from clients.bookkeeper.pool import Bookies
from clients.errors import StoreError
from clients.stores import open_reader
from models.bookie_cluster.input import BookieCluster
from models.ledger_store import parse_ledger_store_uri
from models.lifecycle.failures import NAMED, summarize

# Below a ledgers root.
_REGISTRATIONS = (AVAILABLE.encode(), READ_ONLY.encode())
# Header of an entry with the longest digest, and what a bookie adds for its index.
_PER_ENTRY = 32 + 20 + 32
# Names that are looked up at once; one that does not exist may take seconds.
_RESOLVERS = 16
# A bookie becomes read-only when its disk is fuller (`diskUsageThreshold`).
_FULL = 0.95


@dataclass
class ClusterInspection:
    """Inspection of a cluster by PRECHECK.

    Attributes:
        ledgers: all of them.
        bookies: those that are up.
        free: free bytes of the writable bookies that answer.
        total: bytes of their disks.
        bookie_ids: ids of all bookies that are up, have a cookie, or hold a ledger.
    """

    cluster: BookieCluster
    ledgers: Ledgers
    bookies: dict[str, Bookie]
    instance_id: str | None
    free: dict[str, int] = field(default_factory=dict[str, int])
    total: dict[str, int] = field(default_factory=dict[str, int])
    bookie_ids: frozenset[str] = frozenset()

    @property
    def listening(self) -> set[str]:
        """The addresses `host:port` of its bookies that are up."""
        return {f"{bookie.host}:{bookie.port}" for bookie in self.bookies.values()}

    @property
    def addresses(self) -> set[str]:
        """The current and former addresses `host:port` of its bookies; an id of that form is an address too."""
        return self.listening | {key for key in self.bookie_ids | self.bookies.keys() if _is_address(key)}


def inspect(task: BookieClusterTask, cluster: BookieCluster, findings: Findings) -> ClusterInspection | None:
    """Inspect one cluster; return None if it cannot be used."""
    seen: list[ClusterInspection] = []
    with task.ledgers(cluster) as directory:
        whole = findings.check(
            f"the cluster {cluster.name}", lambda: seen.extend(_read(task, cluster, directory, findings))
        )
    return seen[0] if whole and seen else None


def check_pair(
    source: ClusterInspection, target: ClusterInspection, resolved: Mapping[str, set[str]], findings: Findings
) -> None:
    """Find conflicts between the two clusters.

    Args:
        source: the cluster that brokers leave.
        target: the cluster that they will use.
        resolved: IP addresses by host, of bookies of both; a host that is not in it stays as it is written.
        findings: collects the blockers and warnings.
    """
    # Two addresses may name one root; its INSTANCEID is created once, with the cluster.
    if source.instance_id and source.instance_id == target.instance_id:
        findings.block(
            "SAME_CLUSTER",
            f"{source.cluster.name} and {target.cluster.name} have the same INSTANCEID {source.instance_id}",
            "name another target; a cluster of its own is made with `bookkeeper shell initnewcluster`",
        )
    # A bookie that starts empty at an old address accepts writes for ledgers that were closed there (bookkeeper #4812).
    # And a client that resolves the id of a bookie that is down reaches the bookie of the other cluster.
    if shared := _shared_addresses(source, target, resolved):
        findings.block(
            "ADDRESS_REUSED",
            f"{source.cluster.name} and {target.cluster.name} have bookies at the same addresses: "
            f"{', '.join(shared[:NAMED])}",
            "give the bookies of the target hosts or ports that no bookie or ledger of the source ever had",
        )
    both = sum(number in target.ledgers for number in source.ledgers)
    if both:
        findings.warn(
            f"{both:,} ids of {source.cluster.name} are in {target.cluster.name} already; BUILD compares each, "
            "and reports those that differ"
        )
    if alien := len(target.ledgers) - both:
        findings.warn(f"{target.cluster.name} has {alien:,} ledgers of its own; they are left alone")


def resolve_hosts(addresses: Iterable[str]) -> dict[str, set[str]]:
    """Return the IP addresses of the hosts of some addresses, `host:port`."""
    hosts = sorted({address.rpartition(":")[0] for address in addresses})
    with ThreadPoolExecutor(_RESOLVERS) as pool:
        return dict(zip(hosts, pool.map(_resolve, hosts), strict=True))


def needed_bytes(records: Iterable[LedgerFacts]) -> int:
    """Return the bytes that ledgers take on bookies, with replicas; open ledgers count by their known length."""
    return sum((record.length + (record.last_entry + 1) * _PER_ENTRY) * record.write_quorum for record in records)


def check_space(target: ClusterInspection, chosen: Ledgers, largest: int, findings: Findings) -> int:
    """Check that the target's bookies have space for the ledgers that it lacks; return the bytes that these take."""
    name = target.cluster.name
    needed = needed_bytes(record for number, record in chosen.items() if number not in target.ledgers)
    if not target.free:
        findings.block(
            "NO_WRITABLE_BOOKIES",
            f"no bookie of {name} is registered as writable and answers the worker",
            "start its bookies, free their disks if they are read-only, and check network and TLS settings",
        )
        return needed
    if largest > len(target.free):
        findings.block(
            "ENSEMBLE_TOO_LARGE",
            f"{name} has {len(target.free)} writable bookies, and ledgers with an ensemble of {largest} are moved",
            "start more bookies",
        )
    free = sum(target.free.values())
    usable = sum(max(0, target.free[bookie] - int((1 - _FULL) * target.total[bookie])) for bookie in target.free)
    if needed > free:
        findings.block(
            "NO_SPACE",
            f"the copies take {needed / 1e9:,.2f} GB, and the bookies of {name} have {free / 1e9:,.2f} GB",
            "add bookies or disks, or move less",
        )
    elif needed > usable:
        findings.warn(
            f"the copies take {needed / 1e9:,.2f} GB, and the bookies of {name} have {usable / 1e9:,.2f} GB until "
            f"their disks are {_FULL:.0%} full and they become read-only, unless diskUsageThreshold says otherwise"
        )
    return needed


def _read(
    task: BookieClusterTask, cluster: BookieCluster, directory: LedgerDirectory, findings: Findings
) -> list[ClusterInspection]:
    instance_id = directory.instance_id()
    if instance_id is None:
        findings.block(
            "NOT_INITIALIZED",
            f"{cluster.metadataServiceUri} has no INSTANCEID: no BookKeeper cluster was made there",
            "check the address; make a cluster with `bookkeeper shell initnewcluster`",
        )
        return []
    if problem := _layout_problem(cluster, directory.layout()):
        findings.block("LAYOUT_UNSUPPORTED", problem, "name the cluster as its brokers do, or lay it out again")
        return []
    with open_reader(cluster.root, task.access) as reader:
        if persistent := persistent_registration(reader, _REGISTRATIONS):
            cause = f"in {cluster.name}, {persistent.cause}"
            findings.blockers.append(persistent.model_copy(update={"cause": cause}))
    seen = ClusterInspection(cluster, scan(directory), directory.bookies(), instance_id)
    cookies = directory.cookies()
    seen.bookie_ids = frozenset(cookies | directory.members)
    # Also those without a cookie: the address in an id is never used, see `Bookies`.
    if down := sorted(seen.bookie_ids - seen.bookies.keys()):
        named = summarize(down, shown=NAMED)
        findings.warn(f"bookies of {cluster.name} are down, so that their ledgers lack replicas: {named}")
    _ask_bookies(task, seen, directory, findings)
    return [seen]


def _shared_addresses(
    source: ClusterInspection, target: ClusterInspection, resolved: Mapping[str, set[str]]
) -> list[str]:
    """Return the addresses of both clusters, each with the other spelling if they spell it differently."""

    def endpoints(address: str) -> set[str]:
        host, _, port = address.rpartition(":")
        return {f"{ip}:{port}" for ip in resolved.get(host, {host})}

    # One of the two must be up: a resolver may give the same wrong answer for all names that are gone.
    up = source.listening | target.listening
    pairs = sorted(product(source.addresses, target.addresses))
    return [
        here if here == there else f"{here} (as {there})"
        for here, there in pairs
        if here == there or ({here, there} & up and endpoints(here) & endpoints(there))
    ]


def _resolve(host: str) -> set[str]:
    """Return the IP addresses of a host; the name itself if it has none here."""
    try:
        return {str(resolved[4][0]) for resolved in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return {host}


def _is_address(bookie_id: str) -> bool:
    host, _, port = bookie_id.rpartition(":")
    return bool(host) and port.isdecimal()


def _layout_problem(cluster: BookieCluster, factory: str | None) -> str:
    """Return why a root cannot be used; empty if it can."""
    layouts = {
        "HierarchicalLedgerManagerFactory": "hierarchical",
        "LongHierarchicalLedgerManagerFactory": "longhierarchical",
    }
    # Pulsar's metadata driver writes no LAYOUT, and knows the hierarchical one only.
    if factory is None:
        return ""
    layout = layouts.get(factory.rpartition(".")[2])
    if layout is None:
        return f"{cluster.metadataServiceUri} has the layout {factory}, and only hierarchical ones are known"
    wanted = parse_ledger_store_uri(cluster.metadataServiceUri).layout
    if wanted not in (None, layout):
        return f"{cluster.metadataServiceUri} asks for the layout {wanted}, and the root has {layout}"
    return ""


def _ask_bookies(
    task: BookieClusterTask, seen: ClusterInspection, directory: LedgerDirectory, findings: Findings
) -> None:
    timeout = task.input.old_ledger_read_timeout.total_seconds()
    silent: list[str] = []
    access = task.access.to(directory.url).bookies
    with Bookies(directory.bookies, access=access, read_timeout=timeout) as bookies:
        for bookie in seen.bookies.values():
            try:
                space = bookies.free_space(bookie.bookie_id)
            except StoreError as error:
                silent.append(str(error))
                continue
            # Only bookies that answered: a registration does not prove that the worker can reach them.
            if bookie.writable:
                seen.free[bookie.bookie_id], seen.total[bookie.bookie_id] = space.free, space.total
    if silent:
        findings.warn(f"bookies of {seen.cluster.name} that are registered do not answer: {'; '.join(silent)}")
