"""Secrets stay in the process: not in the environment of its programs, in texts, in core dumps, or with strangers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.leashed_command import run_leashed
from clients.bookkeeper.metadata import DigestType, LedgerMetadata, LedgerState
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.pulsar.wire.access import WireAccess
from clients.stores import Access
from models.child_environment import child_environment
from models.settings import Settings
from process.exit_codes import CommandFailed
from spark.protection import check_protection
from worker.process import run_worker

MARK = "planted-5f3a9c"
SECRET = {"spark.authenticate.secret": MARK}


def test_programs_get_no_settings_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command gets the usual variables, those that the settings name, and its own; nothing else."""
    for name in ("PULSAR_MIGRATE_ADMIN_TOKEN", "TEMPORAL_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, MARK)
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    environment = child_environment({"PULSAR_CLUSTER": "prod"}, further=["WANTED", "ABSENT"])
    written = tmp_path / "environment"
    command = ["sh", "-c", f"cat /proc/self/environ /proc/$PPID/environ > {written}"]
    run_leashed(command, environment, 60, ActivityContext(), lambda: None)
    seen = dict(line.split("=", 1) for line in written.read_text().split("\0") if line)
    assert MARK not in written.read_text()
    assert {"WANTED": "yes", "PULSAR_CLUSTER": "prod", "LC_ALL": "C.UTF-8"}.items() <= seen.items()
    assert seen["PATH"] == os.environ["PATH"]
    assert "ABSENT" not in seen


@pytest.mark.parametrize("name", ["PULSAR_MIGRATE_ADMIN_TOKEN", "TEMPORAL_API_KEY", "A=B", ""])
def test_settings_of_ours_cannot_be_passed_on(name: str) -> None:
    """A name of a setting of ours, or of nothing, keeps a worker from starting."""
    with pytest.raises(ValidationError, match="command_environment"):
        Settings(command_environment=(name,))


def test_texts_show_no_secrets() -> None:
    """Settings, accesses and metadata of ledgers can be shown."""
    settings = Settings(
        hosts="127.0.0.1",
        admin_token=SecretStr(MARK),
        oxia_token=SecretStr(MARK),
        zookeeper_auth=(SecretStr(f"digest:user:{MARK}"),),
        zookeeper_sasl_username="user",
        zookeeper_sasl_password=SecretStr(MARK),
        bookie_sasl_username="user",
        bookie_sasl_password=SecretStr(MARK),
        spark_conf={"spark.authenticate.secret": MARK},
        broker_webhook=f"https://hooks.example/{MARK}",
        broker_webhook_token=SecretStr(MARK),
        broker_stop_command=("stop", MARK),
        broker_start_command=("start", MARK),
    )
    wire = WireAccess.of(AdminAccess(auth=Token(SecretStr(MARK))))
    ledger = LedgerMetadata(1, 1, 1, LedgerState.OPEN, 0, -1, (), DigestType.CRC32C, password=MARK.encode())
    for shown in (settings, Access.from_settings(settings), AdminAccess.from_settings(settings), wire, ledger):
        assert MARK not in f"{shown!r} {shown}", type(shown)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems hide the memory of processes by themselves")
def test_memory_is_protected() -> None:
    """There are no core dumps, also of programs; other processes of the user cannot read memory and environment."""
    program = (
        "import ctypes, os, resource, subprocess\n"
        "from process.memory import protect_memory\n"
        "protect_memory()\n"
        "limit = 'import resource; print(resource.getrlimit(resource.RLIMIT_CORE))'\n"
        "print(ctypes.CDLL(None).prctl(3), resource.getrlimit(resource.RLIMIT_CORE), flush=True)\n"
        f"subprocess.run([{sys.executable!r}, '-c', limit], check=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines() == ["0 (0, 0)", "(0, 0)"]


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "k8s://https://127.0.0.1", "yarn"])
@pytest.mark.parametrize(
    "turned_off", ["spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"]
)
def test_spark_elsewhere_needs_protection(master: str, turned_off: str) -> None:
    """A worker refuses executors that anyone could be, or links that anyone could read, with the line to add."""
    said = rf'add to PULSAR_MIGRATE_SPARK_CONF: {{"{turned_off}": "true"}}'
    with pytest.raises(CommandFailed, match=said) as refused:
        run_worker(Settings(spark_master=master, spark_conf={**SECRET, turned_off: "false"}))
    assert MARK not in str(refused.value)


def test_complete_protection_of_spark() -> None:
    """Executors are authenticated by default, TLS is an encryption too, and a master of Spark's own needs a secret."""
    elsewhere = "k8s://https://127.0.0.1"
    check_protection(Settings(spark_master=elsewhere))
    tls = {"spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": "true"}
    check_protection(Settings(spark_master=elsewhere, spark_conf=tls))
    check_protection(Settings(spark_master="spark://127.0.0.1:7077", spark_conf=SECRET))
    with pytest.raises(ValueError, match=r'SPARK_CONF: {"spark\.authenticate\.secret": "'):
        check_protection(Settings(spark_master="spark://127.0.0.1:7077"))
    check_protection(Settings(spark_master="local[*]", spark_conf={"spark.authenticate": "false"}))


@pytest.mark.parametrize(
    "field", ["admin_token", "oxia_token", "zookeeper_auth", "zookeeper_sasl_password", "bookie_sasl_password"]
)
def test_executors_elsewhere_read_files(field: str) -> None:
    """With other machines each secret is in a file, also those of named sets; the message names the variable."""
    value = (SecretStr(f"digest:{MARK}"),) if field == "zookeeper_auth" else SecretStr(MARK)
    more = {field.replace("password", "username"): "user"} if "sasl" in field else {}
    credentials = {"hosts": "127.0.0.1", field: value, **more}
    elsewhere = {"spark_master": "yarn", "spark_conf": SECRET}
    said = f"{field.upper()} is set, .* set {{}}{field.upper()}_FILE"
    with pytest.raises(ValueError, match=said.format("PULSAR_MIGRATE_")) as refused:
        check_protection(Settings.model_validate({**elsewhere, **credentials}))
    with pytest.raises(ValueError, match=said.format("PULSAR_MIGRATE_CREDENTIALS__GREEN__")):
        check_protection(Settings.model_validate({**elsewhere, "credentials": {"green": credentials}}))
    assert MARK not in str(refused.value)
    files = {"hosts": "127.0.0.1", f"{field}_file": "/secrets/file", **more}
    check_protection(Settings.model_validate({**elsewhere, **files}))
    check_protection(Settings.model_validate(credentials))
