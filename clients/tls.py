"""TLS settings for connections to brokers, bookies, ZooKeeper and Oxia."""

from __future__ import annotations

import functools
import ssl
from typing import NamedTuple

from models.credentials import Credentials
from models.file_stamp import stamp_of


class Tls(NamedTuple):
    """TLS settings; plain data, so that it can be sent to an executor.

    Attributes:
        ca_file: PEM file of the authorities that sign the servers' certificates; None for the system's own.
        cert_file: PEM file of our own certificate, for servers that ask for one.
        key_file: PEM file of its key; None if `cert_file` has it.
        verify_hostname: whether a server's certificate must name the host that it is reached by.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_hostname: bool = True

    @property
    def configured(self) -> bool:
        """Whether a file is set: then links must have TLS."""
        return self.ca_file is not None or self.cert_file is not None

    def context(self) -> ssl.SSLContext:
        """Return a context of the `ssl` module; files are read now, so that renewed ones are used.

        Raises:
            OSError: a file cannot be read, or has another format; `ssl.SSLError` is one too.
        """
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.verify_hostname
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def shared_context(self) -> ssl.SSLContext:
        """Return a context that many connections of one protocol share; files are read again when they have changed.

        Reading the system's authorities takes longer than most requests.

        Raises:
            OSError: see `context`.
        """
        return _shared(self, tuple(stamp_of(file) for file in (self.ca_file, self.cert_file, self.key_file) if file))


@functools.lru_cache(maxsize=32)
def _shared(tls: Tls, stamps: tuple[tuple[int, ...], ...]) -> ssl.SSLContext:
    del stamps
    return tls.context()


def brokers_tls(credentials: Credentials) -> Tls:
    """Return the TLS settings for brokers, used when their address requires TLS."""
    return Tls(
        ca_file=credentials.admin_tls_ca or None,
        cert_file=credentials.admin_tls_certificate or None,
        key_file=credentials.admin_tls_key or None,
        verify_hostname=credentials.admin_tls_verify_hostname,
    )


def zookeeper_tls(credentials: Credentials) -> Tls | None:
    """Return the TLS settings for ZooKeeper; None if TLS is not configured, as a server's address does not tell."""
    return _if_configured(credentials, "zookeeper")


def oxia_tls(credentials: Credentials) -> Tls | None:
    """Return the TLS settings for Oxia; None as for ZooKeeper."""
    return _if_configured(credentials, "oxia")


def bookies_tls(credentials: Credentials) -> Tls | None:
    """Return the TLS settings for bookies; None as for ZooKeeper."""
    return _if_configured(credentials, "bookie")


def _if_configured(credentials: Credentials, kind: str) -> Tls | None:
    """Return the TLS settings of servers whose addresses do not tell whether they have TLS."""
    ca_file: str = getattr(credentials, f"{kind}_tls_ca")
    if not ca_file:
        return None
    return Tls(
        ca_file=ca_file,
        cert_file=getattr(credentials, f"{kind}_tls_certificate") or None,
        key_file=getattr(credentials, f"{kind}_tls_key") or None,
        # For Oxia there is no such setting: gRPC always compares the names.
        verify_hostname=getattr(credentials, f"{kind}_tls_verify_hostname", True),
    )


def certificate_trouble(error: BaseException | None) -> str | None:
    """Return what was wrong with a certificate, the server's or ours; None if an error has another cause."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or str(error)
        # The server's alerts about our own certificate, or about the lack of one.
        reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return reason
        error = error.__cause__ or error.__context__
    return None
