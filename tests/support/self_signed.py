"""Self-signed certificates of 127.0.0.1, made in the test's process."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


class CertificateFiles(NamedTuple):
    """PEM files of a certificate, which is its own authority, and of its key."""

    certificate: Path
    key: Path


def self_signed(folder: Path, name: str) -> CertificateFiles:
    """Write a certificate that is valid for an hour.

    Args:
        folder: for the files.
        name: the common name, and that of the files.
    """
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    files = CertificateFiles(folder / f"{name}.crt", folder / f"{name}.key")
    files.certificate.write_bytes(made.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files
