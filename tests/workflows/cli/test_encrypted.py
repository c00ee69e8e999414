"""The command line, a worker and the `temporal` CLI with encrypted payloads, against a real Temporal server."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ApplicationError

from cli.commands.history import replay
from models.lifecycle.failures import FailureKind
from models.lifecycle.names import TASK_QUEUE
from page.snapshot import RunReading, SnapshotReader
from pulsar_devstack.servers.provision import Toolchain
from temporal.codec import PayloadSettings, codec_of
from temporal.converter import DATA_CONVERTER, EncodedFailures
from tests.support.lifecycle.keys import key_line
from tests.workflows.cli.test_cli import Shell, SmallMigration, shell, small_worker
from views.listing import list_migrations

__all__ = ["shell"]

SECRET_HOST = "planted-4711.example.com"
SOURCE, TARGET = f"zk:{SECRET_HOST}:2181", "oxia://oxia:6648"
PLAN = ("--source", SOURCE, "--target", TARGET)


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of keys for all processes."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(key_line("2030-01"))
    return file


async def encrypted(address: str, keys_file: Path, *, read_plain: bool = False) -> Client:
    """Return a client as a worker with these settings has it."""
    codec = codec_of(PayloadSettings(keys_file=str(keys_file), read_plain=read_plain))
    converter = replace(DATA_CONVERTER, payload_codec=codec, failure_converter_class=EncodedFailures)
    return await Client.connect(address, data_converter=converter)


@asynccontextmanager
async def codec_server(shell: Shell, keys_file: Path) -> AsyncGenerator[str]:
    """Run a codec server; gives its address."""
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file), "PULSAR_MIGRATE_CODEC_SERVER_PORT": "0"}
    process = await shell.start("codec-server", **variables)
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert line.startswith("codec server ready: "), line
        yield line.split()[-1]
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), 30)


async def temporal_cli(toolchain: Toolchain, shell: Shell, *arguments: str) -> str:
    """Run the `temporal` CLI; returns its output."""
    line = (str(toolchain.temporal), *arguments, "--address", shell.address)
    process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, (line, out)
    return out.decode()


async def test_nothing_of_the_input_is_readable(
    shell: Shell, keys_file: Path, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No payload, failure or summary of a history shows the input; the codec server shows it to the `temporal` CLI.

    A replay needs the keys, and works with them.
    """
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file)}
    client = await encrypted(shell.address, keys_file)
    workflow_id = "metadata-store/sealed"
    async with small_worker(client):
        started = await shell("start", "metadata-store", "--cluster", "sealed", *PLAN, **variables)
        assert started.code == 0, started.err
        await shell.until_taken(workflow_id)
        proceeded = await shell("proceed", workflow_id, "--reason", SECRET_HOST, **variables)
        assert proceeded.code == 0, proceeded.err
        report = await shell("report", workflow_id, "-o", "json", **variables)
        async with asyncio.timeout(60):
            await client.get_workflow_handle(workflow_id).result()
        report = await shell("report", workflow_id, "-o", "json", **variables)
        assert (report.code, report.json["figures"]) == (0, {"copied_records": 3}), report.err
        assert any(f"proceed ({SECRET_HOST})" in note for note in report.json["notes"])

        plain = await shell("report", workflow_id)
        assert plain.code != 0
    saved = tmp_path / "history.json"
    assert (await shell("history", workflow_id, "--to", str(saved), **variables)).code == 0
    assert SECRET_HOST not in decoded_text(json.loads(read(saved)))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert await asyncio.to_thread(replay, [saved], [SmallMigration]) == {saved: ""}
    monkeypatch.undo()
    (fault,) = (await asyncio.to_thread(replay, [saved], [SmallMigration])).values()
    assert "Failed decoding arguments" in fault

    shown = ("workflow", "show", "--workflow-id", workflow_id, "--output", "json")
    assert SECRET_HOST not in decoded_text(json.loads(await temporal_cli(toolchain, shell, *shown)))
    async with codec_server(shell, keys_file) as address:
        history = await temporal_cli(toolchain, shell, *shown, "--codec-endpoint", address)
    assert SECRET_HOST in decoded_text(json.loads(history))


async def test_failures_of_steps_are_not_readable(shell: Shell, keys_file: Path) -> None:
    """The message of a failed migration is encrypted, and the command line shows it."""
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file)}
    client = await encrypted(shell.address, keys_file)
    async with small_worker(client):
        started = await shell("start", "metadata-store", "--cluster", "fails-Conflict", *PLAN, "--wait", **variables)
        assert "it went wrong" in started.out, (started.out, started.err)
        handle = client.get_workflow_handle("metadata-store/fails-Conflict")
        assert "it went wrong" not in (await handle.fetch_history()).to_json()
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.message == "it went wrong"


async def test_signals_of_other_keys_are_dropped(shell: Shell, keys_file: Path, tmp_path: Path) -> None:
    """A signal that no key decrypts does not stop a workflow: it is dropped, and the next verb is taken."""
    client = await encrypted(shell.address, keys_file)
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file)}
    workflow_id = "metadata-store/other-keys"
    async with small_worker(client):
        assert (await shell("start", "metadata-store", "--cluster", "other-keys", *PLAN, **variables)).code == 0
        await shell.until_taken(workflow_id)
        for key_id in ("2030-01", "unknown"):
            other = tmp_path / key_id
            write(other, key_line(key_id))
            stranger = await encrypted(shell.address, other)
            await stranger.get_workflow_handle(workflow_id).signal("proceed", "of another key")
        proceeded = await shell("proceed", workflow_id, "--reason", "OPS-1", **variables)
        assert proceeded.code == 0, proceeded.err
        async with asyncio.timeout(60):
            report = await client.get_workflow_handle(workflow_id).result()
    assert "OPS-1" in str(report["notes"])
    assert "of another key" not in str(report["notes"])


async def test_a_migration_whose_key_is_lost_hides_no_other_one(shell: Shell, keys_file: Path, tmp_path: Path) -> None:
    """The list names it with the reason, and the metrics have it; its status says which key is missing."""
    lost = tmp_path / "lost"
    write(lost, key_line("lost"))
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(lost)}
    workflow_id = "metadata-store/flaky"
    async with small_worker(await encrypted(shell.address, lost)):
        assert (await shell("start", "metadata-store", "--cluster", "flaky", *PLAN, **variables)).code == 0
        await shell.until_taken(workflow_id)
        async with asyncio.timeout(60):
            while "the store is down" not in (await shell("status", workflow_id, **variables)).out:
                pass
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file)}
    assert (await shell("start", "metadata-store", "--cluster", "found", *PLAN, **variables)).code == 0
    silences: dict[str, str] = {}
    async with asyncio.timeout(60):
        # Visibility lags.
        while "metadata-store/found" not in silences:
            listed = await shell("list", "--running", "-o", "json", **variables)
            assert listed.code == 0, listed.err
            silences = {each["workflow_id"]: each["silence"] for each in listed.json}
    assert "encrypted with the key 'lost'" in silences[workflow_id]
    assert "no worker" in silences["metadata-store/found"]
    snapshot = await SnapshotReader(await encrypted(shell.address, keys_file), TASK_QUEUE).read()
    runs = {run.subject.workflow_id: run for run in snapshot.running}
    assert [step.failure for step in runs[workflow_id].steps] == [FailureKind.UNREACHABLE]
    assert "metadata-store/found" in runs
    refused = await shell("status", workflow_id, **variables)
    assert (refused.code, "encrypted with the key 'lost'" in refused.err) == (2, True)
    for begun in runs:
        await shell.client.get_workflow_handle(begun).terminate()


class Unplugged(PayloadCodec):
    """A codec of an operator whose key server does not answer."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raise."""
        raise LookupError("no key server")

    decode = encode


async def test_a_process_without_the_codec_shows_what_temporal_knows(shell: Shell, keys_file: Path) -> None:
    """The list and the metrics of a process that decrypts nothing have each migration, with the reason."""
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file)}
    workflow_id = "metadata-store/flaky-sealed"
    unplugged = replace(DATA_CONVERTER, payload_codec=Unplugged(), failure_converter_class=EncodedFailures)
    readers = {
        "a payload has the encoding 'binary/encrypted', which this process cannot read": shell.client,
        "LookupError: no key server": await Client.connect(shell.address, data_converter=unplugged),
    }
    async with small_worker(await encrypted(shell.address, keys_file)):
        started = await shell("start", "metadata-store", "--cluster", "flaky-sealed", *PLAN, **variables)
        assert started.code == 0, started.err
        await shell.until_taken(workflow_id)
        for problem, client in readers.items():
            (run,) = await listed_runs(client, workflow_id)
            assert run.problem.startswith(problem)
            assert (run.status, run.phase) == (None, "WORK")
            migrations = await list_migrations(client, ended=True, limit=None)
            (silence,) = [each.silence for each in migrations if each.workflow_id == workflow_id]
            assert problem.rpartition(": ")[2] in silence
        listed = await shell("list", "--running", "-o", "json")
        assert listed.code == 0, listed.err
        (silence,) = [each["silence"] for each in listed.json if each["workflow_id"] == workflow_id]
        assert "binary/encrypted" in silence
    await shell.client.get_workflow_handle(workflow_id).terminate()


async def listed_runs(client: Client, workflow_id: str) -> list[RunReading]:
    """Return a running workflow as the metrics have it, once Temporal lists it."""
    async with asyncio.timeout(60):
        while True:
            snapshot = await SnapshotReader(client, TASK_QUEUE).read()
            if runs := [run for run in snapshot.running if run.subject.workflow_id == workflow_id and run.phase]:
                return runs
            await asyncio.sleep(0.2)


async def test_clients_without_the_key_change_nothing(shell: Shell, keys_file: Path) -> None:
    """A start without encryption fails at once; a signal is dropped and an update refused, and the run continues."""
    client = await encrypted(shell.address, keys_file)
    variables = {"PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file)}
    async with small_worker(client):
        begun = await shell.client.start_workflow(
            "MetadataStoreMigration",
            {"cluster": "plain", "source": SOURCE, "target": TARGET},
            id="metadata-store/plain",
            task_queue=TASK_QUEUE,
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(begun.id).result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == FailureKind.INVALID_INPUT
        assert "a payload is not encrypted" in failed.value.cause.message

        assert (await shell("start", "metadata-store", "--cluster", "steered", *PLAN, **variables)).code == 0
        await shell.until_taken("metadata-store/steered")
        plain = shell.client.get_workflow_handle("metadata-store/steered")
        await plain.signal("proceed", "a plain reason")
        refused = await shell("pause", plain.id)
        assert refused.code != 0
        status = await shell("status", plain.id, "-o", "json", **variables)
        assert (status.json["execution"], status.json["status"]["paused"]) == ("RUNNING", False), status.err
        proceeded = await shell("proceed", plain.id, **variables)
        assert proceeded.code == 0, proceeded.err


async def test_older_migrations_continue_after_the_change(shell: Shell, keys_file: Path) -> None:
    """A migration that started without encryption ends on a worker that has keys and reads plain payloads."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("older")
    variables = {
        "PULSAR_MIGRATE_PAYLOAD_KEYS_FILE": str(keys_file),
        "PULSAR_MIGRATE_PAYLOAD_READ_PLAIN": "true",
    }
    async with small_worker(await encrypted(shell.address, keys_file, read_plain=True)):
        # Temporal gives the new worker tasks a little later.
        await shell.status_with(workflow_id, lambda view: view["status"]["waiting"], **variables)
        proceeded = await shell("proceed", workflow_id, **variables)
        assert proceeded.code == 0, proceeded.err
        report = await shell("status", workflow_id, "--watch", **variables)
        assert report.code == 0, report.err


def read(file: Path) -> str:
    """Return the contents of a file."""
    return file.read_text()


def write(file: Path, text: str) -> None:
    """Write a file."""
    file.write_text(text)


def decoded_text(value: Any) -> str:
    """Return all texts of a history's JSON, and those that are Base64 decoded too."""
    texts: list[str] = []
    parts: list[Any] = [value]
    while parts:
        nested = parts.pop()
        if isinstance(nested, dict):
            parts.extend(cast("dict[str, Any]", nested).values())
        elif isinstance(nested, list):
            parts.extend(cast("list[Any]", nested))
        elif isinstance(nested, str):
            texts.append(nested)
            with suppress(binascii.Error):
                texts.append(base64.b64decode(nested, validate=True).decode(errors="replace"))
    return "\n".join(texts)
