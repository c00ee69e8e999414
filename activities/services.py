"""Who is at work on a metadata store: brokers, bookies, and the participants of a migration."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import httpx

from clients.access import Access, open_reader
from clients.errors import StoreError
from clients.store import Record, StoreReader
from clients.zookeeper.coordination import Coordination, four_letter
from models.metadata_store import PARTICIPANTS, Census, MetadataStorePlan
from models.store_url import StoreUrl, parse_store_url

_BROKERS = b"/loadbalance/brokers"
_BOOKIES = (b"/ledgers/available", b"/ledgers/available/readonly")
_SEQUENTIAL = re.compile(rb"\d{10}$")


class Service(NamedTuple):
    """A broker or bookie, with the session that holds its registration and the registration's data."""

    name: str
    owner: int
    data: bytes


def registered(reader: StoreReader) -> list[Service]:
    """The brokers and bookies that are registered in a store, each with a live session."""
    found = [_services(reader, b"broker", _BROKERS)] + [_services(reader, b"bookie", path) for path in _BOOKIES]
    return [service for services in found for service in services]


def still_registered(url: StoreUrl, access: Access) -> list[str]:
    """Names of the brokers and bookies with a live session in a store."""
    reader = open_reader(url, access)
    try:
        return [service.name for service in registered(reader)]
    finally:
        reader.close()


def participants(reader: StoreReader) -> set[int]:
    """Sessions of the services that take part in a migration (PIP-454, "Participant Registration")."""
    nodes = reader.read(reader.children(PARTICIPANTS.encode()))
    return {node.owner for node in nodes if isinstance(node, Record) and node.owner}


def is_sequential(path: bytes) -> bool:
    """Whether a path ends in a number that the store chose; such ephemerals are not recreated elsewhere."""
    return _SEQUENTIAL.search(path) is not None


def census(plan: MetadataStorePlan, access: Access, *, admin_timeout: float, admin_token: str) -> Census:
    """Which services still use the source, by their sessions there and by the brokers' own configuration."""
    services: dict[str, str] = {}
    unknown: list[str] = []
    source, target = open_reader(plan.source_url, access), open_reader(plan.target_url, access)
    try:
        for service in registered(source):
            services[service.name] = "its session in the source is still open"
        brokers = [service for service in registered(target) if service.name.startswith("broker ")]
    finally:
        source.close()
        target.close()
    with httpx.Client(timeout=admin_timeout, headers=_authorization(admin_token)) as http:
        for broker in brokers:
            try:
                configured = _configured_store(http, broker)
            except (httpx.HTTPError, ValueError) as error:
                unknown.append(f"{broker.name}: its configuration could not be read ({error})")
                continue
            if configured.overlaps(plan.source_url):
                services.setdefault(broker.name, f"its configuration says metadataStoreUrl={configured}")
    if plan.source_url.scheme == "zk":
        others, hidden = _connections(plan.source_url, access)
        unknown += hidden
        if others and not services:
            services["other clients"] = f"connected to the source from {', '.join(sorted(others))}"
    return Census(services=tuple(f"{name}: {why}" for name, why in sorted(services.items())), unknown=tuple(unknown))


def _services(reader: StoreReader, kind: bytes, path: bytes) -> list[Service]:
    nodes = reader.read(reader.children(path))
    return [
        Service((kind + b" " + node.path.rpartition(b"/")[2]).decode(), node.owner, node.value)
        for node in nodes
        if isinstance(node, Record) and node.owner
    ]


def _authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _configured_store(http: httpx.Client, broker: Service) -> StoreUrl:
    address = json.loads(broker.data).get("webServiceUrl") or ""
    answer = http.get(f"{address}/admin/v2/brokers/configuration/runtime")
    answer.raise_for_status()
    return parse_store_url(str(answer.json()["metadataStoreUrl"]))


def _connections(url: StoreUrl, access: Access) -> tuple[set[str], list[str]]:
    """Addresses of the other clients of a ZooKeeper, and what could not be seen."""
    own: set[int] = set()
    others: set[str] = set()
    hidden: list[str] = []
    with Coordination(url, auth=access.zookeeper_auth, timeout=access.timeout) as zookeeper:
        own.add(zookeeper.session_id)
        for host in url.hosts:
            try:
                text = four_letter(host, "cons", timeout=access.timeout)
            except StoreError as error:
                hidden.append(str(error))
                continue
            if text is None:
                hidden.append(f"connections of {host} are not visible: its 4lw.commands.whitelist lacks `cons`")
                continue
            for address, session in re.findall(r"/([^\s\[]+)\[\d+\]\([^)]*sid=0x([0-9a-f]+)", text):
                if int(session, 16) not in own:
                    others.add(address.rpartition(":")[0])
    return others, hidden
