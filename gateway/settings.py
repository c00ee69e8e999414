"""Settings of the gateway's process. The connection to Temporal is not among them: it comes from Temporal's own."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.addresses import AdminUrl, GatewayUrl
from models.lifecycle.input import ClusterName
from models.lifecycle.names import TASK_QUEUE
from models.store_url import StoreAddress

PREFIX = "PULSAR_MIGRATE_GATEWAY_"


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
        tls_certificate: file with the certificate and its chain (PEM); read again when it changes.
        tls_key: file with its key (PEM).
        tokens_file: file with the hashes of bearer tokens and their roles; read again when it changes.
        allow_plain: whether to listen without TLS where other machines can connect, for example behind a proxy
            that ends TLS.
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
    task_queue: str = Field(default=TASK_QUEUE, validation_alias="PULSAR_MIGRATE_TASK_QUEUE")
    host: str = "127.0.0.1"
    port: int = Field(default=8090, ge=0, le=65535)
    public_url: GatewayUrl | None = None
    tls_certificate: str = ""
    tls_key: str = ""
    tokens_file: str = ""
    allow_plain: bool = False
    consumer_deadline: timedelta = Field(default=timedelta(seconds=25), gt=timedelta(0))
    change_deadline: timedelta = Field(default=timedelta(seconds=60), gt=timedelta(0))

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key belong together: set both, or none")
        if self.is_local:
            return self
        if not self.tokens_file:
            raise ValueError(
                f"host {self.host} gives every client full access without tokens; set tokens_file, or host 127.0.0.1"
            )
        if not self.tls_certificate and not self.allow_plain:
            raise ValueError(
                f"host {self.host} would accept tokens in plain text; set tls_certificate and tls_key, or allow_plain "
                "where a proxy ends TLS"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether only the local machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def controller_urls(self) -> tuple[str, ...]:
        """Addresses of controllers in the layouts of new topics."""
        return (self.public_url,) if self.public_url else ()
