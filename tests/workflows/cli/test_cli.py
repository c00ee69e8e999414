"""The command line against a real Temporal server, with a small migration in place of the real one."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.operatorservice.v1 import RemoveSearchAttributesRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.lifecycle.runtime import Runtime
from activities.lifecycle.step import async_step
from activities.metadata_store.context import MetadataStoreTask
from cli.commands.history import replay
from cli.commands.status import watch
from cli.options import Form
from models.lifecycle.execution import Execution
from models.lifecycle.failures import FailureKind
from models.lifecycle.names import SEARCH_ATTRIBUTES, TASK_QUEUE
from models.lifecycle.policy import PhasePolicy, VerbState
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, Undo
from models.metadata_store.input import KIND, MetadataStoreInput
from models.metadata_store.state import MetadataStoreState
from process.exit_codes import CommandFailed, ExitCode
from pulsar_devstack.servers.stack import StackSpec
from temporal.converter import DATA_CONVERTER
from temporal.search_attributes import register_search_attributes
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.workers import workers
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import Migration

# A worker asks again after 70 s where the server lost its request for tasks.
LIMIT = 150.0
OPEN = PhasePolicy(
    undo=Undo.FREE, undo_cost="nothing was changed", no_pause="too short", no_cleanup="", gate="the window ends"
)
PLAN = ("--source", "zk:zk:2181", "--target", "oxia://oxia:6648")

released = asyncio.Event()


@async_step(MetadataStoreTask)
async def fetch(runtime: Runtime, execution: Execution[MetadataStoreInput]) -> int:
    """Fail until the test lets it succeed."""
    del runtime, execution
    if not released.is_set():
        raise ApplicationError("the store is down", "zk:zk:2181", type=FailureKind.UNREACHABLE)
    return activity.info().attempt


@workflow.defn(name="MetadataStoreMigration", sandboxed=False)
class SmallMigration(Migration[MetadataStoreInput, MetadataStoreState]):
    """Does what the name of the cluster says."""

    @workflow.init
    def __init__(self, input: MetadataStoreInput) -> None:
        state = MetadataStoreState(verbs=VerbState(policy=OPEN))
        policies: dict[str, PhasePolicy] = {"WORK": OPEN, "FINISH": OPEN}
        super().__init__(
            input, state, kind=KIND, target=input.target, first="WORK", policies=policies, after_cutover=Undo.NONE
        )

    @workflow.run
    async def run(self, input: MetadataStoreInput) -> Report[Any, Any]:
        """Run one phase."""
        return await self.execute(lambda: self._work(input))

    async def _work(self, input: MetadataStoreInput) -> Report[Any, Any]:
        if input.dry_run:
            self.state.figures.blockers = 1
            return self.report(Outcome.PLANNED, "not ready: [SOURCE] it is gone")
        if input.cluster.startswith("fails-"):
            raise ApplicationError("it went wrong", type=input.cluster.removeprefix("fails-"), non_retryable=True)
        if input.cluster == "flaky":
            await self.phases.run("WORK", lambda: self.activities.run(fetch, Call("Fetch")))
        else:
            await self.phases.run("WORK", lambda: self.timers.window("trial", timedelta(hours=24)))
        await self.phases.run("FINISH", self._finish)
        return self.report(Outcome.DONE, "it is done")

    async def _finish(self) -> None:
        self.state.figures.copied_records = 3


@dataclass
class Answer:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The printed text, parsed as JSON."""
        return json.loads(self.out)


@dataclass
class Shell:
    """Runs commands against one Temporal server."""

    address: str
    client: Client

    async def start(self, *arguments: str, **variables: str) -> asyncio.subprocess.Process:
        """Start `pulsar-migrate` with the arguments."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "PULSAR_"))}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pulsar_migrate",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**ours, "TEMPORAL_ADDRESS": self.address, **variables},
            cwd=Path(__file__).parents[3],
        )

    async def __call__(self, *arguments: str, **variables: str) -> Answer:
        """Run `pulsar-migrate` to its end."""
        process = await self.start(*arguments, **variables)
        out, err = await asyncio.wait_for(process.communicate(), LIMIT)
        return Answer(process.returncode or 0, out.decode(), err.decode())

    async def begin(self, cluster: str, *more: str) -> str:
        """Start the small migration and return its id."""
        answer = await self("start", "metadata-store", "--cluster", cluster, *PLAN, *more)
        assert answer.code == 0, answer.err
        return f"metadata-store/{cluster}"

    async def begin_with_worker(self, cluster: str, *more: str) -> str:
        """Start it with a worker; return its id once the worker has taken the first task and loaded the workflow."""
        workflow_id = await self.begin(cluster, *more)
        await self.until_taken(workflow_id)
        return workflow_id

    async def until_taken(self, workflow_id: str) -> None:
        """Wait until a worker has taken the first task of a workflow."""
        seen: list[str] = []
        try:
            async with asyncio.timeout(LIMIT):
                events = self.client.get_workflow_handle(workflow_id).fetch_history_events(wait_new_event=True)
                async for event in events:
                    seen.append(f"{event.event_time.ToDatetime():%X} {EventType.Name(event.event_type)}")
                    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                        break
        except TimeoutError as expired:
            expired.add_note("\n".join([f"the history of {workflow_id}:", *seen]))
            raise

    async def status_with(self, workflow_id: str, wanted: Callable[[Any], bool], **variables: str) -> Any:
        """Ask for the status until it is as wanted; the worker may take long to answer the first time."""
        async with asyncio.timeout(LIMIT):
            while True:
                status = (await self("status", workflow_id, "-o", "json", **variables)).json
                if status["status"] and wanted(status):
                    return status


STEP = fetch.bind(cast("Runtime", None))
"""The step of the small migration, for a worker."""


@asynccontextmanager
async def small_worker(client: Client) -> AsyncGenerator[None]:
    """Run a worker for the small migration."""
    released.clear()
    options: dict[str, Any] = {
        "task_queue": TASK_QUEUE,
        "workflows": [SmallMigration],
        "activities": [STEP],
    }
    async with workers(client, options):
        yield


@pytest.fixture(scope="module")
async def shell(make_stack: MakeStack) -> Shell:
    """Commands against a fresh Temporal server."""
    stack = await asyncio.to_thread(make_stack, StackSpec(temporal=True))
    client = await Client.connect(stack.temporal_address, data_converter=DATA_CONVERTER)
    return Shell(stack.temporal_address, client)


async def test_start_status_and_proceed(shell: Shell) -> None:
    """A started migration shows its phase, and `proceed` completes it."""
    async with small_worker(shell.client):
        started = await shell("start", "metadata-store", "--cluster", "happy", *PLAN, "-o", "json")
        assert started.code == 0, started.err
        assert started.json["workflow_id"] == "metadata-store/happy"
        line = shlex.split(started.err)
        assert line[:3] == ["temporal", "workflow", "start"]
        assert json.loads(line[-1]) == {
            "cluster": "happy",
            "source": "zk:zk:2181",
            "target": "oxia://oxia:6648/default",
        }

        view = await shell.status_with("metadata-store/happy", lambda view: view["status"]["waiting"])
        assert (view["execution"], view["status"]["phase"]) == ("RUNNING", "WORK")
        assert view["status"]["waiting"]["kind"] == "window"
        assert "proceed" in view["status"]["legal_verbs"]
        early = await shell("report", "metadata-store/happy")
        assert (early.code, "still runs" in early.err) == (5, True)

        verdict = await shell("proceed", "metadata-store/happy", "--reason", "all is well", "-o", "json")
        assert (verdict.code, verdict.json["accepted"]) == (0, True)
        ended = await shell("status", "metadata-store/happy", "--watch")
        assert ended.code == 0, ended.err
        assert "result     done: it is done" in ended.out
        report = await shell("report", "metadata-store/happy", "-o", "json")
        assert (report.code, report.json["figures"]) == (0, {"copied_records": 3})
        assert any("proceed (all is well)" in note for note in report.json["notes"])


async def test_migrations_are_found_by_their_attributes(shell: Shell) -> None:
    """The search attributes of a started migration name its kind and target."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("found")
        query = "MigrationKind = 'metadata-store' AND MigrationTarget = 'oxia://oxia:6648/default'"
        async with asyncio.timeout(LIMIT):
            while workflow_id not in [execution.id async for execution in shell.client.list_workflows(query)]:  # noqa: ASYNC110 - visibility announces nothing
                await asyncio.sleep(0.2)
        assert (await shell("proceed", workflow_id)).code == 0


async def test_refused_verbs(shell: Shell) -> None:
    """A verb that is not legal is refused with the reason and the legal verbs, and exit code 5."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("refused")
        answer = await shell("pause", workflow_id, "-o", "json")
        assert answer.code == 5
        assert "pause refused: too short. Legal now: rollback, cleanup, proceed" in answer.err
        assert (answer.json["accepted"], answer.json["legal"]) == (False, ["rollback", "cleanup", "proceed"])
        assert "Traceback" not in answer.err
        assert (await shell("throttle", workflow_id, "5")).code == 5

        assert (await shell("rollback", workflow_id)).code == 0
        ended = await shell("status", workflow_id, "--watch", "-o", "json")
        assert ended.code == 8
        assert json.loads(ended.out.splitlines()[-1])["report"]["outcome"] == "rolled back"
        late = await shell("rollback", workflow_id)
        assert (late.code, f"{workflow_id} has ended (COMPLETED)" in late.err) == (5, True)


async def test_window(shell: Shell) -> None:
    """`window` moves the end of the window that is open: to now, it ends the migration."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("window")
        moved = await shell("window", workflow_id, "48h", "-o", "json")
        assert moved.code == 0, moved.err
        view = await shell.status_with(workflow_id, lambda view: view["status"]["deadlines"])
        assert view["status"]["deadlines"]["window"][:19] == moved.json["window_ends"][:19]
        assert (await shell("window", workflow_id, "0s")).code == 0
        assert (await shell("status", workflow_id, "--watch")).code == 0


async def test_conflict(shell: Shell) -> None:
    """A second start of the same migration is refused with exit code 6; the first continues."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("twice")
        second = await shell("start", "metadata-store", "--cluster", "twice", *PLAN)
        assert (second.code, "metadata-store/twice is running already" in second.err) == (6, True)
        assert (await shell("proceed", workflow_id)).code == 0


@pytest.mark.parametrize(
    ("kind", "code"),
    [(FailureKind.VERIFICATION_FAILED, 4), (FailureKind.CONFLICT, 6), (FailureKind.DENIED, 8)],
)
async def test_failures_end_a_wait(kind: FailureKind, code: int, shell: Shell) -> None:
    """`start --wait` ends with the code of the migration's failure, and tells its cause."""
    async with small_worker(shell.client):
        answer = await shell("start", "metadata-store", "--cluster", f"fails-{kind}", *PLAN, "--wait")
        assert answer.code == code
        assert f"failed     {kind}: it went wrong" in answer.out


async def test_dry_run_with_blockers(shell: Shell) -> None:
    """A dry run that finds blockers ends with exit code 3."""
    async with small_worker(shell.client):
        answer = await shell("start", "metadata-store", "--cluster", "dry", *PLAN, "--dry-run", "--wait")
        assert (answer.code, "[SOURCE] it is gone" in answer.out) == (3, True)


async def test_status_shows_a_retried_step(shell: Shell) -> None:
    """Status shows the attempt and the last failure of a step that is tried again and again."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("flaky")
        view = await shell.status_with(workflow_id, lambda view: view["steps"] and view["steps"][0]["attempt"] > 1)
        assert view["steps"][0]["name"] == fetch.name
        assert "the store is down" in view["steps"][0]["last_failure"]
        text = await shell("status", workflow_id)
        assert "last failure: the store is down" in text.out
        released.set()
        assert (await shell("status", workflow_id, "--watch")).code == 0


@pytest.mark.exhaustive
async def test_no_worker(shell: Shell) -> None:
    """Without a worker, status tells what Temporal knows and who is missing, with exit code 7."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin("lonely")
        await shell.status_with(workflow_id, lambda view: view["status"]["waiting"])
    answer = await shell("status", workflow_id, "-o", "json")
    assert (answer.code, answer.json["execution"], answer.json["phase"]) == (7, "RUNNING", "WORK")
    assert f"no worker on the queue {TASK_QUEUE} answers" in answer.json["silence"]
    refused = await shell("proceed", workflow_id)
    assert (refused.code, "no worker accepted steer" in refused.err) == (7, True)


async def test_a_wait_without_a_worker_ends(shell: Shell) -> None:
    """Following a start to its end says that no worker answers, and ends with exit code 7."""
    workflow_id = await shell.begin("unattended")
    with pytest.raises(CommandFailed, match=f"is started, but no worker on the queue {TASK_QUEUE} answers") as ended:
        await watch(shell.client, workflow_id, Form.TEXT, first_answer=timedelta(seconds=0.1))
    assert (ended.value.code, ended.value.cure) == (ExitCode.UNREACHABLE, "start one: pulsar-migrate worker")
    await shell.client.get_workflow_handle(workflow_id).terminate()


async def test_unreachable() -> None:
    """Without a server every command ends at once with exit code 7 and one line that says what to do."""
    nowhere = Shell("127.0.0.1:1", client=None)  # pyright: ignore[reportArgumentType] - there is nothing to connect to
    for arguments in (["report", "metadata-store/any"], ["worker"]):
        answer = await nowhere(*arguments)
        assert (answer.code, answer.out) == (7, "")
        assert answer.err.startswith("error: no connection to Temporal at 127.0.0.1:1: Connection refused. cure: ")
        assert answer.err.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_worker_process(number: signal.Signals, code: int, shell: Shell, tmp_path: Path) -> None:
    """A worker says when it is ready, and ends on a signal with that signal's code and without its ready file."""
    ready = tmp_path / "ready"
    variables = {"PULSAR_MIGRATE_METRICS_ADDRESS": "", "PULSAR_MIGRATE_TASK_QUEUE": f"queue-{code}"}
    process = await shell.start("worker", "--ready-file", str(ready), **variables)
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), LIMIT)).decode()
        assert line.startswith(f"worker ready: queue=queue-{code} temporal={shell.address}/default spark=local[*] (")
        assert ready.read_text() == line
        process.send_signal(number)
        out, err = await asyncio.wait_for(process.communicate(), LIMIT)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, out) == (code, b""), err.decode()
    assert not ready.exists()


async def test_metrics_address_taken(shell: Shell) -> None:
    """A metrics address that is taken is a usage error that names the setting."""
    answer = await shell("worker", PULSAR_MIGRATE_METRICS_ADDRESS=shell.address)
    assert (answer.code, "set PULSAR_MIGRATE_METRICS_ADDRESS" in answer.err) == (2, True)


async def test_unknown_ids(shell: Shell) -> None:
    """A workflow that does not exist is a usage error, for looking and for steering."""
    for command in ("status", "report", "rollback", "history"):
        answer = await shell(command, "metadata-store/unknown")
        assert answer.code == 2, answer.err
        assert "error: " in answer.err
        assert "Traceback" not in answer.err


async def test_history_replays(shell: Shell, tmp_path: Path) -> None:
    """A saved history replays with the code that made it, and is refused by code that takes other steps."""
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("replayed")
        assert (await shell("proceed", workflow_id)).code == 0
        assert (await shell("status", workflow_id, "--watch")).code == 0
        file = tmp_path / "replayed.json"
        assert (await shell("history", workflow_id, "--to", str(file))).code == 0
    assert await asyncio.to_thread(replay, [file], [SmallMigration]) == {file: ""}
    answer = await shell("replay", str(file), "-o", "json")
    assert (answer.code, answer.json[str(file)]["replays"]) == (4, False)
    assert "nondeterminism" in answer.json[str(file)]["fault"].lower()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"events": []}', '{"events": [{"eventId": "1"}]}', '{"events": 3}'])
async def test_no_history(text: str, tmp_path: Path) -> None:
    """A file without a history is a usage error, before anything is replayed."""
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(CommandFailed, match="is not a history") as failure:
        replay([file], [SmallMigration])
    assert failure.value.code is ExitCode.USAGE


async def test_registration(shell: Shell) -> None:
    """Missing search attributes are registered once; a second registration finds nothing to do."""
    await register_search_attributes(shell.client)
    await shell.client.operator_service.remove_search_attributes(
        RemoveSearchAttributesRequest(namespace=shell.client.namespace, search_attributes=SEARCH_ATTRIBUTES[:1])
    )
    assert (await register_search_attributes(shell.client)).added == SEARCH_ATTRIBUTES[:1]
    registration = await register_search_attributes(shell.client)
    assert (registration.added, registration.missing, registration.warning) == ((), (), "")
