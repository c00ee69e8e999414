"""Findings of `pulsar-migrate doctor` about a worker's settings, without any server."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import certifi
import pytest

from cli.doctor.certificates import SOON, validity
from cli.doctor.findings import Check, Finding, Level, run_check, run_checks, warning, worst
from cli.doctor.process import process_checks, token_life
from cli.doctor.servers import server_findings
from cli.migrations import Servers
from models.settings import Settings
from models.store_url import parse_store_url
from process.exit_codes import CommandFailed, ExitCode
from tests.support.gateway.tokens import token_entry, write
from tests.support.lifecycle.hook_receiver import HookReceiver

AUTHORITIES = certifi.where()
TLS = Path(__file__).parent / "tls"
"""A certificate for a hundred years with its key, and the key of another one."""


@pytest.fixture(autouse=True)
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for servers, which may be slow on a busy machine."""
    monkeypatch.setattr("cli.doctor.process.CONNECT_TIMEOUT", 60.0)


def finding(settings: Mapping[str, object], subject: str) -> Finding:
    """Return the finding for one subject with these settings."""
    (check,) = [check for check in process_checks(Settings.model_validate(settings)) if check.subject == subject]
    return run_check(check)


def test_validity_is_read_as_openssl_reads_it() -> None:
    """The dates of every authority that the world trusts are read as OpenSSL reads them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(AUTHORITIES)
    certificates = zip(context.get_ca_certs(binary_form=True), context.get_ca_certs(), strict=True)
    assert len(context.get_ca_certs()) > 100
    for der, decoded in certificates:
        dates = validity(der)
        assert dates.start.timestamp() == ssl.cert_time_to_seconds(str(decoded["notBefore"]))
        assert dates.end.timestamp() == ssl.cert_time_to_seconds(str(decoded["notAfter"]))


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x82", b"\x30\x03\x02\x01", b"no certificate at all"])
def test_invalid_certificates(der: bytes) -> None:
    """Bytes that are not a certificate are refused as such."""
    with pytest.raises(ValueError, match="no readable certificate"):
        validity(der)


def test_files_of_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of payload keys and tokens are read as their programs read them, and must be closed to others."""
    keys, tokens = tmp_path / "keys", tmp_path / "tokens"
    keys.write_text(f"first {base64.b64encode(bytes(range(32))).decode()}\n")
    write(tokens, token_entry("billing", "client"))
    cases = (("PULSAR_MIGRATE_PAYLOAD_KEYS_FILE", keys, 0o604), ("PULSAR_MIGRATE_GATEWAY_TOKENS_FILE", tokens, 0o602))
    for name, file, open_mode in cases:
        monkeypatch.setenv(name, str(file))
        file.chmod(0o640)
        assert finding({}, name).level is Level.OK
        file.chmod(open_mode)
        loose = finding({}, name)
        assert (loose.level, loose.cure.startswith("run chmod o-")) == (Level.WARNING, True)
        file.write_text("nothing valid")
        wrong = finding({}, name)
        assert (wrong.level, wrong.exit_code, str(file) in wrong.detail) == (Level.FAILED, ExitCode.USAGE, True)
        file.unlink()
        assert "cannot be read" in finding({}, name).detail


def test_the_stop_file_is_usually_absent(tmp_path: Path) -> None:
    """Without a stop file all is well; one that is there, or whose folder is missing, is a warning with its reason."""
    name, file = "PULSAR_MIGRATE_STOP_FILE", tmp_path / "stop"
    assert finding({"stop_file": str(file)}, name).level is Level.OK
    file.write_text("brokers are overloaded")
    stopped = finding({"stop_file": str(file)}, name)
    assert (stopped.level, "brokers are overloaded" in stopped.detail) == (Level.WARNING, True)
    unmounted = finding({"stop_file": str(tmp_path / "mount/stop")}, name)
    assert (unmounted.level, "the folder of the stop file is not there" in unmounted.detail) == (Level.WARNING, True)


def test_files_of_tls(tmp_path: Path) -> None:
    """Certificates are checked with their dates, keys by whether they belong to them; each fault names its file."""
    certificate, key, other = (str(TLS / name) for name in ("own.pem", "own.key", "other.key"))
    name = "PULSAR_MIGRATE_BOOKIE_TLS_CA"
    good = finding({"bookie_tls_ca": AUTHORITIES}, name)
    assert (good.level, "certificates, valid until" in good.detail) == (Level.OK, True)
    for file, said in ((tmp_path / "absent.pem", "No such file"), (Path(key), "has no certificate")):
        bad = finding({"bookie_tls_ca": str(file)}, name)
        assert (bad.level, bad.exit_code, said in bad.detail) == (Level.FAILED, ExitCode.USAGE, True), bad
        assert str(file) in bad.detail

    own = {"bookie_tls_ca": AUTHORITIES, "bookie_tls_certificate": certificate}
    assert finding({**own, "bookie_tls_key": key}, "PULSAR_MIGRATE_BOOKIE_TLS_CERTIFICATE").level is Level.OK
    wrong = finding({**own, "bookie_tls_key": other}, "PULSAR_MIGRATE_BOOKIE_TLS_CERTIFICATE")
    assert (wrong.level, "key values mismatch" in wrong.detail) == (Level.FAILED, True)


def test_expired_and_nearly_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expired certificate fails the check, one with little time left warns."""
    settings = {"bookie_tls_ca": str(TLS / "own.pem")}
    end = validity(ssl.PEM_cert_to_DER_cert((TLS / "own.pem").read_text())).end
    for now, level, said in (
        (end - 2 * SOON, Level.OK, "valid until"),
        (end - SOON / 2, Level.WARNING, "in 15 d"),
        (end, Level.FAILED, "expired"),
    ):
        monkeypatch.setattr("cli.doctor.certificates.datetime", clock(now))
        result = finding(settings, "PULSAR_MIGRATE_BOOKIE_TLS_CA")
        assert (result.level, said in result.detail) == (level, True), result


def clock(now: datetime) -> type[datetime]:
    """Return a `datetime` whose `now` is always this time."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return now

    return Stopped


def test_commands() -> None:
    """A command is looked up as a shell would look it up."""
    result = finding({"broker_stop_command": (sys.executable, "-c", "")}, "PULSAR_MIGRATE_BROKER_STOP_COMMAND")
    assert (result.level, result.detail) == (Level.OK, f"{sys.executable} can be run")
    absent = finding({"broker_start_command": ("no-such-program",)}, "PULSAR_MIGRATE_BROKER_START_COMMAND")
    assert (absent.level, absent.exit_code) == (Level.FAILED, ExitCode.USAGE)


class Answers(BaseHTTPRequestHandler):
    """A worker's metrics, as little of them as is needed; anything but GET fails the test."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"temporal_num_pollers 1\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Ignore the request: nothing is logged."""


@pytest.fixture
def server() -> Iterator[str]:
    """A web server on a free port."""
    http = HTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=http.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def test_metrics_address(server: str) -> None:
    """A free address is fine, and one that a worker serves; one that another program uses is not."""
    assert finding({"metrics_address": server}, "metrics").detail == f"{server} is served by a running worker"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.close()
        free = f"127.0.0.1:{taken.getsockname()[1]}" if taken.fileno() >= 0 else "127.0.0.1:0"
    assert finding({"metrics_address": free}, "metrics").level is Level.OK
    assert finding({"metrics_address": ""}, "metrics").level is Level.OK
    wrong = finding({"metrics_address": "everywhere"}, "metrics")
    assert (wrong.exit_code, "invalid metrics address" in wrong.detail) == (ExitCode.USAGE, True)


def test_webhook_is_not_called(server: str) -> None:
    """The webhook is only connected to: a request would stop brokers."""
    result = finding({"broker_webhook": f"http://{server}/brokers"}, "PULSAR_MIGRATE_BROKER_WEBHOOK")
    assert (result.level, result.detail) == (Level.OK, f"http://{server} takes connections")
    lost = finding({"broker_webhook": "http://127.0.0.1:1/brokers"}, "PULSAR_MIGRATE_BROKER_WEBHOOK")
    assert (lost.exit_code, "Connection refused" in lost.detail) == (ExitCode.UNREACHABLE, True)


def test_hooks_are_not_called(tmp_path: Path) -> None:
    """Of a hook the connection, the secret and the program are checked; it gets no event."""
    with HookReceiver(tmp_path) as receiver:
        hooks = {"hooks": {"pager": receiver.settings(), "chat": {"command": ["/no/such/program"]}}}
        connected = finding(hooks, "PULSAR_MIGRATE_HOOKS__PAGER__URL")
        assert (connected.level, connected.detail) == (
            Level.OK,
            f"{receiver.url.removesuffix('/hook')} takes connections",
        )
        assert finding(hooks, "secret of the hook pager").detail == "requests are signed"
        assert finding(hooks, "PULSAR_MIGRATE_HOOKS__PAGER__TLS_CA").level is not Level.FAILED
        untrusted = {"hooks": {"pager": receiver.settings(tls_ca="")}}
        assert "certificate verify failed" in finding(untrusted, "PULSAR_MIGRATE_HOOKS__PAGER__URL").detail
        assert receiver.events == []
    assert finding(hooks, "PULSAR_MIGRATE_HOOKS__CHAT__COMMAND").level is Level.FAILED
    missing = {"hooks": {"pager": receiver.settings(secret_file=str(tmp_path / "none")) | {"secret": ""}}}
    assert finding(missing, "secret of the hook pager").level is Level.FAILED


@pytest.mark.parametrize(
    ("master", "level", "said"),
    [
        ("local[*]", Level.OK, "on this machine"),
        ("local[2]", Level.OK, "on this machine"),
        ("spark://127.0.0.1:1", Level.FAILED, "127.0.0.1:1 cannot be reached"),
        ("k8s://https://127.0.0.1:1", Level.FAILED, "127.0.0.1:1 cannot be reached"),
        ("yarn", Level.FAILED, "needs the cluster's configuration"),
        ("mesos://127.0.0.1:5050", Level.FAILED, "invalid Spark master"),
    ],
)
def test_spark(master: str, level: Level, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each form of Spark's address is checked by what it needs."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    result = finding({"spark_master": master}, "Spark")
    assert (result.level, said in result.detail) == (level, True), result


def token(end: datetime | None) -> str:
    """Return a JSON web token, unsigned."""
    return token_of({"sub": "admin"} | ({"exp": end.timestamp()} if end else {}))


def token_of(claims: dict[str, Any]) -> str:
    """Return a JSON web token with these claims, unsigned."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(claim).encode()).decode().rstrip("=") for claim in ({"alg": "none"}, claims)
    ]
    return ".".join([*parts, ""])


def test_tokens() -> None:
    """A token that has expired fails, one that will soon warns; other texts say nothing of their life."""
    now = datetime.now(UTC)
    assert token_life("token", "secret") == "a token without an expiry time"
    assert token_life("token", token(None)) == "a token without an expiry time"
    assert str(token_life("token", token(now + 2 * SOON))).startswith("a token that is valid until")
    for never in (1e300, -7e16):
        assert token_life("token", token_of({"exp": never})) == "a token without an expiry time"
    soon = token_life("token", token(now + SOON / 2))
    assert isinstance(soon, Finding)
    assert soon.level is Level.WARNING
    with pytest.raises(CommandFailed, match="expired"):
        token_life("token", token(now - SOON))


def test_credentials(tmp_path: Path) -> None:
    """Credentials are had as a worker would have them; none of them is shown."""
    file = tmp_path / "token"
    file.write_text(token(datetime.now(UTC) + 2 * SOON))
    good = finding({"admin_token_file": str(file)}, "credentials for brokers")
    assert (good.level, good.detail[:30]) == (Level.OK, "a token that is valid until 20"), good
    file.write_text(token(datetime.now(UTC) - SOON))
    expired = finding({"broker_webhook_token_file": str(file)}, "credentials for the webhook")
    assert (expired.level, "expired" in expired.detail) == (Level.FAILED, True)
    named = finding({"zookeeper_auth": ("digest:user:secret", "digest:other:secret")}, "credentials for ZooKeeper")
    assert (named.level, named.detail) == (Level.WARNING, "2 credentials of the schemes digest, without TLS")
    login = {"zookeeper_sasl_username": "us", "zookeeper_sasl_password": "secret", "zookeeper_tls_ca": AUTHORITIES}
    logged_in = finding(login, "credentials for ZooKeeper")
    assert (logged_in.level, logged_in.detail) == (Level.OK, "a login as us")
    gone = {"zookeeper_sasl_username": "us", "zookeeper_sasl_password_file": str(tmp_path / "gone")}
    assert "gone cannot be read" in finding(gone, "credentials for ZooKeeper").detail
    assert finding({"zookeeper_auth": ("secret",)}, "credentials for ZooKeeper").exit_code is ExitCode.USAGE

    key = tmp_path / "key.json"
    key.write_text('{"client_id": "us", "client_secret": "secret"}')
    oauth = {
        "admin_oauth2_key_file": str(key),
        "admin_oauth2_token_url": "http://127.0.0.1:1/token",
        "allow_plain": True,
    }
    lost = finding(oauth, "credentials for brokers")
    assert (lost.exit_code, "127.0.0.1:1" in lost.detail) == (ExitCode.UNREACHABLE, True), lost
    assert finding(oauth, "PULSAR_MIGRATE_ADMIN_OAUTH2_KEY_FILE").level is Level.OK


def test_named_credentials(tmp_path: Path) -> None:
    """Each set is checked like the common one, and its findings have its name."""
    file = tmp_path / "token"
    file.write_text(token(datetime.now(UTC) - SOON))
    green = {
        "admin_token_file": str(file),
        "admin_tls_ca": AUTHORITIES,
        "admin_tls_certificate": str(TLS / "own.pem"),
        "admin_tls_key": str(TLS / "other.key"),
        "zookeeper_auth": ("digest:user:secret",),
    }
    settings = {"admin_token": token(datetime.now(UTC) + 2 * SOON), "credentials": {"green": green}}
    assert finding(settings, "credentials for brokers").level is Level.OK
    assert "expired" in finding(settings, "credentials for brokers (green)").detail
    zookeeper = finding(settings, "credentials for ZooKeeper (green)").detail
    assert zookeeper == "1 credential of the schemes digest, without TLS"
    prefix = "PULSAR_MIGRATE_CREDENTIALS__GREEN__ADMIN_"
    assert finding(settings, f"{prefix}TOKEN_FILE").level is Level.OK
    assert finding(settings, f"{prefix}TLS_CA").level is Level.OK
    assert "key values mismatch" in finding(settings, f"{prefix}TLS_CERTIFICATE").detail


def test_a_token_for_oxia(tmp_path: Path) -> None:
    """A token without TLS is a warning with the setting to add; a file that cannot be read is an error."""
    subject, secret = "credentials for Oxia", {"oxia_token": "secret"}
    plain = finding(secret, subject)
    assert (plain.level, plain.detail) == (Level.WARNING, "a token, without TLS")
    assert "set oxia_tls_ca" in plain.cure
    secured = finding({**secret, "oxia_tls_ca": AUTHORITIES}, subject)
    assert (secured.level, secured.detail) == (Level.OK, "a token, with TLS")
    named = finding({"credentials": {"green": {"oxia_token_file": str(tmp_path / "gone")}}}, f"{subject} (green)")
    assert (named.exit_code, "gone cannot be read" in named.detail) == (ExitCode.USAGE, True), named


def test_protection_of_spark() -> None:
    """Executors on other machines that are not authenticated, or would get secrets, are an error."""
    subject, elsewhere = "protection of Spark", {"spark_master": "yarn"}
    assert finding({}, subject).detail == "all tasks run on this machine"
    assert finding(elsewhere, subject).level is Level.OK
    for settings, text in (
        ({"spark_conf": {"spark.authenticate": "false"}}, '"spark.authenticate": "true"'),
        ({"oxia_token": "planted"}, "set PULSAR_MIGRATE_OXIA_TOKEN_FILE"),
    ):
        wrong = finding({**elsewhere, **settings}, subject)
        assert (wrong.level, text in wrong.detail, "planted" in wrong.detail) == (Level.FAILED, True, False), wrong


def test_hosts_of_credentials() -> None:
    """A set with a secret needs a list of hosts, and plain links are a warning."""
    subject, secret = "hosts of credentials", {"admin_token": "secret"}
    missing = finding(secret, subject)
    assert (missing.level, "PULSAR_MIGRATE_HOSTS is not set" in missing.detail) == (Level.FAILED, True), missing
    named = finding({"credentials": {"green": secret}}, f"{subject} (green)")
    assert "PULSAR_MIGRATE_CREDENTIALS__GREEN__HOSTS is not set" in named.detail, named
    assert finding({**secret, "hosts": "a, .b"}, subject).detail == "a, .b"
    assert finding({**secret, "hosts": "a", "allow_plain": True}, subject).level is Level.WARNING


def test_unknown_credentials_of_an_input() -> None:
    """A name that the settings lack is reported, and no server is asked with the common ones."""
    store = parse_store_url("zk:127.0.0.1:1")
    servers = Servers("green", store, {"green": store}, credentials="green")
    (result,) = server_findings(servers, Settings.model_validate({"admin_token": "secret"}))
    assert (result.level, result.exit_code) == (Level.FAILED, ExitCode.USAGE)
    assert "no credentials called 'green'" in result.detail
    assert "PULSAR_MIGRATE_CREDENTIALS__GREEN__" in result.cure


def test_one_check_does_not_hide_others() -> None:
    """An unexpected error is reported as a finding, in the order of the checks."""

    def broken() -> str:
        raise KeyError("x")

    findings = list(run_checks([Check("first", broken), Check("second", lambda: "fine")]))
    assert [(finding.subject, finding.level, finding.exit_code) for finding in findings] == [
        ("first", Level.FAILED, ExitCode.UNEXPECTED),
        ("second", Level.OK, ExitCode.OK),
    ]


def test_the_worst_finding_sets_the_exit_code() -> None:
    """Wrong settings come before servers that do not answer, and warnings do not count."""

    def ended(code: ExitCode) -> Finding:
        return Finding(subject="", level=Level.FAILED, detail="", exit_code=code)

    assert worst([]) == worst([warning("", "", "")]) == ExitCode.OK
    assert worst([ended(ExitCode.CONFLICT), ended(ExitCode.UNREACHABLE)]) == ExitCode.UNREACHABLE
    assert worst([ended(ExitCode.UNREACHABLE), ended(ExitCode.USAGE), ended(ExitCode.OK)]) == ExitCode.USAGE
