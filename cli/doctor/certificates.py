"""Checks of TLS files: whether they can be read and used, and when their certificates expire."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cli.doctor.findings import Finding, warning
from models.lifecycle.units import format_value
from process.exit_codes import CommandFailed, ExitCode

SOON = timedelta(days=30)
"""A certificate that expires sooner gets a warning: windows last for weeks."""

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _EXPLICIT_VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


class Validity(NamedTuple):
    """Period in which a certificate is valid."""

    start: datetime
    end: datetime


def validity(der: bytes) -> Validity:
    """Return the period of validity of a certificate (X.509, DER).

    Raises:
        ValueError: the data is not a certificate.
    """
    try:
        _, certificate, _ = _element(der)
        _, body, _ = _element(certificate)
        tag, _, rest = _element(body)
        # serialNumber, signature, issuer and validity follow the version, which old certificates leave out.
        parts = rest if tag == _EXPLICIT_VERSION else body
        for _ in range(3):
            _, _, parts = _element(parts)
        _, both, _ = _element(parts)
        start_tag, start, rest = _element(both)
        end_tag, end, _ = _element(rest)
        return Validity(_time(start_tag, start), _time(end_tag, end))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("it has no readable certificate") from error


def check_authorities(subject: str, file: str) -> str | Finding:
    """Check a file with certificates of authorities.

    Raises:
        CommandFailed: the file cannot be used, or all certificates in it have expired.
    """
    certificates = _certificates(file)
    # One valid certificate is enough: such files often keep old ones.
    latest = max(certificates, key=lambda certificate: certificate.end)
    return _judge(subject, file, latest, f"{len(certificates)} certificates")


def check_identity(subject: str, file: str, key: str) -> str | Finding:
    """Check a file with our own certificate, and the one with its key; `key` is empty if the first has both.

    Raises:
        CommandFailed: the files cannot be used or do not belong together, or the certificate has expired.
    """
    certificates = _certificates(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a password of ours OpenSSL would prompt for one in the terminal.
        context.load_cert_chain(file, key or None, password=lambda: "")
    except OSError as error:
        cause = f"{file} and {key or 'the key in it'} cannot be used: {_reason(error)}"
        cure = "name a certificate and its own key, both PEM, the key without a password"
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error
    return _judge(subject, file, certificates[0], "certificate and key belong together")


def _certificates(file: str) -> list[Validity]:
    cure = "name a PEM file that the worker can read"
    try:
        blocks = _PEM.findall(Path(file).read_text("utf-8"))
        certificates = [validity(ssl.PEM_cert_to_DER_cert(block)) for block in blocks]
    except (OSError, ValueError) as error:
        raise CommandFailed(ExitCode.USAGE, f"{file} cannot be read: {_reason(error)}", cure) from error
    if not certificates:
        raise CommandFailed(ExitCode.USAGE, f"{file} has no certificate", cure)
    return certificates


def _judge(subject: str, file: str, when: Validity, what: str) -> str | Finding:
    now = datetime.now(UTC)
    if now >= when.end:
        cause = f"{file} expired {format_value(when.end)}"
        raise CommandFailed(ExitCode.USAGE, cause, "put a new certificate there")
    if now < when.start:
        cause = f"{file} is not valid before {format_value(when.start)}"
        raise CommandFailed(ExitCode.USAGE, cause, "wait, or check this machine's clock")
    valid = f"{file}: {what}, valid until {format_value(when.end)}"
    if when.end - now < SOON:
        return warning(subject, f"{valid}, in {format_value(when.end - now)}", "renew it before a migration starts")
    return valid


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Return tag and content of the first DER element, and the data after it."""
    tag, length, at = data[0], data[1], 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[2 : 2 + size], "big"), 2 + size
    if len(data) < at + length:
        raise IndexError("cut off")
    return tag, data[at : at + length], data[at + length :]


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # A year of two digits means 1950 to 2049 in RFC 5280, unlike in Python.
        text = f"{'19' if int(text[:2]) >= 50 else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
