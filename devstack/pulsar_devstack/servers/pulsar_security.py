"""Brokers and bookies with TLS, tokens and authorization: their lines and files."""

from __future__ import annotations

import re
from pathlib import Path

from pulsar_devstack.servers.configs import LOOPBACK
from pulsar_devstack.servers.spec import PulsarSecurity, Settings
from pulsar_devstack.servers.tokens import TokenSigner

# In the folder of each server, so that containers have them too.
_AUTHORITIES = "tls/authorities.pem"
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n", re.DOTALL)


def broker_lines(security: PulsarSecurity | None, plain: Settings) -> Settings:
    """Return the lines of `broker.conf` for a broker whose lines without security are `plain`."""
    if security is None:
        return plain
    superusers = ",".join((security.broker_role, *security.superusers))
    key, certificates = _names("server")
    client_key, client_certificates = _names("client")
    return {
        **plain,
        "brokerServicePort": "",
        "webServicePort": "",
        "brokerServicePortTls": plain["brokerServicePort"],
        "webServicePortTls": plain["webServicePort"],
        **listeners(f"{LOOPBACK}:{plain['brokerServicePort']}"),
        "tlsKeyFilePath": key,
        "tlsCertificateFilePath": certificates,
        "tlsTrustCertsFilePath": _AUTHORITIES,
        "tlsHostnameVerificationEnabled": "true",
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": _AUTHORITIES,
        **signer(security).broker_lines(superusers, security.broker_role),
        "bookkeeperTLSProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "bookkeeperTLSClientAuthentication": "true",
        "bookkeeperTLSKeyFileType": "PEM",
        "bookkeeperTLSKeyFilePath": client_key,
        "bookkeeperTLSCertificateFilePath": client_certificates,
        "bookkeeperTLSTrustCertTypes": "PEM",
        "bookkeeperTLSTrustCertsFilePath": _AUTHORITIES,
        "bookkeeper_tlsProvider": "JDK",
        "bookkeeper_hostnameVerificationEnabled": "true",
    }


def listeners(address: str) -> Settings:
    """Return the lines of `broker.conf` that name a port with TLS as a plain address, too.

    Without a plain address a broker fails to answer lookups of scalable topics (5.0.1), and clients of streams connect
    to it, with TLS as they do everywhere.
    """
    schemes = ("pulsar", "pulsar+ssl")
    return {
        "advertisedListeners": ",".join(f"own:{scheme}://{address}" for scheme in schemes),
        "internalListenerName": "own",
    }


def bookie_lines(security: PulsarSecurity | None, plain: Settings) -> Settings:
    """Return the lines of `bookkeeper.conf` for a bookie whose lines without security are `plain`."""
    if security is None:
        return plain
    key, certificates = _names("server")
    return {
        **plain,
        "httpServerEnabled": "false",
        "tlsProvider": "JDK",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": key,
        "tlsCertificatePath": certificates,
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": _AUTHORITIES,
        "tlsClientAuthentication": "true",
        # Without it a bookie serves clients that never ask for TLS.
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
        "authorizedRoles": security.bookie_role,
    }


def files(security: PulsarSecurity | None) -> dict[str, str]:
    """Return the files of a broker or a bookie, path to text."""
    if security is None:
        return {}
    pairs = [(name, _halves(pem)) for name, pem in (("server", security.server), ("client", security.client))]
    parts = {path: text for name, halves in pairs for path, text in zip(_names(name), halves, strict=True)}
    return {_AUTHORITIES: security.authorities.read_text(), **parts}


def signer(security: PulsarSecurity) -> TokenSigner:
    """Return what signs tokens that the brokers accept."""
    return TokenSigner(security.token_key.read_bytes())


def _names(name: str) -> tuple[str, str]:
    return f"tls/{name}.key", f"tls/{name}.crt"


def _halves(pem: Path) -> tuple[str, str]:
    """Return the key and the certificates of a file: Pulsar and BookKeeper take each from a file of its own."""
    blocks = [(match[1].endswith("KEY"), match[0]) for match in _BLOCK.finditer(pem.read_text())]
    return "".join(text for is_key, text in blocks if is_key), "".join(text for is_key, text in blocks if not is_key)
