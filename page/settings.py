"""Settings of the page's process."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gateway.settings import LOOPBACK, Hosts, check_tls
from models.addresses import is_loopback
from models.lifecycle.names import TASK_QUEUE
from pulsar_wire.hosts import listed_hosts

PREFIX = "PULSAR_MIGRATE_PAGE_"


class PageSettings(BaseSettings):
    """Read from the environment, prefix `PULSAR_MIGRATE_PAGE_`.

    Attributes:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        hosts: names by which browsers address it, if these are others than `host` and the names of the local machine.
            Requests for other names are refused.
        tls_certificate: file with the certificate and its chain (PEM); read again when it changes.
        tls_key: file with its key (PEM).
        tls_client_ca: file with the authorities of client certificates (PEM), which browsers need then; empty to ask
            for none.
        tokens_file: TOML file with the hashes of tokens, as the gateway's; read again when it changes. A browser asks
            for a name and a password: the token is the password.
        allow_plain: whether to listen without TLS where other machines can connect, for example behind a proxy
            that ends TLS.
        allow_anonymous: whether to serve without tokens where other machines can connect, for example behind a proxy
            that authenticates.
        requests_per_second: most requests of one identity.
        task_queue: the queue whose workers the metrics count; `PULSAR_MIGRATE_TASK_QUEUE`, as theirs.
        max_connections: most open connections; those without a request are closed for new ones.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True, populate_by_name=True
    )

    host: str = "127.0.0.1"
    port: int = Field(default=8091, ge=0, le=65535)
    hosts: Hosts = ()
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tokens_file: str = ""
    allow_plain: bool = False
    allow_anonymous: bool = False
    task_queue: str = Field(default=TASK_QUEUE, min_length=1, validation_alias="PULSAR_MIGRATE_TASK_QUEUE")
    requests_per_second: float = Field(default=50.0, gt=0)
    max_connections: int = Field(default=200, ge=16, le=10_000)

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        check_tls(self.tls_certificate, self.tls_key, self.tls_client_ca)
        if is_loopback(self.host):
            return self
        if not self.tokens_file and not self.tls_client_ca and not self.allow_anonymous:
            raise ValueError(
                f"host {self.host} would show migrations to every client; set tokens_file, tls_client_ca, "
                "allow_anonymous where a proxy authenticates, or host 127.0.0.1"
            )
        if self.tokens_file and not self.tls_certificate and not self.allow_plain:
            raise ValueError(
                f"host {self.host} would accept tokens in plain text; set tls_certificate and tls_key, or allow_plain "
                "where a proxy ends TLS"
            )
        return self

    @property
    def own_hosts(self) -> tuple[str, ...]:
        """Names by which browsers may address the page."""
        return (*self.hosts, *LOOPBACK, *listed_hosts((self.host,)))

    @property
    def max_requests(self) -> int:
        """Most requests at the same time: other connections stay for `/healthz`, and for refusals."""
        return self.max_connections * 3 // 4
