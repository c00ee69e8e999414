"""Settings of the gateway's process. The connection to Temporal is not among them: it comes from Temporal's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from models.addresses import AdminUrl, WebUrl, is_loopback
from models.lifecycle.input import ClusterName
from models.lifecycle.names import TASK_QUEUE
from models.store_url import StoreAddress
from pulsar_wire.hosts import listed_hosts

PREFIX = "PULSAR_MIGRATE_GATEWAY_"

LOOPBACK = ("localhost", "127.0.0.0/8", "::1")


def _hosts(given: Any) -> Any:
    entries: Any = given.split(",") if isinstance(given, str) else given
    return listed_hosts(entry for entry in entries if entry.strip())


Hosts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_hosts)]
"""Host names, `.domain` for all hosts of a domain, addresses and networks; separated by commas in the environment."""


def check_tls(certificate: str, key: str, client_ca: str) -> None:
    """Check that settings of a server's TLS belong together.

    Raises:
        ValueError: one is missing.
    """
    if bool(certificate) != bool(key):
        raise ValueError("tls_certificate and tls_key belong together: set both, or none")
    if client_ca and not certificate:
        raise ValueError("tls_client_ca needs TLS: set tls_certificate and tls_key too")


class GatewaySettings(BaseSettings):
    """Read from the environment, prefix `PULSAR_MIGRATE_GATEWAY_`.

    Attributes:
        cluster: `clusterName` of the brokers whose topics it serves. One gateway serves one cluster.
        metadata_url: the metadata store of its brokers, for the topics that it creates, and to tell apart two clusters
            of one name.
        admin_urls: addresses of the brokers' admin interface, as JSON; used like the metadata store.
        credentials: name of the credentials in the workers' settings for new topics; empty for the common ones.
        task_queue: the queue of the workers that control the topics it creates; `PULSAR_MIGRATE_TASK_QUEUE`, as theirs.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        public_url: where consumers reach this gateway; written to the layouts of the topics that it creates, unless
            empty.
        hosts: names by which clients address it, if these are others than `host`, the host of `public_url` and the
            names of the local machine. Requests for other names are refused.
        tls_certificate: file with the certificate and its chain (PEM); read again when it changes.
        tls_key: file with its key (PEM).
        tls_client_ca: file with the authorities of client certificates (PEM), which clients need then, also for
            `/healthz`; empty to ask for none.
        tokens_file: TOML file with the hashes of bearer tokens, their roles and tenants; read again when it changes.
        jwt_public_key_file: public key that verifies Pulsar's JWTs (PEM or DER); read again when it changes.
        jwt_secret_key_file: secret key that verifies them instead; read again when it changes.
        jwt_roles_file: TOML file with what the roles in JWTs may do; read again when it changes.
        jwt_auth_claim: claim with the role, as `tokenAuthClaim` of brokers.
        jwt_audience_claim: claim with the audience, as `tokenAudienceClaim` of brokers.
        jwt_audience: audience that a JWT must have, as `tokenAudience` of brokers; empty for any.
        allow_plain: whether to listen without TLS where other machines can connect, for example behind a proxy
            that ends TLS.
        requests_per_second: most requests of one identity.
        max_connections: most open connections; those without a request are closed for new ones.
        api_page: whether the description of the interface is served at `/docs`, without a token.
        metrics_address: where Prometheus metrics are served, without TLS and tokens; empty for none.
        consumer_deadline: longest wait for the answer to a registration.
        change_deadline: longest wait for the end of a change.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True, populate_by_name=True
    )

    cluster: ClusterName
    metadata_url: StoreAddress
    admin_urls: tuple[AdminUrl, ...] = Field(min_length=1)
    credentials: str = ""
    task_queue: str = Field(default=TASK_QUEUE, min_length=1, validation_alias="PULSAR_MIGRATE_TASK_QUEUE")
    host: str = "127.0.0.1"
    port: int = Field(default=8090, ge=0, le=65535)
    public_url: WebUrl | None = None
    hosts: Hosts = ()
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tokens_file: str = ""
    jwt_public_key_file: str = ""
    jwt_secret_key_file: str = ""
    jwt_roles_file: str = ""
    jwt_auth_claim: str = Field(default="sub", min_length=1)
    jwt_audience_claim: str = Field(default="aud", min_length=1)
    jwt_audience: str = ""
    allow_plain: bool = False
    requests_per_second: float = Field(default=500.0, gt=0)
    max_connections: int = Field(default=2000, ge=16, le=100_000)
    api_page: bool = False
    metrics_address: str = ""
    consumer_deadline: timedelta = Field(default=timedelta(seconds=25), gt=timedelta(0))
    change_deadline: timedelta = Field(default=timedelta(seconds=60), gt=timedelta(0))

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        check_tls(self.tls_certificate, self.tls_key, self.tls_client_ca)
        if self.jwt_public_key_file and self.jwt_secret_key_file:
            raise ValueError("JWTs are verified with one key: set jwt_public_key_file or jwt_secret_key_file")
        if self.has_jwts != bool(self.jwt_roles_file):
            raise ValueError(
                "jwt_roles_file belongs to jwt_public_key_file or jwt_secret_key_file: set both, or neither"
            )
        if self.is_local:
            return self
        if not self.tokens_file and not self.has_jwts:
            raise ValueError(
                f"host {self.host} gives every client full access without tokens; set tokens_file, a key for JWTs, or "
                "host 127.0.0.1"
            )
        if not self.tls_certificate and not self.allow_plain:
            raise ValueError(
                f"host {self.host} would accept tokens in plain text; set tls_certificate and tls_key, or allow_plain "
                "where a proxy ends TLS"
            )
        return self

    @property
    def has_jwts(self) -> bool:
        """Whether JWTs of Pulsar are accepted."""
        return bool(self.jwt_public_key_file or self.jwt_secret_key_file)

    @property
    def own_hosts(self) -> tuple[str, ...]:
        """Names by which clients may address this gateway."""
        public = (urlsplit(self.public_url).hostname or "",) if self.public_url else ()
        return (*self.hosts, *LOOPBACK, *listed_hosts((self.host, *public)))

    @property
    def max_requests(self) -> int:
        """Most requests at the same time: other connections stay for `/healthz`, and for refusals."""
        return self.max_connections * 3 // 4

    @property
    def is_local(self) -> bool:
        """Whether only the local machine can connect."""
        return is_loopback(self.host)

    @property
    def controller_urls(self) -> tuple[str, ...]:
        """Addresses of controllers in the layouts of new topics."""
        return (self.public_url,) if self.public_url else ()
