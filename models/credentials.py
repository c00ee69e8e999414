"""Credentials of one cluster in a worker's settings: the common ones, or a set with a name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from pulsar_wire.hosts import listed_hosts

CredentialsName = Annotated[str, Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$", max_length=64)]
"""Lower case, as names of environment variables do not keep the case; `__` ends the name there."""


SECRETS = (
    "zookeeper_auth",
    "zookeeper_auth_file",
    "zookeeper_sasl_password",
    "zookeeper_sasl_password_file",
    "bookie_sasl_password",
    "bookie_sasl_password_file",
    "oxia_token",
    "oxia_token_file",
    "admin_token",
    "admin_token_file",
    "admin_oauth2_key_file",
)
"""Fields of secrets that are sent to servers: a set that has one must list its hosts."""


class UnknownCredentials(LookupError):
    """The settings have no credentials of a name; the message tells those that they have."""


class Credentials(BaseModel):
    """How one cluster's brokers and its ZooKeeper are talked to.

    Attributes:
        hosts: hosts that this set may be used for, separated by commas: exact names, `.domain` for all hosts of a
            domain, addresses, and networks. Required as soon as the set has a secret.
        allow_plain: whether secrets may go over links that are not encrypted, also where TLS is configured.
        zookeeper_auth: credentials for ZooKeeper, each `scheme:credential` (for example `digest:user:password`).
        zookeeper_auth_file: file with further ones, one in a line; read again for each connection.
        zookeeper_sasl_username: name for the login at ZooKeeper (SASL DIGEST-MD5); empty for no login.
        zookeeper_sasl_password: its password.
        zookeeper_sasl_password_file: file that holds the password instead; read again for each connection.
        zookeeper_tls_ca: file with the certificates (PEM) that those of ZooKeeper's servers are checked against. If it
            is set, all connections to ZooKeeper use TLS.
        zookeeper_tls_certificate: file with our own certificate (PEM), where the servers ask for one.
        zookeeper_tls_key: file with its key (PEM); empty if the certificate's file has it.
        zookeeper_tls_verify_hostname: whether a server's certificate must name its host.
        oxia_token: bearer token for Oxia.
        oxia_token_file: file that holds it instead; read again for each call.
        oxia_tls_ca: file with the certificates (PEM) that those of Oxia's servers are checked against. If it is set,
            all connections to Oxia use TLS, and a certificate must name its server's host.
        oxia_tls_certificate: file with our own certificate (PEM), where the servers ask for one.
        oxia_tls_key: file with its key (PEM); empty if the certificate's file has it.
        bookie_sasl_username: name for the login at bookies (SASL DIGEST-MD5); empty for no login.
        bookie_sasl_password: its password.
        bookie_sasl_password_file: file that holds the password instead; read again for each connection.
        bookie_tls_ca: the same for bookies; empty means no TLS.
        bookie_tls_certificate: file with our own certificate (PEM), where bookies ask for one.
        bookie_tls_key: file with its key (PEM); empty if the certificate's file has it.
        bookie_tls_verify_hostname: whether a bookie's certificate must name its host.
        admin_token: bearer token for the brokers' admin interface.
        admin_token_file: file that holds it instead; read again when it changes.
        admin_oauth2_key_file: file (JSON) with `client_id` and `client_secret`, as Pulsar's clients take it: tokens are
            got for them instead (OAuth2 client credentials).
        admin_oauth2_issuer_url: issuer of these tokens, whose metadata names the token endpoint.
        admin_oauth2_token_url: the token endpoint itself, instead of the issuer.
        admin_oauth2_audience: who the tokens are for.
        admin_oauth2_scope: what they are for.
        admin_oauth2_tls_ca: file with the certificates (PEM) that the endpoint's own is checked against; empty means
            the system's.
        admin_tls_ca: the same for brokers. Brokers that offer HTTPS are asked by HTTPS in any case.
        admin_tls_certificate: file with our own certificate (PEM), where brokers ask for one.
        admin_tls_key: file with its key (PEM); empty if the certificate's file has it.
        admin_tls_verify_hostname: whether a broker's certificate must name its host.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    hosts: str = ""
    allow_plain: bool = False
    zookeeper_auth: tuple[SecretStr, ...] = ()
    zookeeper_auth_file: str = ""
    zookeeper_sasl_username: str = ""
    zookeeper_sasl_password: SecretStr = SecretStr("")
    zookeeper_sasl_password_file: str = ""
    zookeeper_tls_ca: str = ""
    zookeeper_tls_certificate: str = ""
    zookeeper_tls_key: str = ""
    zookeeper_tls_verify_hostname: bool = True
    oxia_token: SecretStr = SecretStr("")
    oxia_token_file: str = ""
    oxia_tls_ca: str = ""
    oxia_tls_certificate: str = ""
    oxia_tls_key: str = ""
    bookie_sasl_username: str = ""
    bookie_sasl_password: SecretStr = SecretStr("")
    bookie_sasl_password_file: str = ""
    bookie_tls_ca: str = ""
    bookie_tls_certificate: str = ""
    bookie_tls_key: str = ""
    bookie_tls_verify_hostname: bool = True
    admin_token: SecretStr = SecretStr("")
    admin_token_file: str = ""
    admin_oauth2_key_file: str = ""
    admin_oauth2_issuer_url: str = ""
    admin_oauth2_token_url: str = ""
    admin_oauth2_audience: str = ""
    admin_oauth2_scope: str = ""
    admin_oauth2_tls_ca: str = ""
    admin_tls_ca: str = ""
    admin_tls_certificate: str = ""
    admin_tls_key: str = ""
    admin_tls_verify_hostname: bool = True

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        given = [
            name
            for name in ("admin_token", "admin_token_file", "admin_oauth2_key_file")
            if is_given(getattr(self, name))
        ]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are both set; give the brokers' credentials in one way")
        if self.admin_oauth2_key_file and bool(self.admin_oauth2_issuer_url) == bool(self.admin_oauth2_token_url):
            raise ValueError("admin_oauth2_key_file needs either admin_oauth2_issuer_url or admin_oauth2_token_url")
        if self.admin_tls_key and not self.admin_tls_certificate:
            raise ValueError("admin_tls_key needs admin_tls_certificate")
        _ = self.listed_hosts
        return self

    @model_validator(mode="after")
    def _of_logins(self) -> Self:
        for login in ("zookeeper_sasl", "bookie_sasl"):
            passwords = (f"{login}_password", f"{login}_password_file")
            if sum(is_given(getattr(self, name)) for name in passwords) != bool(getattr(self, f"{login}_username")):
                raise ValueError(f"{login}_username and its password go together; set {' or '.join(passwords)}")
        return self

    @model_validator(mode="after")
    def _of_stores_and_bookies(self) -> Self:
        if is_given(self.oxia_token) and self.oxia_token_file:
            raise ValueError("oxia_token and oxia_token_file are both set; give one")
        for kind in ("zookeeper", "oxia", "bookie"):
            certificate = getattr(self, f"{kind}_tls_certificate")
            if getattr(self, f"{kind}_tls_key") and not certificate:
                raise ValueError(f"{kind}_tls_key needs {kind}_tls_certificate")
            if certificate and not getattr(self, f"{kind}_tls_ca"):
                raise ValueError(f"{kind}_tls_certificate needs {kind}_tls_ca, which turns TLS on")
        return self

    @property
    def has_secret(self) -> bool:
        """Whether a secret is set that is sent to servers."""
        return any(is_given(getattr(self, name)) for name in SECRETS)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that are given as values, and not as files."""
        fields = [getattr(self, name) for name in type(self).model_fields if name != "zookeeper_auth"]
        values = [value.get_secret_value() for value in fields if isinstance(value, SecretStr)]
        for entry in self.zookeeper_auth:
            values += zookeeper_secrets(entry.get_secret_value().partition(":")[2])
        return tuple(values)

    @property
    def listed_hosts(self) -> tuple[str, ...]:
        """Entries of `hosts`, as `pulsar_wire.hosts` compares them."""
        return listed_hosts(entry for entry in self.hosts.split(",") if entry.strip())


class NamedCredentials(Credentials):
    """A set with a name; what it leaves out is not taken from the common ones."""

    model_config = ConfigDict(extra="forbid")


def is_given(value: str | SecretStr | tuple[SecretStr, ...]) -> bool:
    """Return whether a setting is set."""
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)


def zookeeper_secrets(credential: str) -> tuple[str, str]:
    """Return a credential for `addauth`, such as `user:password`, and its password."""
    return credential, credential.partition(":")[2]


def zookeeper_pairs(entries: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
    """Return scheme and credential of each `scheme:credential`, as ZooKeeper's `addauth` takes them.

    Raises:
        ValueError: one of them has no scheme.
    """
    pairs = [entry.strip().partition(":") for entry in entries if entry.strip()]
    if not all(colon for _, colon, _ in pairs):
        raise ValueError("zookeeper_auth: an entry has no scheme; write scheme:credential")
    return tuple((scheme, credential.encode()) for scheme, _, credential in pairs)
