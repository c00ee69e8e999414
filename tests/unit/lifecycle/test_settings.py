"""The worker's settings: secrets stay hidden, files can hold them, and contradictions are refused."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pydantic import SecretStr, ValidationError
from temporalio.client import Client

from activities.lifecycle.runtime import Runtime
from cli.options import read_settings
from clients.errors import NoCredentials
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, Token, TokenFile
from clients.stores import Access
from clients.tls import Tls
from clients.zookeeper.access import ZooKeeperAccess
from models.credentials import SECRETS, UnknownCredentials
from models.settings import Settings
from process.exit_codes import CommandFailed
from tests.support.clients.destinations import LOOPBACK
from worker.process import run_worker

SECRET = "hidden-secret"


GREEN = "credentials__green__"


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    """Return the settings as a worker reads them from its environment."""
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
    assert ZooKeeperAccess.of(given, LOOPBACK).auth_pairs() == (("digest", f"user:{SECRET}".encode()),)
    for shown in (repr(given), str(given), given.model_dump_json()):
        assert SECRET not in shown


def test_zookeeper_credentials_come_from_a_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each line of the file is one; a wrong one is refused without being shown."""
    file = tmp_path / "auth"
    file.write_text(f"digest:a:{SECRET}\n\nip:127.0.0.1\n")
    given = settings(monkeypatch, zookeeper_auth='["digest:b:c"]', zookeeper_auth_file=str(file))
    access = ZooKeeperAccess.of(given, LOOPBACK)
    assert access.auth_pairs() == (
        ("digest", b"b:c"),
        ("digest", f"a:{SECRET}".encode()),
        ("ip", b"127.0.0.1"),
    )
    file.write_text(SECRET)
    with pytest.raises(ValueError, match="has no scheme") as caught:
        ZooKeeperAccess.of(given, LOOPBACK)
    assert SECRET not in str(caught.value)
    file.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        ZooKeeperAccess.of(given, LOOPBACK)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"admin_token": SECRET, "admin_token_file": "f"}, "admin_token and admin_token_file are both set"),
        ({"admin_token_file": "f", "admin_oauth2_key_file": "k"}, "are both set"),
        ({"admin_oauth2_key_file": "k"}, "needs either admin_oauth2_issuer_url or admin_oauth2_token_url"),
        ({"admin_tls_key": "k"}, "admin_tls_key needs admin_tls_certificate"),
        ({"broker_webhook_token": SECRET, "broker_webhook_token_file": "f"}, "are both set"),
        ({"oxia_token": SECRET, "oxia_token_file": "f"}, "oxia_token and oxia_token_file are both set"),
        ({"oxia_tls_certificate": "c"}, "oxia_tls_certificate needs oxia_tls_ca"),
        ({"oxia_tls_ca": "ca", "oxia_tls_key": "k"}, "oxia_tls_key needs oxia_tls_certificate"),
        ({"bookie_tls_certificate": "c"}, "bookie_tls_certificate needs bookie_tls_ca"),
        ({"bookie_tls_ca": "ca", "bookie_tls_key": "k"}, "bookie_tls_key needs bookie_tls_certificate"),
    ],
)
def test_contradictions_are_refused(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], said: str) -> None:
    """A worker does not start with settings that contradict each other, and says why without the secret."""
    with pytest.raises(ValidationError, match=said) as caught:
        settings(monkeypatch, **values)
    assert SECRET not in str(caught.value)
    with pytest.raises(CommandFailed, match=said):
        read_settings()


@pytest.mark.parametrize(
    ("variable", "cure"),
    [
        ("PULSAR_MIGRATE_BOOKIE_TLS_CAA", "a setting is named PULSAR_MIGRATE_BOOKIE_TLS_CA"),
        ("PULSAR_MIGRATE_ADMIN_TOKEN_FILEE", "a setting is named PULSAR_MIGRATE_ADMIN_TOKEN_FILE"),
        ("PULSAR_MIGRATE_SOMETHING", "correct it, or unset it"),
    ],
)
def test_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, cure: str) -> None:
    """A misspelled variable stops the worker at its start, without its value in the message."""
    monkeypatch.setenv(variable, SECRET)
    with pytest.raises(CommandFailed, match=f"{variable} is not a setting. cure: .*{cure}") as caught:
        read_settings()
    assert SECRET not in str(caught.value)


def test_variables_of_others_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the gateway, of named credentials, and of the log are not settings of a worker."""
    for name in ("GATEWAY_PORT", "CREDENTIALS__GREEN__ADMIN_TOKEN", "LOG", "CLUSTER", "IMAGE_OXIA"):
        monkeypatch.setenv(f"PULSAR_MIGRATE_{name}", "1")
    assert set(read_settings().credentials) == {"green"}


def test_credentials_follow_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, a token, a file or OAuth2, with the TLS files and the timeout."""
    assert AdminAccess.from_settings(Settings()) == AdminAccess()
    assert not AdminAccess.from_settings(Settings()).guarded
    with monkeypatch.context() as patch:
        access = AdminAccess.from_settings(settings(patch, admin_token=SECRET, admin_timeout="PT7S"))
        assert (access.timeout, type(access.auth), access.guarded) == (7.0, Token, True)
    with monkeypatch.context() as patch:
        assert isinstance(AdminAccess.from_settings(settings(patch, admin_token_file="f")).auth, TokenFile)
    with monkeypatch.context() as patch:
        given = settings(patch, admin_oauth2_key_file="k", admin_oauth2_token_url="u", admin_tls_ca="ca")
        access = AdminAccess.from_settings(given)
        assert isinstance(access.auth, ClientCredentials)
        assert (access.tls.ca_file, access.tls.cert_file, access.tls.verify_hostname) == ("ca", None, True)


def test_a_named_set_has_all_that_the_common_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable of the common credentials has its like in a set; what a set leaves out is not taken from them."""
    given = settings(
        monkeypatch,
        admin_token="common",
        admin_tls_ca="common.pem",
        zookeeper_auth='["digest:common:common"]',
        **{
            f"{GREEN}admin_token": "12345",
            f"{GREEN}admin_tls_verify_hostname": "false",
            f"{GREEN}zookeeper_auth": f'["digest:green:{SECRET}"]',
        },
        credentials=f'{{"bare":{{}},"old_one":{{"admin_token":"{SECRET}"}}}}',
    )
    assert set(given.credentials) == {"green", "bare", "old_one"}
    green = given.credentials_of("green")
    assert green.admin_token.get_secret_value() == "12345"
    assert (green.admin_tls_ca, green.admin_tls_verify_hostname) == ("", False)
    assert ZooKeeperAccess.of(green, LOOPBACK).auth_pairs() == (("digest", f"green:{SECRET}".encode()),)
    bare = AdminAccess.from_settings(given, "bare")
    assert (bare.auth, bare.tls, bare.guarded) == (None, Tls(), False)
    assert Access.from_settings(given, "bare").common.zookeeper.auth == ()
    assert given.credentials_of("") is given
    assert AdminAccess.from_settings(given).tls.ca_file == "common.pem"
    for shown in (repr(given), str(given), given.model_dump_json()):
        assert SECRET not in shown
        assert "12345" not in shown


def test_a_set_goes_to_its_own_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set lists its hosts, and messages name the variable of the set."""
    given = settings(
        monkeypatch, hosts="a.example.com, .svc", **{f"{GREEN}hosts": "[::1],10.0.0.0/8", f"{GREEN}allow_plain": "true"}
    )
    assert given.destinations_of("").hosts == ("a.example.com", ".svc")
    green = AdminAccess.from_settings(given, "green").destinations
    assert (green.hosts, green.allow_plain) == (("::1", "10.0.0.0/8"), True)
    for host in ("10.2.3.4", "::1", "[::1]"):
        assert green.objection(host, encrypted=False, secret=True) == ""
    for host in ("11.0.0.1", "localhost", "10.0.0.1.example.com"):
        assert "PULSAR_MIGRATE_CREDENTIALS__GREEN__HOSTS" in green.objection(host, encrypted=True, secret=False)
    common = given.destinations_of("")
    for host in ("A.example.com.", "b.svc", "c.b.SVC"):
        assert common.objection(host, encrypted=True, secret=True) == ""
    for host in ("svc", "evilsvc", "b.a.example.com", "a.example.com.evil"):
        assert "is not among the hosts" in common.objection(host, encrypted=True, secret=True)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_worker_does_not_start_with_secrets_that_may_go_anywhere(tmp_path: Path, secret: str) -> None:
    """Each set with a secret must list its hosts; the error names the variable."""
    value = ("digest:a:b",) if secret == "zookeeper_auth" else str(tmp_path / "file")
    given: dict[str, object] = {secret: value}
    given |= {"admin_oauth2_token_url": "https://a"} if "oauth2" in secret else {}
    given |= {f"{secret.partition('_password')[0]}_username": "us"} if "sasl" in secret else {}
    for settings, variable in (
        (Settings.model_validate(given), "PULSAR_MIGRATE_HOSTS"),
        (Settings.model_validate({"credentials": {"green": given}}), "PULSAR_MIGRATE_CREDENTIALS__GREEN__HOSTS"),
    ):
        with pytest.raises(CommandFailed, match=f"^error: {variable} is not set"):
            run_worker(settings)
    Settings.model_validate({**given, "hosts": "a"}).check_hosts()


def test_an_unknown_name_does_not_get_the_common_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name is reported with the known ones; nothing of the common credentials is used for it."""
    with pytest.raises(UnknownCredentials, match="'green'; they have none with a name"):
        Settings(admin_token=SecretStr(SECRET)).credentials_of("green")
    given = settings(monkeypatch, admin_token=SECRET, credentials='{"old":{},"new":{}}')
    with pytest.raises(UnknownCredentials, match="no credentials called 'Green'; they have new, old") as caught:
        given.credentials_of("Green")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({f"{GREEN}admin_tokn": SECRET}, "PULSAR_MIGRATE_CREDENTIALS__GREEN__ADMIN_TOKN: Extra inputs"),
        (
            {f"{GREEN}admin_token": SECRET, f"{GREEN}admin_token_file": "f"},
            "CREDENTIALS__GREEN: admin_token and admin_",
        ),
        ({f"{GREEN}admin_oauth2_key_file": "k"}, "CREDENTIALS__GREEN: admin_oauth2_key_file needs either"),
        ({f"{GREEN}hosts": "http://a"}, "CREDENTIALS__GREEN: 'http://a' is not a host"),
        ({f"{GREEN}admin_tls_key": "k"}, "CREDENTIALS__GREEN: admin_tls_key needs admin_tls_certificate"),
        ({f"{GREEN}task_queue": "q"}, "CREDENTIALS__GREEN__TASK_QUEUE: Extra inputs"),
        ({"credentials": '{"Green":{}}'}, "CREDENTIALS__GREEN.*should match pattern"),
        ({"credentials": SECRET}, '"credentials"'),
        ({"credentials__green": SECRET}, "CREDENTIALS__GREEN: Input should be a valid dictionary"),
    ],
)
def test_wrong_named_sets_are_refused(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], said: str) -> None:
    """A setting that a set lacks, or has twice, keeps a worker from starting; the message names it, and no secret."""
    for name, value in values.items():
        monkeypatch.setenv(f"PULSAR_MIGRATE_{name.upper()}", value)
    with pytest.raises(CommandFailed, match=said) as caught:
        read_settings()
    assert SECRET not in str(caught.value)


def test_a_runtime_gives_each_side_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admin interface, store and binary protocol get the credentials of the name; an unknown one may be there later."""
    runtime = Runtime(
        settings(
            monkeypatch,
            admin_token="common",
            **{
                f"{GREEN}admin_token": SECRET,
                f"{GREEN}admin_tls_ca": "green.pem",
                f"{GREEN}zookeeper_auth": '["digest:green:x"]',
            },
        ),
        cast("Client", None),
        "queue",
    )
    assert runtime.admin_of("green") is runtime.admin_of("green")
    assert runtime.stores_of("green").common.zookeeper.auth == (("digest", b"green:x"),)
    wire = runtime.wire_of("green")
    assert (wire.token(), wire.tls.ca_file, runtime.wire_of("").token()) == (SECRET, "green.pem", "common")
    assert SECRET not in repr(wire)
    for ask in (runtime.admin_of, runtime.stores_of, runtime.wire_of):
        with pytest.raises(NoCredentials, match="'gren'; they have green"):
            ask("gren")
