"""Contexts of pulsarctl, the command line that many operators have already."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from cli.documents import DocumentFault, read_file
from models.base import Result
from models.text import shown

CONFIG = Path("~/.config/pulsar/config")
"""Default file of pulsarctl."""


class Context(Result):
    """One context; its token is never written or shown.

    Attributes:
        name: of the context.
        admin_url: address of the admin interface.
        token: text of a token; empty for none.
        token_file: file with a token; empty for none.
        ca_file: file with certificate authorities; empty for the system's.
        oauth2_key_file: key file of OAuth2; empty for none.
    """

    name: str
    admin_url: str
    token: SecretStr = SecretStr("")
    token_file: str = ""
    ca_file: str = ""
    oauth2_key_file: str = ""


def read_context(file: Path, name: str) -> Context:
    """Return a context of pulsarctl.

    Args:
        file: with the contexts.
        name: of the context; empty for the current one.

    Raises:
        DocumentFault: the file cannot be read, or does not have the context.
    """
    path = file.expanduser()
    values = read_file(str(path)).values
    contexts, users = _named(values, "contexts"), _named(values, "auth-info")
    chosen = name or str(values.get("current-context") or "")
    if chosen not in contexts:
        cause = f"there is no context {shown(chosen)!r}" if chosen else "no context is the current one"
        raise DocumentFault(str(path), 0, cause, f"name one with --context: {', '.join(contexts) or 'there is none'}")
    context = _named(contexts, chosen)
    user = _named(users, str(context.get("user") or chosen))
    texts = {key: str(value) for key, value in {**context, **user}.items() if value}
    return Context(
        name=chosen,
        admin_url=texts.get("admin-service-url", ""),
        token=SecretStr(texts.get("token", "")),
        token_file=texts.get("tokenFile", ""),
        ca_file=texts.get("tls_trust_certs_file_path", ""),
        oauth2_key_file=texts.get("key_file", ""),
    )


def _named(values: dict[str, Any], name: str) -> dict[str, Any]:
    value = values.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
