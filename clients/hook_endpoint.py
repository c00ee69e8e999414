"""Requests to the HTTP endpoint of a hook: signed, with its own TLS, a time limit for the whole, and no redirects."""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import httpx

from clients.errors import NoCredentials
from clients.signature import SecretKeys, Signed
from clients.tls import Tls, certificate_trouble
from models.hooks import Hook
from models.text import shown

CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"

# An answer that is packed would be unpacked without a limit.
_HEADERS = {"content-type": CONTENT_TYPE, "accept-encoding": "identity"}

_MOST_BYTES = 4_096
_LOG = logging.getLogger(__name__)


class HookFailed(Exception):
    """A hook did not answer; the message has neither its address nor what a server sent."""


class HookAnswer(NamedTuple):
    """Answer of an endpoint.

    Attributes:
        status: code of HTTP.
        reason: text of the answer, in one line.
        retry_after: seconds of the header `Retry-After`; None without it.
    """

    status: int
    reason: str
    retry_after: float | None

    @property
    def accepted(self) -> bool:
        """Whether it is an answer of success."""
        return 200 <= self.status < 300


async def post_event(name: str, hook: Hook, message_id: str, body: bytes) -> HookAnswer:
    """Send an event to an endpoint.

    Args:
        name: of the hook.
        hook: with a URL.
        message_id: of the event.
        body: a CloudEvent as JSON.

    Raises:
        HookFailed: there was no answer.
    """
    setting = f"PULSAR_MIGRATE_HOOKS__{name.upper()}__SECRET_FILE"
    keys = SecretKeys(hook.secret, hook.secret_file, setting)
    seconds = hook.timeout.total_seconds()
    tls = Tls(hook.tls_ca or None, hook.tls_certificate or None, hook.tls_key or None)
    try:
        context = await asyncio.to_thread(tls.shared_context)
    except OSError as error:
        _LOG.warning("hook %s: the files of its TLS settings cannot be used: %s", name, error)
        raise HookFailed("the files of its TLS settings cannot be used; the worker's log says why") from None
    auth = Signed(keys, message_id)
    try:
        # The timeout of the library is for each part of an answer alone.
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(verify=context, trust_env=False, timeout=seconds, auth=auth) as client,
            client.stream("POST", hook.url, content=body, headers=_HEADERS) as response,
        ):
            text = await _start_of(response)
    except TimeoutError:
        raise HookFailed(f"did not answer within {seconds:g} s") from None
    except NoCredentials as error:
        raise HookFailed(str(error)) from None
    # The library lets some errors of TLS through as they are, such as a certificate of ours that is required.
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
        _LOG.warning("hook %s: %s: %s", name, type(error).__name__, error)
        raise HookFailed(_why(error)) from None
    return HookAnswer(response.status_code, _reason(text), _retry_after(response.headers))


async def _start_of(response: httpx.Response) -> str:
    """Return the start of the text of an answer; empty if it is packed all the same."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        return ""
    content = b""
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) >= _MOST_BYTES:
            break
    return content[:_MOST_BYTES].decode(errors="replace")


def _why(error: Exception) -> str:
    if (trouble := certificate_trouble(error)) is not None:
        return f"the certificate was not accepted ({trouble}); check tls_ca and tls_certificate"
    return "cannot be reached; the worker's log says why"


def _reason(text: str) -> str:
    """Return the field `reason` of a JSON object, else the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return shown(text)
    reason = cast("dict[str, Any]", value).get("reason") if isinstance(value, dict) else None
    return shown(reason if isinstance(reason, str) else text)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "").strip()
    if value.isdecimal() and len(value) < 10:
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
