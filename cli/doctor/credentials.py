"""Checks of the credentials in a worker's settings: whether they can be had, and how long they last."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import httpx

from cli.doctor.certificates import SOON
from cli.doctor.findings import Check, Finding, warning
from clients.errors import StoreError, StoreUnreachable
from clients.pulsar.admin.access import AdminAccess, token_auth
from models.credentials import Credentials
from models.lifecycle.units import Unit, format_value
from models.settings import Settings
from process.exit_codes import CommandFailed, ExitCode

_BEARER = "Bearer "


def credential_checks(settings: Settings) -> Iterator[Check]:
    """A check for each kind of credential that is given."""
    for name in ("", *settings.credentials):
        yield from _checks_of(settings, name)
    webhook = token_auth(settings.broker_webhook_token, settings.broker_webhook_token_file)
    if webhook is not None:
        yield Check("credentials for the webhook", partial(_http, "credentials for the webhook", webhook))


def _checks_of(settings: Settings, name: str) -> Iterator[Check]:
    credentials, suffix = settings.credentials_of(name), f" ({name})" if name else ""
    if credentials.zookeeper_auth or credentials.zookeeper_auth_file:
        yield Check(f"credentials for ZooKeeper{suffix}", partial(_zookeeper, credentials))
    brokers = AdminAccess.from_settings(settings, name).auth
    if brokers is not None:
        subject = f"credentials for brokers{suffix}"
        yield Check(subject, partial(_http, subject, brokers))


def _zookeeper(of: Credentials) -> str:
    try:
        credentials = of.zookeeper_credentials
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "correct the setting") from error
    many = Unit(noun="credentials").format(len(credentials))
    return f"{many} of the schemes {', '.join(sorted({scheme for scheme, _ in credentials}))}"


def _http(subject: str, auth: httpx.Auth) -> str | Finding:
    """Have a request signed that is never sent; with OAuth2 this gets a token."""
    request = httpx.Request("GET", "http://localhost")
    try:
        signed = next(auth.sync_auth_flow(request))
    except StoreError as error:
        code = ExitCode.UNREACHABLE if isinstance(error, StoreUnreachable) else ExitCode.USAGE
        raise CommandFailed(code, str(error), "check the files and addresses that the settings name") from error
    return token_life(subject, signed.headers.get("Authorization", "").removeprefix(_BEARER))


def token_life(subject: str, token: str) -> str | Finding:
    """What a token says of its own life, if it is a JSON web token.

    Raises:
        CommandFailed: it has expired.
    """
    end = _expiry(token)
    now = datetime.now(UTC)
    if end is None:
        return "a token that names no end"
    if end <= now:
        raise CommandFailed(ExitCode.USAGE, f"the token expired {format_value(end)}", "put a new token there")
    if end - now < SOON:
        cure = "a migration may take longer: give it as a file that is renewed, or use OAuth2"
        return warning(subject, f"the token is valid until {format_value(end)}", cure)
    return f"a token that is valid until {format_value(end)}"


def _expiry(token: str) -> datetime | None:
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (IndexError, KeyError, TypeError, ValueError):
        return None
