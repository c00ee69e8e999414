"""Workers of two builds side by side, on a real Temporal: who carries out what, and what they make of each other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from models.lifecycle.failures import FailureKind
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase
from models.settings import Settings
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.newer_worker import NewerWorkerProcess
from tests.support.lifecycle.operator import Operator, Run
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_for
from tests.workflows.lifecycle.workers import workers
from worker import catalog
from worker.process import set_current_line
from workflows.lifecycle.continuation import HISTORY_LIMIT

pytestmark = pytest.mark.exhaustive

DEPLOYMENT = "migrations"
WORKFLOW = "MetadataStoreMigration"
RECORDS = 200

StartPair = Callable[[str], MetadataStoreInput]


@pytest.fixture(scope="module")
def temporal(make_stack: MakeStack) -> Stack:
    """Temporal alone."""
    return make_stack(StackSpec(temporal=True))


@pytest.fixture(scope="module")
def operator(temporal: Stack) -> Iterator[Operator]:
    """Starts and steers migrations."""
    with Operator(temporal.temporal_address) as operator:
        yield operator


@pytest.fixture
def start_pair(make_stack: MakeStack) -> StartPair:
    """Makes two stores for a cluster; the input of their migration."""

    def start(cluster: str) -> MetadataStoreInput:
        stack = make_stack(StackSpec(zookeepers=1, oxias=1, cluster=cluster))
        with stores.kazoo(stack.zk_url) as source:
            for number in range(RECORDS):
                source.create(f"/records/{number}", b"x" * 100, makepath=True)
        return MetadataStoreInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": cluster,
                "accept": stores.OTHER_ROOTS,
                "source": stack.zk_url,
                "target": stack.oxia_url,
                "validation_window": "PT24H",
                "allow_no_brokers": True,
            }
        )

    return start


def test_a_migration_stays_on_its_build(
    temporal: Stack, operator: Operator, start_pair: StartPair, toolchain: Toolchain, tmp_path: Path
) -> None:
    """A migration continues, over several runs, on the build that began it, while new ones begin on the newer build.

    One whose build is gone waits, and continues where the operator moves it.
    """
    first, second, third = (start_pair(cluster) for cluster in ("first", "second", "third"))
    with (
        WorkerProcess(
            temporal.temporal_address,
            _folder(tmp_path, "old"),
            PULSAR_MIGRATE_DEPLOYMENT_NAME=DEPLOYMENT,
            PULSAR_MIGRATE_BUILD_ID="1.0",
        ) as old,
        NewerWorkerProcess(
            temporal.temporal_address,
            _folder(tmp_path, "new"),
            PULSAR_MIGRATE_DEPLOYMENT_NAME=DEPLOYMENT,
            PULSAR_MIGRATE_BUILD_ID="2.0",
        ) as new,
    ):
        _set_current(temporal, toolchain, "1.0")
        began = _start(operator, first, history_limit=20)
        began.wait_for_phase(Phase.PRE_COPY)
        began.steer(Verb.PAUSE)
        rerun = _start(operator, third)
        rerun.wait_for_phase(Phase.VALIDATION)

        _set_current(temporal, toolchain, "2.0")
        later = _start(operator, second)
        later.wait_for_phase(Phase.VALIDATION)
        began.steer(Verb.RESUME)
        began.wait_for_phase(Phase.VALIDATION)
        for run in (began, later):
            run.steer(Verb.PROCEED)
            assert run.result().outcome is Outcome.DONE

        runs = _histories(operator, first.workflow_id)
        assert len(runs) > 1
        assert _builds(runs) == {"1.0"}
        assert _builds(_histories(operator, second.workflow_id)) == {"2.0"}
        assert _processes(runs) == {old.pid}
        assert _processes(_histories(operator, second.workflow_id)) == {new.pid}

        old.stop()
        rerun.signal(Verb.PROCEED)
        _temporal(temporal, toolchain, *_move_line(third.workflow_id, "2.0"))
        assert rerun.result().outcome is Outcome.DONE
        assert _builds(_histories(operator, third.workflow_id)) == {"1.0", "2.0"}


def test_answers_of_a_newer_build_are_read(
    temporal: Stack, operator: Operator, start_pair: StartPair, tmp_path: Path
) -> None:
    """A workflow of this build takes every answer of a newer build's activities, and drops what it does not know."""
    input = start_pair("grown").model_copy(update={"validation_window": timedelta(0)})
    with (
        NewerWorkerProcess(
            temporal.temporal_address, tmp_path, activities_only=True, PULSAR_MIGRATE_TASK_QUEUE="grown"
        ),
        _workflows_only(operator, "grown"),
    ):
        run = _start(operator, input, queue="grown")
        report = run.result()
    assert report.outcome is Outcome.DONE
    assert "added_by_a_newer_build" in _answers(operator, input.workflow_id)
    assert "added_by_a_newer_build" not in report.model_dump_json()


def test_an_answer_that_cannot_be_read_is_undone(
    temporal: Stack, operator: Operator, start_pair: StartPair, tmp_path: Path
) -> None:
    """A changed result format, while writes are blocked, causes a rollback: flag FAILED, target empty."""
    input = start_pair("changed")
    with (
        NewerWorkerProcess(
            temporal.temporal_address,
            tmp_path,
            activities_only=True,
            changed="metadata_store_verify",
            PULSAR_MIGRATE_TASK_QUEUE="changed",
        ),
        _workflows_only(operator, "changed"),
    ):
        failure = _start(operator, input, queue="changed").failure()
    assert failure.type == FailureKind.UNEXPECTED
    assert "metadata_store_verify cannot be read" in failure.message
    flag = json.loads(stores.read_zookeeper(input.source, without_coordinator=False)[stores.FLAG].value or b"{}")
    assert flag["phase"] == "FAILED"
    assert stores.read_oxia(input.target) == {}


# Temporal ---------------------------------------------------------------------------------------------------------


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def _temporal(stack: Stack, toolchain: Toolchain, *arguments: str) -> None:
    line = [str(toolchain.temporal), *arguments, "--address", stack.temporal_address]
    subprocess.run(line, check=True, capture_output=True, text=True, timeout=60)


def _set_current(stack: Stack, toolchain: Toolchain, build_id: str) -> None:
    """Set the current build as the worker's log and the documentation say."""
    settings = Settings(deployment_name=DEPLOYMENT, build_id=build_id)
    program, *arguments = set_current_line(settings, "default").split()
    assert program == "temporal"
    wait_for("the deployment to know the build", lambda: _tried(stack, toolchain, arguments), 30)


def _tried(stack: Stack, toolchain: Toolchain, arguments: list[str]) -> bool:
    try:
        _temporal(stack, toolchain, *arguments)
    except subprocess.CalledProcessError as error:
        # Temporal learns of a build with the first poll of its workers.
        if "not found" in error.stderr:
            return False
        raise
    return True


def _move_line(workflow_id: str, build_id: str) -> list[str]:
    return [
        *("workflow", "update-options", "--workflow-id", workflow_id),
        *("--versioning-override-behavior", "pinned"),
        *("--versioning-override-deployment-name", DEPLOYMENT, "--versioning-override-build-id", build_id),
    ]


def _start(operator: Operator, input: MetadataStoreInput, *, queue: str = "", history_limit: int = 0) -> Run:
    start = operator.client.start_workflow(
        WORKFLOW,
        input,
        id=input.workflow_id,
        task_queue=queue or Settings().task_queue,
        memo={HISTORY_LIMIT: history_limit},
        result_type=Report,
    )
    return Run(operator, operator.wait(start, 30))


@contextmanager
def _workflows_only(operator: Operator, queue: str) -> Generator[None]:
    """Run this build's workflows in this process."""
    opened = AsyncExitStack()
    options = {"task_queue": queue, "workflows": catalog.workflows()}
    operator.wait(opened.enter_async_context(workers(operator.client, options)), 30)
    try:
        yield
    finally:
        operator.wait(opened.aclose(), 30)


# Histories --------------------------------------------------------------------------------------------------------


def _histories(operator: Operator, workflow_id: str) -> list[list[HistoryEvent]]:
    """Return the events of all runs of a workflow, the last run first."""

    async def fetch() -> list[list[HistoryEvent]]:
        runs: list[list[HistoryEvent]] = []
        run_id: str | None = None
        while True:
            handle = operator.client.get_workflow_handle(workflow_id, run_id=run_id)
            runs.append(list((await handle.fetch_history()).events))
            run_id = runs[-1][0].workflow_execution_started_event_attributes.continued_execution_run_id
            if not run_id:
                return runs

    return operator.wait(fetch(), 30)


def _builds(runs: list[list[HistoryEvent]]) -> set[str]:
    """Return the builds that carried out the workflow's tasks."""
    kind = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    done = [event.workflow_task_completed_event_attributes for run in runs for event in run if event.event_type == kind]
    return {task.deployment_version.build_id for task in done}


def _processes(runs: list[list[HistoryEvent]]) -> set[int]:
    """Return the processes that carried out its activities."""
    kind = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    begun = [event.activity_task_started_event_attributes for run in runs for event in run if event.event_type == kind]
    return {int(task.identity.partition("@")[0]) for task in begun}


def _answers(operator: Operator, workflow_id: str) -> str:
    """Return the results of the activities, as text."""
    kind = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    runs = _histories(operator, workflow_id)
    done = [event.activity_task_completed_event_attributes for run in runs for event in run if event.event_type == kind]
    return " ".join(payload.data.decode() for task in done for payload in task.result.payloads)
