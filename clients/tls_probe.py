"""Checks whether a port speaks TLS, for errors that name the cause; nothing secret is sent."""

from __future__ import annotations

import ssl

from clients.reach import open_link, split_host

#: First byte of a TLS record that a server may begin with (alert, handshake), and the major version after it.
TLS_STARTS = (b"\x15\x03", b"\x16\x03")


def speaks_tls(address: str, timeout: float) -> bool:
    """Return whether a server answers the first message of a handshake.

    Args:
        address: `host:port`.
        timeout: seconds that connecting and the answer may take each.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing but this first message is sent, so nothing needs to be trusted.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    except ssl.SSLWantReadError:
        return first_bytes(address, sent.read(), timeout) in TLS_STARTS
    return False


def first_bytes(address: str, question: bytes, timeout: float) -> bytes:
    """Return the first two bytes of a server's answer; empty if it does not answer."""
    try:
        with open_link(*split_host(address), timeout) as link:
            link.sendall(question)
            return link.recv(2)
    except OSError:
        return b""
