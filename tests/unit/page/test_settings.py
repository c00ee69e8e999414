"""The page's settings: what other machines could see by mistake is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from page.settings import PREFIX, PageSettings
from process.exit_codes import CommandFailed
from process.settings import settings_of


def test_local_by_default() -> None:
    """Without settings only this machine can connect."""
    settings = settings_of(PageSettings, PREFIX)
    assert (settings.host, settings.port) == ("127.0.0.1", 8091)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"HOST": "0.0.0.0"}, "set tokens_file"),
        ({"HOST": "::", "TLS_CERTIFICATE": "c", "TLS_KEY": "k"}, "set tokens_file"),
        ({"HOST": "0.0.0.0", "TOKENS_FILE": "t"}, "in plain text"),
        ({"TLS_KEY": "k"}, "belong together"),
        ({"TLS_CLIENT_CA": "ca"}, "needs TLS"),
    ],
)
def test_unsafe(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], why: str) -> None:
    """Other machines need tokens or client certificates, and tokens need TLS."""
    for name, value in values.items():
        monkeypatch.setenv(f"{PREFIX}{name}", value)
    with pytest.raises(ValidationError, match=why):
        PageSettings()


@pytest.mark.parametrize(
    "values",
    [
        {"HOST": "0.0.0.0", "ALLOW_ANONYMOUS": "true"},
        {"HOST": "0.0.0.0", "TOKENS_FILE": "t", "ALLOW_PLAIN": "true"},
        {"HOST": "0.0.0.0", "TLS_CERTIFICATE": "c", "TLS_KEY": "k", "TLS_CLIENT_CA": "ca"},
    ],
)
def test_explicit(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    """An operator whose proxy authenticates, or ends TLS, can say so."""
    for name, value in values.items():
        monkeypatch.setenv(f"{PREFIX}{name}", value)
    assert PageSettings().host == "0.0.0.0"


def test_options_replace_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option of the command wins over a variable, and a misspelled variable is refused."""
    monkeypatch.setenv(f"{PREFIX}PORT", "1")
    assert settings_of(PageSettings, PREFIX, {"port": 2}).port == 2
    monkeypatch.setenv(f"{PREFIX}TOKEN_FILE", "t")
    with pytest.raises(CommandFailed, match="TOKENS_FILE"):
        settings_of(PageSettings, PREFIX)
