"""A stack described by data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Settings = dict[str, str]
#: Issuer and audience of the tokens that Oxia servers of a stack take.
TOKEN_ISSUER, TOKEN_AUDIENCE = "https://tokens.example", "oxia"
Chroot = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._-]+)*$")]


class ServerTls(BaseModel):
    """TLS of servers of one kind. They then have no port without TLS.

    Attributes:
        authorities: PEM file of the authorities that sign all certificates.
        server: PEM file with the servers' certificate and its key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    authorities: Path
    server: Path


class MutualTls(ServerTls):
    """TLS with certificates of clients.

    Attributes:
        client: PEM file with the certificate and the key of the stack's own clients: set-up steps, bookies, brokers.
    """

    client: Path


class ZooKeeperSecurity(MutualTls):
    """TLS and logins of all ZooKeeper servers of a stack.

    Attributes:
        users: SASL users (DIGEST-MD5), name to password. The stack's own clients log in as the first one.
        login_required: refuse sessions without a SASL login.
    """

    users: Settings = {}
    login_required: bool = False

    @model_validator(mode="after")
    def _can_log_in(self) -> Self:
        if self.login_required and not self.users:
            raise ValueError("login_required needs a user; set users to {name: password}")
        return self


class OxiaSecurity(ServerTls):
    """TLS, and with it tokens, of all Oxia servers of a stack.

    Attributes:
        client_certificates: refuse clients without a certificate.
        token_keys: PEM file with public keys or certificates of the issuers of tokens (JWT, RS256), which the servers
            then require, with the issuer `TOKEN_ISSUER` and the audience `TOKEN_AUDIENCE`; None for no tokens.
    """

    client_certificates: bool = False
    token_keys: Path | None = None


class PulsarSecurity(MutualTls):
    """TLS, tokens and authorization of brokers, and TLS of bookies. Clients of brokers need a token, no certificate.

    Attributes:
        token_key: file with the key that signs tokens (HS256).
        broker_role: the role with which brokers call each other; a superuser.
        superusers: further roles that may do everything.
        bookie_role: role that certificates of clients of bookies must have, as `0:ROLE` in their organizational unit.
    """

    token_key: Path
    broker_role: str
    superusers: tuple[str, ...] = ()
    bookie_role: str


class StackSpec(BaseModel):
    """Servers of a stack.

    Attributes:
        zookeepers: servers of the ZooKeeper ensemble.
        second_zookeepers: a ZooKeeper of its own, as the target of a migration from ZooKeeper to ZooKeeper, or for
            `ledgers_apart`.
        oxias: Oxia servers, each of them a store of its own with the namespace `default`.
        oxia_shards: shards of each Oxia.
        bookies: bookies, on the store that `metadata` names.
        second_bookies: bookies of a BookKeeper cluster of its own, on ZooKeeper next to the first, as the target of a
            switch; brokers use it after `Stack.use_bookies`.
        brokers: brokers, on the same store.
        temporal: whether Temporal's dev server with the Web UI runs; it keeps its state in a file.
        temporal_search_attributes: search attributes to register, name to type (`Keyword`, `Int`, ...).
        ledgers_apart: keep the metadata of ledgers in the second ZooKeeper, and those of brokers in the first.
        metadata: the store that brokers and bookies use at first; both can be moved with `Stack.reconfigure`.
        zk_chroot: the node under which Pulsar lives in ZooKeeper, empty or `/a/b`.
        cluster: the name of the Pulsar cluster.
        broker_settings: lines for every `broker.conf`, which win over the stack's own.
        bookie_settings: lines for every `bookkeeper.conf`, likewise.
        zookeeper_settings: lines for every `zoo.cfg`, likewise.
        zookeeper_security: TLS and logins of all ZooKeeper servers; None for plain ones.
        oxia_security: TLS and tokens of all Oxia servers; None for plain ones.
        pulsar_security: TLS, tokens and authorization of all brokers and bookies; None for plain ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    zookeepers: Literal[0, 1, 3] = 0
    second_zookeepers: Literal[0, 1] = 0
    oxias: int = Field(default=0, ge=0, le=3)
    oxia_shards: int = Field(default=1, ge=1, le=64)
    bookies: int = Field(default=0, ge=0, le=9)
    second_bookies: int = Field(default=0, ge=0, le=9)
    brokers: int = Field(default=0, ge=0, le=9)
    temporal: bool = False
    temporal_search_attributes: Settings = {}
    ledgers_apart: bool = False
    metadata: Literal["zk", "oxia"] = "zk"
    zk_chroot: Chroot = ""
    cluster: str = Field(default="dev", pattern=r"^[A-Za-z0-9_-]+$")
    broker_settings: Settings = {}
    bookie_settings: Settings = {}
    zookeeper_settings: Settings = {}
    zookeeper_security: ZooKeeperSecurity | None = None
    oxia_security: OxiaSecurity | None = None
    pulsar_security: PulsarSecurity | None = None

    @model_validator(mode="after")
    def _can_start(self) -> Self:
        if self.brokers and not self.bookies:
            raise ValueError("brokers keep messages on bookies; set bookies to 1 or more")
        if self.bookies and not (self.zookeepers if self.metadata == "zk" else self.oxias):
            store = "zookeepers" if self.metadata == "zk" else "oxias"
            raise ValueError(f"bookies and brokers need the metadata store {self.metadata!r}; set {store} to 1 or more")
        if self.ledgers_apart and not (self.second_zookeepers and self.bookies):
            raise ValueError(
                "ledgers_apart needs a second ZooKeeper and bookies; set second_zookeepers and bookies to 1"
            )
        if self.second_bookies and not self.zookeepers:
            raise ValueError("second_bookies keep their metadata in ZooKeeper; set zookeepers to 1 or 3")
        if self.zk_chroot and not self.zookeepers:
            raise ValueError("zk_chroot needs a ZooKeeper; set zookeepers to 1 or 3")
        return self

    @property
    def replicas(self) -> int:
        """How many bookies get each message by default: two where each cluster has two."""
        return min([2, *(count for count in (self.bookies, self.second_bookies) if count)])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all servers, in the order in which people look at them."""
        counts = {
            "zookeeper": self.zookeepers,
            "second-zookeeper": self.second_zookeepers,
            "oxia": self.oxias,
            "bookie": self.bookies,
            "second-bookie": self.second_bookies,
            "broker": self.brokers,
        }
        numbered = [f"{kind}-{number}" for kind, count in counts.items() for number in range(1, count + 1)]
        return (*numbered, *(["temporal"] if self.temporal else []))
