"""Addresses of metadata stores, in the forms that Pulsar's own configuration takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel

_HOST_PORT = re.compile(r"^(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):\d{1,5}$")
# Without a port, ZooKeeper's own; a name of digits alone is the port of a host that is called zk.
_HOST = re.compile(r"^(?:\[[0-9A-Fa-f:.]+\]|(?=.*[A-Za-z.])[A-Za-z0-9_.-]+)$")
_ZOOKEEPER_PORT = 2181
_FORMS = "zk:host:port[,host:port...][/chroot] or oxia://host:port[/namespace]"


class StoreUrl(BaseModel, frozen=True, extra="forbid"):
    """One metadata store.

    Attributes:
        scheme: `zk` or `oxia`.
        hosts: `host:port` of every server named; Oxia has one entry point.
        root: the chroot of a ZooKeeper store (empty or `/a/b`), or the namespace of an Oxia store.
    """

    scheme: Literal["zk", "oxia"]
    hosts: tuple[str, ...]
    root: str

    def __str__(self) -> str:
        if self.scheme == "zk":
            return f"zk:{','.join(self.hosts)}{self.root}"
        return f"oxia://{self.hosts[0]}/{self.root}"

    @property
    def display(self) -> str:
        """The product's name, for sentences that people read."""
        return "ZooKeeper" if self.scheme == "zk" else "Oxia"

    def shares_servers(self, other: StoreUrl) -> bool:
        """Return whether both have a server in common, by its address."""
        return self.scheme == other.scheme and bool(set(self.hosts) & set(other.hosts))

    def overlaps(self, other: StoreUrl) -> bool:
        """Return whether one of both trees holds the other: same servers, same or nested root."""
        if not self.shares_servers(other):
            return False
        if self.scheme == "oxia":
            return self.root == other.root
        mine, theirs = self.root + "/", other.root + "/"
        return mine.startswith(theirs) or theirs.startswith(mine)


def is_host_and_port(text: str) -> bool:
    """Return whether a text is `host:port`, and nothing that a library might read in another way."""
    return _HOST_PORT.fullmatch(text) is not None


def require_one_set(credentials: Mapping[StoreUrl, str]) -> None:
    """Refuse different credentials for stores on the same servers: servers, not roots, decide which ones are sent.

    Args:
        credentials: name of the credentials of each store.

    Raises:
        ValueError: two stores that share a server have different ones.
    """
    for (first, name), (second, other) in combinations(credentials.items(), 2):
        if name != other and first.shares_servers(second):
            raise ValueError(
                f"{first} and {second} are on the same servers, and have different credentials ({name!r} and "
                f"{other!r}); use one set, which may hold several logins"
            )


def require_scheme(text: str) -> str:
    """Return the address of a store as a user wrote it: it says what kind of store it means.

    Raises:
        ValueError: it does not, as the lists of ZooKeeper servers in brokers' settings do not.
    """
    hosts = text.partition("/")[0].split(",")
    if all(_HOST_PORT.match(host) for host in hosts):
        raise ValueError(f"{text!r} has no scheme; write zk:{text}, or oxia://host:port[/namespace]")
    if "?" in text:
        raise ValueError(
            f"{text!r} has parameters, which configure clients and do not name the store; write "
            f"{text.partition('?')[0]}, and keep the parameters in broker.conf"
        )
    return text


def parse_store_url(text: str) -> StoreUrl:
    """Read a store's address: `zk:`, `zk://`, a bare `host:port` list (ZooKeeper) or `oxia://`.

    After `zk:`, servers without a port have that of ZooKeeper's client, 2181.
    Parameters after a question mark are left out: in a `metadata-store:` address brokers and bookies take them as
    settings of their client.

    Raises:
        ValueError: the text has none of these forms; the message names the forms that are taken.
    """
    address = text.partition("?")[0]
    if address.startswith("oxia://"):
        host, _, namespace = address.removeprefix("oxia://").partition("/")
        if not _HOST_PORT.match(host) or "/" in namespace:
            raise ValueError(f"invalid Oxia address {text!r}; expected oxia://host:port[/namespace]")
        return StoreUrl(scheme="oxia", hosts=(host,), root=namespace or "default")
    if "://" in address and not address.startswith("zk://"):
        raise ValueError(f"{text!r} names a store that is not supported; write {_FORMS}")
    # One prefix only: a host may be called zk.
    rest = address.removeprefix("zk://" if address.startswith("zk://") else "zk:")
    servers, slash, chroot = rest.partition("/")
    # ZooKeeper's client takes blanks around the commas of its list.
    hosts = tuple(host.strip() for host in servers.split(","))
    if rest != address:
        hosts = tuple(f"{host}:{_ZOOKEEPER_PORT}" if _HOST.match(host) else host for host in hosts)
    if not all(_HOST_PORT.match(host) for host in hosts):
        raise ValueError(f"invalid store address {text!r}; expected {_FORMS}")
    root = ("/" + chroot.strip("/")) if slash and chroot.strip("/") else ""
    return StoreUrl(scheme="zk", hosts=hosts, root=root)


def parse_broker_setting(text: str) -> StoreUrl:
    """Read a store's address as brokers take it: also a bare list of ZooKeeper servers without ports.

    Raises:
        ValueError: it is none, or names a store of another kind.
    """
    address = text.removeprefix("metadata-store:").replace(";", ",")
    try:
        return parse_store_url(address)
    except ValueError:
        # A list of ZooKeeper's servers needs neither a scheme nor ports.
        return parse_store_url(f"zk:{address}")


StoreAddress = Annotated[str, AfterValidator(lambda text: str(parse_store_url(require_scheme(text))))]
"""A store's address as users write it in inputs, brought to one form."""
