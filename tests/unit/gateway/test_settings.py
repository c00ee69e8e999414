"""The gateway's settings: what is missing, wrong or unsafe is refused with its name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway.settings import PREFIX, GatewaySettings
from process.exit_codes import CommandFailed, ExitCode
from process.settings import settings_of

NEEDED = {"CLUSTER": "prod", "METADATA_URL": "zk:zk-1:2181", "ADMIN_URLS": '["http://broker-1:8080"]'}


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> GatewaySettings:
    """Return the settings as a gateway reads them from its environment."""
    for name, value in {**NEEDED, **values}.items():
        monkeypatch.setenv(f"{PREFIX}{name}", value)
    return GatewaySettings()  # pyright: ignore[reportCallIssue] - from the environment


def test_defaults_of_new_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's addresses are read, and the queue is that of the workers."""
    monkeypatch.setenv("PULSAR_MIGRATE_TASK_QUEUE", "mine")
    given = settings(monkeypatch, PUBLIC_URL="https://gateway:8443/")
    assert (given.cluster, given.metadata_url, given.admin_urls) == ("prod", "zk:zk-1:2181", ("http://broker-1:8080",))
    assert (given.task_queue, given.controller_urls) == ("mine", ("https://gateway:8443",))
    assert (given.host, given.port) == ("127.0.0.1", 8090)


@pytest.mark.parametrize("name", NEEDED)
def test_missing_settings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A missing setting is named in one line."""
    for other, value in NEEDED.items():
        if other != name:
            monkeypatch.setenv(f"{PREFIX}{other}", value)
    with pytest.raises(CommandFailed) as failed:
        settings_of(GatewaySettings, PREFIX)
    assert failed.value.code is ExitCode.USAGE
    assert str(failed.value) == f"error: {PREFIX}{name}: Field required. cure: correct {PREFIX}{name}"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"TLS_CERTIFICATE": "cert.pem"}, "belong together"),
        ({"HOST": "0.0.0.0"}, "set tokens_file"),
        ({"HOST": "gateway.example"}, "set tokens_file"),
        ({"HOST": "::", "TOKENS_FILE": "tokens"}, "in plain text"),
        ({"HOST": "0.0.0.0", "TLS_CERTIFICATE": "cert.pem", "TLS_KEY": "key.pem"}, "set tokens_file"),
        ({"TLS_CLIENT_CA": "ca.pem"}, "needs TLS"),
        ({"JWT_PUBLIC_KEY_FILE": "a", "JWT_SECRET_KEY_FILE": "b", "JWT_ROLES_FILE": "c"}, "with one key"),
        ({"JWT_PUBLIC_KEY_FILE": "a"}, "set both, or neither"),
        ({"JWT_ROLES_FILE": "a"}, "set both, or neither"),
        ({"HOSTS": "https://gateway"}, "is not a host"),
    ],
)
def test_unsafe_settings(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], why: str) -> None:
    """A gateway serves other machines with tokens and TLS only, unless TLS ends before the gateway."""
    with pytest.raises(ValidationError, match=why):
        settings(monkeypatch, **values)


@pytest.mark.parametrize(
    "values",
    [
        {"HOST": "::1"},
        {"HOST": "localhost"},
        {"HOST": "127.9.9.9"},
        {"HOST": "0.0.0.0", "TOKENS_FILE": "tokens", "ALLOW_PLAIN": "true"},
        {"HOST": "0.0.0.0", "JWT_PUBLIC_KEY_FILE": "a", "JWT_ROLES_FILE": "b", "ALLOW_PLAIN": "true"},
        {"HOST": "0.0.0.0", "TOKENS_FILE": "tokens", "TLS_CERTIFICATE": "cert.pem", "TLS_KEY": "key.pem"},
    ],
)
def test_safe_settings(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    """The local machine alone needs neither, and a proxy that ends TLS must be configured."""
    assert settings(monkeypatch, **values).host == values["HOST"]


def test_own_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway has the names that are set, its address, the host of its public URL, and the local machine's."""
    given = settings(
        monkeypatch,
        HOSTS="Gateway.example, .svc.cluster.local",
        HOST="::1",
        PUBLIC_URL="https://public.example:8443/x",
    )
    assert given.own_hosts == (
        "gateway.example",
        ".svc.cluster.local",
        "localhost",
        "127.0.0.0/8",
        "::1",
        "::1",
        "public.example",
    )
    assert settings(monkeypatch, HOSTS="").hosts == ()
