"""The certificate of a gateway, used anew once it was renewed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path
from typing import NoReturn

from clients.tls import stamp_of

LOOK_AGAIN = 10.0
"""Seconds between two looks at the files."""

_log = logging.getLogger(__name__)


async def follow(context: ssl.SSLContext, certificate: Path, key: Path, every: float = LOOK_AGAIN) -> NoReturn:
    """Use a certificate that was renewed for connections that come later; ends only by cancellation.

    Files that do not belong together, as when only one of them is renewed yet, are reported, and those of before are
    used until they do.

    Args:
        context: of the server; it has what the files hold now.
        certificate: file with the certificate and its chain (PEM).
        key: file with its key (PEM).
        every: seconds between two looks.
    """
    known = _stamps(certificate, key)
    while True:
        await asyncio.sleep(every)
        found = _stamps(certificate, key)
        if found == known:
            continue
        try:
            # A context that refuses a pair has lost its key by then.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            _log.warning("the certificate has changed and cannot be used (%s); the one of before is", error)
        else:
            known = found
            _log.info("the certificate was renewed")


def _stamps(*files: Path) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for file in files:
        with contextlib.suppress(OSError):
            found.append(stamp_of(file))
    return found
