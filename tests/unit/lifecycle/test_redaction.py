"""No text that leaves a process has a secret which the process has read, in whatever form a library repeats it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from clients.errors import StoreDenied, StoreUnreachable
from clients.oxia.access import OxiaAccess
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import ClientCredentials, OAuth2, Token, TokenFile
from clients.pulsar.admin.errors import AdminDenied, AdminError, refusal
from clients.pulsar.admin.http import HttpSession
from clients.sasl import Login
from clients.zookeeper.access import ZooKeeperAccess
from models.destinations import Destinations
from models.lifecycle.failures import Blocker, FailureKind
from models.redaction import HIDDEN, Redactor, redacted, redacted_json, remember, url_secrets
from models.settings import Settings
from process.logs import VARIABLE, configure_logs
from spark.tally import Tally, with_error_capture
from temporal.client import connect_config
from temporal.converter import DATA_CONVERTER, EncodedFailures
from temporal.encryption import Keys
from tests.support.lifecycle.keys import key_line
from tests.support.lifecycle.marks import MARK, all_secrets, forms, marked, planted, secret, settings

SECRETS = all_secrets()
TEXTS = [form for text in SECRETS for form in forms(text)]


@pytest.fixture(autouse=True)
def _planted() -> Generator[None]:
    with planted():
        yield


def test_settings_name_each_secret() -> None:
    """The secrets of settings are all values that are hidden, and the parts of an address and of `addauth`."""
    assert set(SECRETS) <= set(settings().secrets)
    assert Settings(spark_conf={"spark.ssl.keyPasswordFile": "/run/secrets/x", "spark.ui.port": "4040"}).secrets == (
        *Settings().secrets,
    )


@pytest.mark.parametrize("text", TEXTS)
def test_each_form_is_hidden(text: str) -> None:
    """A secret is removed as it is, escaped, in URLs, in hexadecimal digits and in Base64; the rest stays."""
    line = redacted(f"server said: {text}; try again")
    assert marked([line]) == []
    assert line.startswith("server said: ")
    assert line.endswith("; try again")
    assert HIDDEN in line


def test_a_text_that_is_cut_has_no_beginning_of_a_secret() -> None:
    """Errors are cut after some hundred characters; what is left of a secret is removed too."""
    token = secret("admin_token")
    assert [redacted(f"refused: {token[:end]}…") for end in range(16, len(token))] == [
        f"refused: {HIDDEN}…" for _ in range(16, len(token))
    ]


def test_other_text_stays() -> None:
    """Words, short secrets and what only resembles a secret are not changed."""
    remember("admin", "short12")
    text = f"admin of short12 uses {MARK[:10]} and planted flowers"
    assert redacted(text) == text


def test_the_longer_of_two_secrets_is_hidden_as_a_whole() -> None:
    """A secret that contains another one leaves nothing of itself."""
    remember("longer-secret", "a-longer-secret-than-that")
    assert redacted("x a-longer-secret-than-that y longer-secret z") == f"x {HIDDEN} y {HIDDEN} z"


def test_renewed_tokens_replace_old_ones() -> None:
    """The newest are known, however many came before; those of the settings stay."""
    redactor = Redactor()
    redactor.remember(["of-the-settings"], permanent=True)
    redactor.remember(f"token-number-{number}" for number in range(1_000))
    assert redactor.redact("of-the-settings token-number-999 token-number-998") == f"{HIDDEN} {HIDDEN} {HIDDEN}"
    assert redactor.redact("token-number-1,") == "token-number-1,"


def test_addresses() -> None:
    """The host of an address is not secret; its path, query and password are."""
    remember(*url_secrets("https://user:p%2Bpassword@hooks.example/services/T0123/B4567?key=a%2Bkey-value"))
    said = "POST https://hooks.example/services/T0123/B4567?key=a%2Bkey-value by user:p+password: a+key-value"
    assert redacted(said) == f"POST https://hooks.example{HIDDEN} by user:{HIDDEN}: {HIDDEN}"


@pytest.mark.parametrize("text", TEXTS)
def test_failures_in_histories(text: str) -> None:
    """Messages, traces, causes and details of a failure have no secret, whatever raised it, with a codec too."""

    def fail() -> None:
        try:
            raise OSError(5, text, text)
        except OSError as error:
            raise ApplicationError(f"x{text}", {"path": text}, type=FailureKind.UNEXPECTED) from error

    for converter in (DATA_CONVERTER.failure_converter, EncodedFailures()):
        with pytest.raises(ApplicationError) as raised:
            fail()
        failure = Failure()
        converter.to_failure(raised.value, DATA_CONVERTER.payload_converter, failure)
        assert marked([str(failure)]) == []
        read = converter.from_failure(failure, DATA_CONVERTER.payload_converter)
        assert HIDDEN in str(read)
        assert HIDDEN in str(read.__cause__)


def test_results_in_histories() -> None:
    """Sentences of a result, a heartbeat or a signal have no secret; names that steps act on are never changed."""
    token = secret("admin_token")
    blocker = Blocker(code="DENIED", cause=f"refused: {token}", cure="x")
    (payload,) = DATA_CONVERTER.payload_converter.to_payloads([{"blockers": [blocker], "cluster": token}])
    assert json.loads(payload.data) == {
        "blockers": [{"code": "DENIED", "cause": f"refused: {HIDDEN}", "cure": "x", "count": 1}],
        "cluster": token,
    }


def test_values_without_secrets_stay_as_they_are() -> None:
    """JSON without a secret is passed on byte for byte."""
    data = b'{"a": 1.50, "b": "\\u00e9 x"}'
    assert redacted_json(data, sentences_only=True) is data


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line has a secret: not in its message, its fields or its traceback."""
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    monkeypatch.setenv(VARIABLE, form)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        configure_logs()
        for handler in root.handlers:
            # Threads of other tests may log now.
            handler.addFilter(logging.Filter("x"))
        for text in TEXTS:
            try:
                raise OSError(text)
            except OSError:
                logging.getLogger("x").exception("refused: %s", text, extra={"answer": {"body": text}})
    finally:
        root.handlers[:], root.level = before
    assert marked([said.getvalue()]) == []
    if form == "json":
        lines = [json.loads(line) for line in said.getvalue().splitlines()]
        assert len(lines) == len(TEXTS)
        assert all(HIDDEN in line["answer"]["body"] for line in lines)


def test_errors_of_our_own() -> None:
    """A message of ours that repeats a server's has no secret: terminals and executors' logs show it as it is."""
    for text in TEXTS:
        error = StoreDenied(f"the store refuses: {text}")
        assert marked([str(error), repr(error), str(error.saying(f"the ledger: {text}"))]) == []
        denied = AdminDenied(text, method="GET", url="https://b:1/x")
        assert marked([str(denied), denied.reason, str(denied.saying(f"the topic: {text}"))]) == []


def test_tasks_of_spark() -> None:
    """Spark logs the error of a task on the executor and in the driver: the text has no secret, and stays useful."""

    def task(error: Exception) -> int:
        raise error from ValueError(secret("oxia_token"))

    class Accumulator:
        def add(self, tally: Tally) -> None:
            raise AssertionError(tally)

    accumulator: Any = Accumulator()
    for error in (OSError(f"refused {secret('admin_token')} of 7"), StoreUnreachable("refused [hidden] of 7")):
        with pytest.raises(RuntimeError, match=r"(?s)refused \[hidden\] of 7") as failed:
            list(with_error_capture(task, accumulator, 2)([error]))
        assert failed.value.__suppress_context__
        assert marked([str(failed.value)]) == []


# Secrets that settings do not have as values ------------------------------------------------------------------------


def echo(request: httpx.Request) -> httpx.Response:
    """Refuse a request, and repeat its credentials, as a proxy with a verbose log may."""
    return httpx.Response(401, json={"reason": f"bad header: {request.headers['Authorization']}"})


def test_tokens_of_files_that_change(tmp_path: Path) -> None:
    """A token is known from the moment at which it is sent, also the one that replaces it."""
    file = tmp_path / "token"
    for token in ("first-token-of-the-file", "second-token-of-the-file"):
        file.write_text(token)
        assert said_by(TokenFile(file)) == f"GET https://b:8443/x answered 401: bad header: Bearer {HIDDEN}"
    assert redacted("first-token-of-the-file") == HIDDEN
    assert said_by(Token(SecretStr("a-token-as-a-value"))).endswith(f"Bearer {HIDDEN}")


def said_by(auth: httpx.Auth) -> str:
    """Return the error of a request with these credentials, which the server repeats."""
    with httpx.Client(auth=auth, transport=httpx.MockTransport(echo)) as client:
        return str(refusal(client.get("https://b:8443/x")))


def test_secrets_of_oauth2(tmp_path: Path) -> None:
    """The client's secret and the tokens that were fetched with it are known."""
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"client_id": "worker", "client_secret": "the-secret-of-the-client"}))

    def issue(request: httpx.Request) -> httpx.Response:
        del request
        return httpx.Response(200, json={"access_token": "the-token-of-the-issuer", "expires_in": 60})

    options = OAuth2(file, token_url="https://issuer.example/token")
    assert said_by(ClientCredentials(options, transport=httpx.MockTransport(issue))).endswith(f"Bearer {HIDDEN}")
    assert redacted("the-secret-of-the-client") == HIDDEN


def test_files_for_the_stores(tmp_path: Path) -> None:
    """Secrets in files of ZooKeeper and Oxia are known once it was read, also in an executor."""
    for name, text in (
        ("digests", "digest:user:digest-password"),
        ("password", "sasl-password"),
        ("token", "oxia-tok"),
    ):
        (tmp_path / name).write_text(text)
    ZooKeeperAccess(auth_file=str(tmp_path / "digests")).auth_pairs()
    Login("zookeeper", "us", password_file=str(tmp_path / "password")).current_password()
    OxiaAccess(token_file=str(tmp_path / "token")).metadata()
    assert redacted("digest-password, sasl-password, oxia-tok") == f"{HIDDEN}, {HIDDEN}, {HIDDEN}"


def test_secrets_for_temporal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal's API key, its header and the keys of payloads are known."""
    empty = tmp_path / "temporal.toml"
    empty.touch()
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(empty))
    monkeypatch.setenv("TEMPORAL_API_KEY", "the-key-of-temporal")
    monkeypatch.setenv("TEMPORAL_GRPC_META_AUTHORIZATION", "Bearer the-header-of-temporal")
    connect_config()
    file = tmp_path / "keys"
    file.write_text(key_line("2030-01"))
    Keys(file)
    key = file.read_text().split()[1]
    said = f"the-key-of-temporal, Bearer the-header-of-temporal, {key}"
    assert redacted(said) == f"{HIDDEN}, {HIDDEN}, {HIDDEN}"


def test_a_request_of_ours_is_refused_without_them() -> None:
    """The address of a request that is not sent stays out of the error where it has a secret."""
    access = AdminAccess(auth=Token(SecretStr(secret("admin_token"))), destinations=Destinations(("127.0.0.1",)))
    with HttpSession(access) as session, pytest.raises(AdminError) as refused:
        session.request("GET", f"https://example.com/{secret('admin_token')}")
    assert marked([str(refused.value)]) == []
