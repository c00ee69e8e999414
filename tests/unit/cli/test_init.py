"""`init`: plan files from a running cluster, pulsarctl's contexts and given values."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import typer

from cli.app import run
from process.exit_codes import ExitCode
from tests.support.http_server import HttpServer

SECRET = "eyJhbGciOi.this-is-a-token.xyz"
NEEDED = {
    "metadata-store": ["source=zk:zk-1:2181", "target=oxia://oxia:6648/default"],
    "bookie-cluster": [
        "metadata_url=zk:zk-1:2181",
        "routing=restart",
        "source.name=old",
        "source.metadataServiceUri=zk://zk-1:2181/ledgers",
        "target.name=new",
        "target.metadataServiceUri=zk://zk-1:2181/new",
    ],
    "blue-green": [
        "green_cluster=green",
        *(
            f"{side}.{field}"
            for side, host in (("blue", "b"), ("green", "g"))
            for field in (
                f"metadata_url=zk:zk-{host}:2181",
                f"admin_urls=http://{host}:8080",
                f"service_url=http://{host}:8080",
                f"broker_service_url=pulsar://{host}:6650",
            )
        ),
    ],
    "scalable-topic": ["metadata_url=zk:zk-1:2181", "admin_urls=http://b:8080", "topic=persistent://a/b/c"],
}


SETTINGS = {"clusterName": "prod", "zookeeperServers": "zk-1:2181,zk-2:2181"}


class Broker(BaseHTTPRequestHandler):
    """A broker that answers with its settings and its cluster's brokers, to the owner of the token only."""

    def do_GET(self) -> None:
        """Answer."""
        is_known = self.headers.get("Authorization") == f"Bearer {SECRET}"
        body = json.dumps(SETTINGS if "runtime" in self.path else ["b-1:8080", "b-2:8080"]).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of the base
        """Write no log."""


def arguments(kind: str, file: Path, *options: str) -> list[str]:
    """Return the words of a command that asks nothing."""
    given = [word for pair in ["cluster=prod", *NEEDED[kind]] for word in ("--set", pair)]
    return ["init", kind, *given, "--to", str(file), *options]


@pytest.mark.parametrize("kind", NEEDED)
def test_a_written_plan_is_valid(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal the plan has the given values, and `validate` accepts it."""
    file = tmp_path / "plan.yaml"
    assert run(arguments(kind, file)) == ExitCode.OK, capsys.readouterr().err
    assert run(["validate", str(file)]) == ExitCode.OK, capsys.readouterr().err
    assert file.read_text().startswith(f"# yaml-language-server: $schema=docs/schemas/{kind}.json\n")


def test_a_file_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that exists stays as it is."""
    file = tmp_path / "plan.yaml"
    file.write_text("mine")
    assert run(arguments("metadata-store", file)) == ExitCode.USAGE
    assert "cure: name another file with --to" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_needed_fields_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal one line names the missing fields, and nothing is written."""
    file = tmp_path / "plan.yaml"
    assert run(["init", "metadata-store", "--set", "cluster=prod", "--to", str(file)]) == ExitCode.USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert "source: this field is needed; target: this field is needed. cure: give the value: --set" in line
    assert not file.exists()


def test_a_running_cluster_is_asked_with_the_token_of_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster gives its name, store and brokers; the token of pulsarctl's context goes there, and nowhere else."""
    # On a busy machine an answer may take longer than the default.
    monkeypatch.setenv("PULSAR_MIGRATE_ADMIN_TIMEOUT", "PT1M")
    config, file = tmp_path / "config", tmp_path / "plan.yaml"
    with HttpServer(Broker) as server:
        config.write_text(
            f'contexts:\n  mine:\n    admin-service-url: {server.base_url}\n    bookie-service-url: ""\n'
            f"auth-info:\n  mine:\n    token: {SECRET}\n    tls_allow_insecure_connection: false\n"
            "current-context: mine\n"
        )
        target = ["--set", "topic=persistent://a/b/c"]
        words = ["--context", "mine", "--pulsarctl-config", str(config), "--to", str(file)]
        assert run(["init", "scalable-topic", *words, *target]) == ExitCode.OK, capsys.readouterr().err
    text, printed = file.read_text(), capsys.readouterr()
    assert 'cluster: "prod"\n' in text
    assert 'metadata_url: "zk:zk-1:2181,zk-2:2181"\n' in text
    assert 'admin_urls: ["http://b-1:8080", "http://b-2:8080"]\n' in text
    assert SECRET not in text + printed.out + printed.err
    assert "PULSAR_MIGRATE_ADMIN_TOKEN_FILE" in text
    assert run(["validate", str(file)]) == ExitCode.OK


def test_a_context_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown context is refused with the names of those that exist."""
    config = tmp_path / "config"
    config.write_text("contexts: {a: {admin-service-url: 'http://x'}, b: {}}\n")
    words = ["--context", "c", "--pulsarctl-config", str(config)]
    assert run(["init", "metadata-store", *words]) == ExitCode.USAGE
    assert "there is no context 'c'. cure: name one with --context: a, b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://ana:s3cret@127.0.0.1:1", "an address has a user or a password"),
        ("127.0.0.1:1", "invalid address '127.0.0.1:1'; expected http://host:port or https://host:port"),
        ("file:///etc/passwd", "invalid address"),
    ],
)
def test_a_wrong_address_is_not_asked(url: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong address is a wrong input, and its password is not shown."""
    assert run(arguments("metadata-store", tmp_path / "plan.yaml", "--admin-url", url)) == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert cause in shown
    assert "s3cret" not in shown


def test_a_later_value_replaces_an_earlier_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A field of a model may be set after the model was set as a whole, and may be wrong in both ways."""
    file = tmp_path / "plan.yaml"
    options = ["--set", "blue=x", "--set", "blue.metadata_url=zk:zk-1:2181"]
    assert run(["init", "blue-green", *options, "--to", str(file)]) == ExitCode.USAGE
    assert "blue.admin_urls: this field is needed" in capsys.readouterr().err


def test_an_interrupted_question_ends_with_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at a question is an interruption, and no unexpected error; nothing is written."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)

    def interrupt(_: str) -> str:
        raise typer.Abort

    monkeypatch.setattr(typer, "prompt", interrupt)
    assert run(["init", "metadata-store", "--to", str(tmp_path / "plan.yaml")]) == ExitCode.INTERRUPTED
    assert not [*tmp_path.iterdir()]
