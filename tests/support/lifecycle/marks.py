"""Planted secrets: a mark in each setting that holds one, and the search for marks in all that leaves a process."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, cast
from urllib.parse import quote

from pydantic import SecretStr

from models import redaction
from models.credentials import SECRETS
from models.settings import Settings

MARK = "planted-5f3a9c"
"""Each secret of `settings` begins with it."""

HOOK_SECRET = f"whsec_{base64.b64encode(f'{MARK}/signs-requests'.encode()).decode()}"
"""The secret of a hook, which has the mark in base64."""

NAMED = "green"
"""Name of the second set of credentials."""


def secret(name: str) -> str:
    """Return the secret of a setting: with characters that URLs and JSON escape, and longer than most."""
    return f'{MARK}/{name}+"{name[::-1]}"'


def settings(**others: Any) -> Settings:
    """Return settings of a worker in which each secret has a mark; `others` are added."""
    return Settings.model_validate(
        {
            **credentials(""),
            "credentials": {NAMED: credentials(f"{NAMED}-")},
            "spark_conf": {"spark.authenticate.secret": secret("spark")},
            "broker_webhook": f"https://hooks.example/{MARK}/hook?token={quote(secret('query'), safe='')}",
            "broker_webhook_token": SecretStr(secret("webhook")),
            "hooks": {
                "pager": {
                    "url": f"https://hooks.example/{MARK}/pager?key={quote(secret('pager'), safe='')}",
                    "secret": HOOK_SECRET,
                }
            },
            **others,
        }
    )


def credentials(prefix: str) -> dict[str, Any]:
    """Return a set of credentials that has all secrets which are given as values."""
    values: dict[str, Any] = {
        name: SecretStr(secret(f"{prefix}{name}")) for name in SECRETS if not name.endswith("_file")
    }
    digest = SecretStr(f"digest:admin:{secret(f'{prefix}zookeeper_auth')}")
    logins = {"zookeeper_sasl_username": "admin", "bookie_sasl_username": "admin"}
    return {**values, **logins, "zookeeper_auth": (digest,), "hosts": "127.0.0.1"}


def all_secrets() -> tuple[str, ...]:
    """Return the secrets of `settings`."""
    names = [f"{prefix}{name}" for prefix in ("", f"{NAMED}-") for name in SECRETS if not name.endswith("_file")]
    return (*map(secret, [*names, "spark", "query", "webhook", "pager"]), HOOK_SECRET)


@contextmanager
def planted(*more: str) -> Generator[None]:
    """Remember in this process the secrets of `settings`, and more, while the block runs."""
    previous, redaction.REDACTOR = redaction.REDACTOR, redaction.Redactor()
    try:
        redaction.remember(*settings().secrets, *more, permanent=True)
        yield
    finally:
        redaction.REDACTOR = previous


def forms(text: str) -> list[str]:
    """Return a text as programs may repeat it: as it is, escaped, and encoded."""
    data = text.encode()
    encoded = [base64.b64encode(data).decode(), base64.b64encode(f"user:{text}".encode()).decode()]
    escaped = [repr(text), repr(data), json.dumps(text), quote(text, safe="")]
    return [text, *escaped, data.hex(), data.hex().upper(), *encoded]


def marked(texts: Iterable[str], marks: Iterable[str] = (MARK,)) -> list[str]:
    """Return the parts of texts that have a mark, in whatever form."""
    needles = {needle for mark in marks for needle in _needles(mark)}
    hits = ((text, text.find(needle)) for text in texts for needle in needles if needle in text)
    return [text[max(0, at - 80) : at + 120] for text, at in hits]


def decoded(value: Any) -> Generator[str]:
    """Return all texts of a value of JSON, such as a history; those that are Base64 also decoded."""
    if isinstance(value, dict):
        for name, nested in cast("dict[str, Any]", value).items():
            yield name
            yield from decoded(nested)
    elif isinstance(value, list):
        for nested in cast("list[Any]", value):
            yield from decoded(nested)
    elif isinstance(value, str):
        yield value
        with suppress(ValueError):
            yield base64.b64decode(value, validate=True).decode(errors="replace")


def _needles(mark: str) -> set[str]:
    data = mark.encode()
    # Three bytes become four characters: those in the middle are the same whatever comes before and after.
    in_base64 = {base64.b64encode(bytes(before) + data).decode()[4:-4] for before in range(3)}
    return {mark, data.hex(), data.hex().upper(), *in_base64}
