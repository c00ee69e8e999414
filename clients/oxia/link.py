"""The one place where a channel to an Oxia server is opened, plain or with TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from clients.errors import DestinationRefused, NoCredentials, StoreDenied, StoreError, StoreUnreachable
from clients.oxia.access import OxiaAccess
from clients.reach import open_link, split_host
from clients.tls import Tls
from clients.tls_probe import speaks_tls

_PROBE_LIMIT = 2.0
# gRPC's servers refuse a handshake without it.
_PROTOCOL = "h2"


def open_channel(address: str, access: OxiaAccess, options: tuple[tuple[str, int], ...]) -> grpc.Channel:
    """Create a channel, which connects with its first call.

    Args:
        address: `host:port` of a server, from the settings or from an answer.
        access: TLS settings, and the token that calls on this channel carry.
        options: of gRPC.

    Raises:
        DestinationRefused: nothing may be sent to this host, or not without TLS.
        NoCredentials: our own files for TLS cannot be used.
    """
    tls = access.tls
    host = split_host(address)[0]
    reason = access.destinations.objection(
        host, encrypted=tls is not None, secret=access.has_token, tls=tls is not None
    )
    if reason:
        raise DestinationRefused(f"nothing was sent to Oxia at {address}: {reason}", server=address)
    if tls is None:
        return grpc.insecure_channel(address, options)
    # gRPC would not tell what is wrong with a file. It always compares the host's name with the certificate.
    _context(tls)
    credentials = grpc.ssl_channel_credentials(_content(tls.ca_file), _content(tls.key_file), _content(tls.cert_file))
    return grpc.secure_channel(address, credentials, options)


def why_refused(address: str, access: OxiaAccess, timeout: float) -> StoreError | None:
    """Return why a connection cannot be used, with the cure; None if that is not known.

    Args:
        address: `host:port` of the server.
        access: how it was tried.
        timeout: seconds that the server may take to answer a handshake; none of our tokens is in it.
    """
    timeout = min(timeout, _PROBE_LIMIT)
    if access.tls is None:
        if not speaks_tls(address, timeout):
            return None
        return StoreUnreachable(
            f"Oxia at {address} takes connections with TLS only; set oxia_tls_ca, or give its port for plain ones",
            server=address,
        )
    try:
        _shake_hands(address, access.tls, timeout)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(address, error)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if "ALERT" in reason:
            return _refuses_ours(address, access.tls, reason)
        if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
            return StoreUnreachable(
                f"Oxia at {address} does not speak TLS on this port; give its port with TLS, or unset oxia_tls_ca",
                server=address,
            )
    except (OSError, NoCredentials):
        return None
    return None


def _untrusted(address: str, error: ssl.SSLCertVerificationError) -> StoreError:
    text = f"the certificate of Oxia at {address} is refused ({error.verify_message})"
    return StoreDenied(f"{text}; check the server, or oxia_tls_ca", server=address)


def _refuses_ours(address: str, tls: Tls, reason: str) -> StoreError:
    alert = reason.lower().replace("_", " ")
    cure = f"check {tls.cert_file}, and the server's authorities" if tls.cert_file else "set oxia_tls_certificate"
    return StoreDenied(f"Oxia at {address} refuses our certificate ({alert}); {cure}", server=address)


def _shake_hands(address: str, tls: Tls, timeout: float) -> None:
    """Connect as gRPC does, until the server's first bytes have come.

    Raises:
        OSError: there is no connection, or the handshake fails (`ssl.SSLError`).
        NoCredentials: our own files for TLS cannot be used.
    """
    host, port = split_host(address)
    context = _context(tls)
    context.set_alpn_protocols([_PROTOCOL])
    with (
        open_link(host, port, timeout) as plain,
        context.wrap_socket(plain, server_hostname=host) as link,
    ):
        # A server tells only after the handshake that it refuses our certificate; else it sends its settings first.
        link.recv(1)


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        return tls.context()
    except OSError as error:
        files = ", ".join(filter(None, tls[:3]))
        raise NoCredentials(f"the files of oxia_tls_… cannot be used ({files}): {error}") from error


def _content(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file else None
