"""The worker's settings: secrets stay hidden, files stand for them, and contradictions are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from cli.options import read_settings
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, Token, TokenFile
from models.settings import Settings
from worker.exit_codes import CommandFailed

SECRET = "hidden-secret"


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    """As a worker reads them from its environment."""
    for name, value in values.items():
        monkeypatch.setenv(f"PULSAR_MIGRATE_{name.upper()}", value)
    return Settings()


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the text of the settings nor their JSON has a secret."""
    given = settings(
        monkeypatch,
        admin_token=SECRET,
        broker_webhook_token=SECRET,
        zookeeper_auth=f'["digest:user:{SECRET}"]',
    )
    assert given.admin_token.get_secret_value() == SECRET
    assert given.zookeeper_credentials == (("digest", f"user:{SECRET}".encode()),)
    for shown in (repr(given), str(given), given.model_dump_json()):
        assert SECRET not in shown


def test_zookeeper_credentials_come_from_a_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each line of the file is one; a wrong one is refused without being shown."""
    file = tmp_path / "auth"
    file.write_text(f"digest:a:{SECRET}\n\nip:127.0.0.1\n")
    given = settings(monkeypatch, zookeeper_auth='["digest:b:c"]', zookeeper_auth_file=str(file))
    assert given.zookeeper_credentials == (
        ("digest", b"b:c"),
        ("digest", f"a:{SECRET}".encode()),
        ("ip", b"127.0.0.1"),
    )
    file.write_text(SECRET)
    with pytest.raises(ValueError, match="has no scheme") as caught:
        _ = given.zookeeper_credentials
    assert SECRET not in str(caught.value)
    file.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        _ = given.zookeeper_credentials


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"admin_token": SECRET, "admin_token_file": "f"}, "admin_token and admin_token_file are both set"),
        ({"admin_token_file": "f", "admin_oauth2_key_file": "k"}, "are both set"),
        ({"admin_oauth2_key_file": "k"}, "needs either admin_oauth2_issuer_url or admin_oauth2_token_url"),
        ({"admin_tls_key": "k"}, "admin_tls_key needs admin_tls_certificate"),
        ({"broker_webhook_token": SECRET, "broker_webhook_token_file": "f"}, "are both set"),
    ],
)
def test_contradictions_are_refused(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], said: str) -> None:
    """A worker does not start with settings that contradict each other, and says why without the secret."""
    with pytest.raises(ValidationError, match=said) as caught:
        settings(monkeypatch, **values)
    assert SECRET not in str(caught.value)
    with pytest.raises(CommandFailed, match=said):
        read_settings()


def test_credentials_follow_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, a token, a file or OAuth2, with the TLS files and the timeout."""
    assert AdminAccess.from_settings(Settings()) == AdminAccess()
    assert not AdminAccess.from_settings(Settings()).guarded
    with monkeypatch.context() as one:
        access = AdminAccess.from_settings(settings(one, admin_token=SECRET, admin_timeout="PT7S"))
        assert (access.timeout, type(access.auth), access.guarded) == (7.0, Token, True)
    with monkeypatch.context() as one:
        assert isinstance(AdminAccess.from_settings(settings(one, admin_token_file="f")).auth, TokenFile)
    with monkeypatch.context() as one:
        given = settings(one, admin_oauth2_key_file="k", admin_oauth2_token_url="u", admin_tls_ca="ca")
        access = AdminAccess.from_settings(given)
        assert isinstance(access.auth, ClientCredentials)
        assert (access.tls.ca_file, access.tls.cert_file, access.tls.verify_hostname) == ("ca", None, True)
