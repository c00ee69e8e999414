"""The gateway before real controllers on Temporal's dev server: their steps are doubled, and nothing else is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import httpx
import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.workflow import UnfinishedUpdateHandlersWarning

from gateway.access.authenticator import Authenticator
from gateway.api.app import build_app
from gateway.controllers import Controllers
from gateway.settings import GatewaySettings
from models.lifecycle.failures import FailureKind
from models.lifecycle.names import MAX_ID_BYTES, TASK_QUEUE
from models.scalable_topic.input import ScalableTopicInput
from models.segments.layout import SegmentLayout
from models.topic_controller.admission import MAX_CONSUMERS_OF_SUBSCRIPTION
from models.topic_controller.input import controller_id
from models.topic_controller.sessions import MAX_CONSUMERS_PER_UPDATE, Registrations
from models.topic_controller.state import ControllerStatus
from temporal.client import start_workflow
from temporal.converter import MAX_INPUT
from tests.support.stacks import MakeStack
from tests.workflows.lifecycle.doubles import Hang
from tests.workflows.lifecycle.harness import Harness, on_dev_server
from tests.workflows.topic_controller.activities import PLAN, Script
from workflows.lifecycle.continuation import HISTORY_LIMIT

NO_CONTENT, NOT_FOUND, CONFLICT, WRONG, UNAVAILABLE = 204, 404, 409, 412, 503


@pytest.fixture(scope="module")
async def stage(make_stack: MakeStack) -> AsyncIterator[Harness]:
    """Workers of Temporal's dev server: others cannot list workflows, and refuse nothing."""
    async with on_dev_server(make_stack) as ready:
        yield ready


class Gateway:
    """A gateway of one cluster, and who asks it.

    Args:
        stage: runs controllers.
        script: what their steps do.
        settings: of the gateway besides.
    """

    _numbers = count(1)

    def __init__(self, stage: Harness, script: Script, **settings: Any) -> None:
        cluster = f"gateway-{next(self._numbers)}"
        stage.play(cluster, script)
        given = {"cluster": cluster, "metadata_url": PLAN["metadata_url"], "admin_urls": PLAN["admin_urls"]}
        self.settings = GatewaySettings.model_validate({**given, **settings})
        self.namespace = f"acme/{cluster}"
        self.topic = f"persistent://{self.namespace}/orders"
        self._stage = stage
        self.asks = self._asking()

    def _asking(self) -> httpx.AsyncClient:
        app = build_app(Controllers(self._stage.client, self.settings), self.settings, Authenticator())
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost/admin/v2/", timeout=60)

    def set_deadlines(self, **deadlines: timedelta) -> None:
        """Open the gateway again, with other deadlines."""
        self.settings = self.settings.model_copy(update=deadlines)
        self.asks = self._asking()

    def rename(self, name: str) -> None:
        """Ask for another topic of the namespace."""
        self.topic = f"persistent://{self.namespace}/{name}"

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The newest run of the controller."""
        return self._stage.client.get_workflow_handle(controller_id(self.settings.cluster, self.topic))

    async def __call__(self, method: str, path: str = "", **options: Any) -> httpx.Response:
        """Ask for the topic, or what is beneath it."""
        return await self.asks.request(method, f"scalable/{self.topic.removeprefix('persistent://')}{path}", **options)

    async def create(self, segments: int = 2) -> None:
        """Create the topic."""
        created = await self("PUT", f"?numInitialSegments={segments}")
        assert created.status_code == NO_CONTENT, created.text

    async def start(self, **options: Any) -> None:
        """Start the controller next to the gateway."""
        await self._stage.client.start_workflow(
            "TopicController",
            {**PLAN, "cluster": self.settings.cluster, "topic": self.topic},
            id=controller_id(self.settings.cluster, self.topic),
            task_queue=TASK_QUEUE,
            **options,
        )

    async def status(self) -> ControllerStatus:
        """Return the status of the controller."""
        return ControllerStatus.model_validate(await self.handle.query("status"))


Open = Callable[..., Gateway]


async def until(ask: Callable[[], Awaitable[httpx.Response]], condition: Callable[[httpx.Response], bool]) -> None:
    """Ask until the answer fulfils a condition."""
    async with asyncio.timeout(60):
        while True:
            if condition(await ask()):
                return
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(stage: Harness) -> AsyncIterator[Open]:
    """Opens gateways; their controllers end with the test."""
    opened: list[Gateway] = []

    def open_(script: Script | None = None, **settings: Any) -> Gateway:
        opened.append(Gateway(stage, script or Script(), **settings))
        return opened[-1]

    yield open_
    for client in opened:
        # It may have ended, or never begun.
        with suppress(Exception):
            await client.handle.terminate()
        await client.asks.aclose()


async def test_the_lifecycle_of_a_topic(gateway: Open) -> None:
    """A topic is created, listed, changed and deleted, and each answer is that of brokers."""
    ask = gateway(public_url="https://gateway:8443")
    created = await ask("PUT", "?numInitialSegments=2", json={"owner": "a"})
    assert (created.status_code, created.content) == (NO_CONTENT, b"")
    assert (await ask("PUT")).status_code == CONFLICT
    # What Temporal lists comes a little later.
    await until(lambda: ask.asks.get(f"scalable/{ask.namespace}"), lambda answer: answer.json() == [ask.topic])
    assert (await ask.asks.get("scalable/acme/unknown")).json() == []
    for kind, status in (("STREAM", NO_CONTENT), ("STREAM", NO_CONTENT), ("QUEUE", CONFLICT)):
        assert (await ask("PUT", f"/subscriptions/bill?type={kind}")).status_code == status
    steps = (("split/0", NO_CONTENT), ("split/0", CONFLICT), ("split/9", NOT_FOUND), ("merge/1/2", WRONG))
    for path, status in steps:
        assert (await ask("POST", f"/{path}")).status_code == status, path
    assert (await ask("POST", "/merge/3/1")).status_code == NO_CONTENT
    layout = SegmentLayout.model_validate((await ask("GET")).json())
    assert [segment.descriptor for segment in layout.active] == ["0000-3fff-2", "4000-ffff-4"]
    segments = f"segments/{ask.namespace}/orders"
    assert (await ask.asks.put(f"{segments}/4000-ffff-4", json=["bill"])).status_code == NO_CONTENT
    assert (await ask.asks.put(f"{segments}/4000-ffff-5")).status_code == NOT_FOUND
    for _ in range(2):
        assert (await ask.asks.delete(f"{segments}/0000-7fff-0")).status_code == NO_CONTENT
    assert 0 not in SegmentLayout.model_validate((await ask("GET")).json()).segments
    stats = (await ask("GET", "/stats")).json()
    assert (stats["epoch"], stats["subscriptions"]["bill"]["type"]) == (3, "STREAM")
    assert (await ask("DELETE", "/subscriptions/bill")).status_code == NO_CONTENT
    assert (await ask("DELETE", "?force=true")).status_code == NO_CONTENT
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/stats"), ("POST", "/split/2")):
        assert (await ask(method, path)).status_code == NOT_FOUND, path


async def test_another_cluster(gateway: Open) -> None:
    """A gateway reaches no controller of another cluster, nor one with its cluster's name on other servers."""
    prod, staging = gateway(), gateway()
    await prod.create()
    await until(lambda: prod.asks.get(f"scalable/{prod.namespace}"), lambda answer: answer.json() == [prod.topic])
    elsewhere = {"metadata_url": "zk:elsewhere:2181", "admin_urls": ("http://elsewhere:8080",)}
    namesake = gateway()
    namesake.settings = prod.settings.model_copy(update=elsewhere)
    namesake.set_deadlines()
    topic = f"scalable/{prod.namespace}/orders"
    for other, status in ((staging, NOT_FOUND), (namesake, CONFLICT)):
        assert (await other.asks.get(f"scalable/{prod.namespace}")).json() == []
        for method, path in (("GET", ""), ("POST", "/split/0"), ("DELETE", "?force=true"), ("GET", "/stats")):
            assert (await other.asks.request(method, topic + path)).status_code == status, (method, path)
    moved = prod.settings.model_copy(update={"metadata_url": elsewhere["metadata_url"]})
    prod.settings = moved
    prod.set_deadlines()
    assert len(SegmentLayout.model_validate((await prod("GET")).json()).segments) == 2


async def test_consumers(gateway: Open) -> None:
    """Consumers share segments as they come and go; one of a subscription that is not there is refused."""
    ask = gateway()
    await ask.create()
    consumers = "/subscriptions/bill/consumers"
    unknown = await ask("POST", f"{consumers}/a", json={"kind": "STREAM"})
    assert (unknown.status_code, "there is no subscription bill" in unknown.json()["reason"]) == (NOT_FOUND, True)
    await ask("PUT", "/subscriptions/bill")
    answers = {name: (await ask("POST", f"{consumers}/{name}", json={"kind": "STREAM"})).json() for name in "ba"}
    assert {name: [segment["segmentId"] for segment in answer["segments"]] for name, answer in answers.items()} == {
        "b": [0, 1],
        "a": [0],
    }
    assert answers["a"]["generation"] > answers["b"]["generation"]
    assert (await ask("DELETE", f"{consumers}/a")).status_code == NO_CONTENT
    assert (await ask("DELETE", f"{consumers}/unknown")).status_code == NO_CONTENT
    # What a left is published for others a little later.
    await until(
        lambda: ask("POST", f"{consumers}/b", json={"kind": "STREAM"}),
        lambda answer: [segment["segmentId"] for segment in answer.json()["segments"]] == [0, 1],
    )
    await ask("PUT", "/subscriptions/work?type=QUEUE")
    needless = await ask("POST", "/subscriptions/work/consumers/a", json={"kind": "STREAM"})
    assert needless.status_code == CONFLICT


async def test_a_thousand_consumers(gateway: Open) -> None:
    """A thousand that join at once are all answered, and Temporal refuses none for too many updates in flight."""
    ask = gateway()
    await ask.create()
    await ask("PUT", "/subscriptions/bill")
    paths = [f"/subscriptions/bill/consumers/consumer-{number}" for number in range(1000)]
    answers = await asyncio.gather(*(ask("POST", path, json={"kind": "STREAM"}) for path in paths))
    assert {answer.status_code for answer in answers} == {200}
    assert (await ask.status()).consumers == {"bill": 1000}
    events = (await ask.handle.describe()).history_length
    assert events < 200, f"{events} events for a thousand consumers"


async def test_a_hundred_thousand_consumers(gateway: Open) -> None:
    """Of a hundred thousand consumers a topic takes 2,000; it continues as a new run, and `/healthz` answers."""
    ask = gateway()
    await ask.start(memo={HISTORY_LIMIT: 150})
    await until(lambda: ask("PUT", "/subscriptions/bill"), lambda answer: answer.status_code == NO_CONTENT)
    first_run = (await ask.handle.describe()).run_id
    seconds: list[float] = []

    async def join(batch: int) -> int:
        names = tuple(f"{batch:03}-{number:03}-{'x' * 90}" for number in range(MAX_CONSUMERS_PER_UPDATE))
        handle: Any = ask.handle
        try:
            return len(await handle.execute_update("register", Registrations(subscription="bill", consumers=names)))
        except WorkflowUpdateFailedError as error:
            assert "the most consumers of a subscription, 2,000" in str(error.cause)  # noqa: PT017 - most are refused
            return 0

    taken: list[int] = []
    for first in range(0, 200, 4):
        joining = asyncio.gather(*map(join, range(first, first + 4)))
        # Not the time on the clock: other processes may have the processor.
        begin = time.thread_time()
        assert (await ask.asks.get("http://localhost/healthz")).status_code == 200
        seconds.append(time.thread_time() - begin)
        taken += await joining
    assert sum(taken) == MAX_CONSUMERS_OF_SUBSCRIPTION
    assert max(seconds) < 1
    path = "/subscriptions/bill/consumers"
    refused = await ask("POST", f"{path}/new", json={"kind": "STREAM"})
    assert (refused.status_code, "the most consumers of a subscription" in refused.text) == (CONFLICT, True)

    async def next_run() -> bool:
        assert (await ask("POST", f"{path}/000-000-{'x' * 90}", json={"kind": "STREAM"})).status_code == 200
        return (await ask.handle.describe()).run_id != first_run

    async with asyncio.timeout(120):
        while not await next_run():
            pass
    assert (await ask.status()).consumers == {"bill": MAX_CONSUMERS_OF_SUBSCRIPTION}


async def test_the_longest_names(gateway: Open) -> None:
    """A topic and a subscription of the longest names work on a real server; one character more is a typed refusal."""
    ask = gateway()
    free = MAX_ID_BYTES - len(controller_id(ask.settings.cluster, ask.topic))
    ask.rename(f"orders{'x' * free}")
    await ask.create()
    longest = "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 200
    subscription = f"/subscriptions/{longest}"
    assert (await ask("PUT", subscription)).status_code == NO_CONTENT
    joined = await ask("POST", f"{subscription}/consumers/{longest}", json={"kind": "STREAM"})
    assert joined.status_code == 200, joined.text
    await until(lambda: ask.asks.get(f"scalable/{ask.namespace}"), lambda answer: answer.json() == [ask.topic])
    ask.rename(f"orders{'x' * (free + 1)}")
    for method in ("PUT", "GET"):
        refused = await ask(method)
        assert (refused.status_code, "choose a shorter name" in refused.text) == (WRONG, True), refused.text


async def test_the_largest_update(gateway: Open) -> None:
    """An update that Temporal takes, but that is too large for the input of a step, is refused; the run continues."""
    ask = gateway()
    await ask.create()
    handle: Any = ask.handle
    # Temporal takes payloads of 2 MiB.
    largest = {"segments": [1] * ((2 << 20) // 2 - 200)}
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update("prune", largest)
    assert "at most 10000 items" in str(refused.value.cause)
    with pytest.raises(WorkflowUpdateFailedError) as also_refused:
        await handle.execute_update("set_pruning", {"pruning": {"after": "1h" + " " * (MAX_INPUT + 1)}})
    assert "the most are 1,048,576" in str(also_refused.value.cause)
    assert (await ask.handle.describe()).status is WorkflowExecutionStatus.RUNNING
    assert (await ask("GET")).status_code == 200


async def test_a_migration_with_a_long_name(stage: Harness) -> None:
    """A migration of topics whose names are too long for ids, search attributes and summaries starts."""
    ids: set[str] = set()
    for last in "ab":
        topic = f"persistent://acme/shop/{'x' * 2000}{last}"
        given = {"cluster": "long", "metadata_url": "zk:zk:2181", "admin_urls": ["http://broker:8080"], "topic": topic}
        input = ScalableTopicInput.model_validate(given)
        handle = await start_workflow(stage.client, "ScalableTopicMigration", input, kind=input.kind, queue="no-worker")
        described = await handle.describe()
        assert described.status is WorkflowExecutionStatus.RUNNING
        ids.add(described.id)
        await handle.terminate()
    assert len(ids) == 2


async def test_runs_that_end_during_requests(gateway: Open, recwarn: pytest.WarningsRecorder) -> None:
    """While runs of the controller end and others begin, each change is done once, and each consumer has its answer."""
    ask = gateway(Script())
    await ask.start(memo={HISTORY_LIMIT: 10})
    for number in range(6):
        assert (await ask("PUT", f"/subscriptions/sub-{number}")).status_code == NO_CONTENT

    async def join(number: int) -> int:
        path = f"/subscriptions/sub-{number % 6}/consumers/c-{number}"
        return (await ask("POST", path, json={"kind": "STREAM"})).status_code

    async def change() -> list[int]:
        # Each splits the last segment: of n splits the last child has the id 2n + 1.
        return [(await ask("POST", f"/split/{2 * number + 1}")).status_code for number in range(8)]

    joins, changes = await asyncio.gather(asyncio.gather(*map(join, range(60))), change())
    assert ({*joins}, {*changes}) == ({200}, {NO_CONTENT})
    layout = SegmentLayout.model_validate((await ask("GET")).json())
    assert (layout.epoch, len(layout.active)) == (8, 10)
    described = await ask.handle.describe()
    assert described.raw_info.execution.run_id != described.raw_info.first_run_id, "there was one run only"
    assert not [warning for warning in recwarn if issubclass(warning.category, UnfinishedUpdateHandlersWarning)]


async def test_changes_of_one_topic_wait_for_each_other(gateway: Open) -> None:
    """Temporal takes ten updates of a workflow in flight: more changes than that at once are done one by one."""
    ask = gateway()
    await ask.create()
    answers = await asyncio.gather(*(ask("PUT", f"/subscriptions/sub-{number}") for number in range(30)))
    assert {answer.status_code for answer in answers} == {NO_CONTENT}
    assert len((await ask.status()).subscriptions) == 30


async def test_a_workflow_with_the_most_updates(gateway: Open) -> None:
    """While others have ten updates in flight, a request waits for a slot, and fails if none is free in time."""
    hang = Hang()
    ask = gateway(Script(subscribe=[hang, None]))
    await ask.create()
    ask.set_deadlines(consumer_deadline=timedelta(seconds=2))
    others = [
        asyncio.ensure_future(ask.handle.execute_update("create_subscription", {"name": f"sub-{number}"}))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        for number in range(10)
    ]
    await hang.entered()
    late = await ask("POST", "/subscriptions/sub-0/consumers/a", json={"kind": "STREAM"})
    assert (late.status_code, late.headers["Retry-After"]) == (UNAVAILABLE, "2")
    waits = asyncio.ensure_future(ask("PUT", "/subscriptions/last"))
    hang.release()
    assert (await waits).status_code == NO_CONTENT
    await asyncio.gather(*others)


async def test_a_change_that_takes_too_long(gateway: Open) -> None:
    """A change that is not done in time is reported as continuing, and is completed."""
    hang = Hang()
    ask = gateway(Script(seal=[hang, None]))
    await ask.create()
    # Long enough for a busy machine to send the change.
    ask.set_deadlines(change_deadline=timedelta(seconds=5))
    slow = await ask("POST", "/split/0")
    assert (slow.status_code, slow.headers["Retry-After"]) == (UNAVAILABLE, "2")
    assert "may still be applied" in slow.json()["reason"]
    hang.release()
    await until(lambda: ask("GET"), lambda answer: answer.is_success and answer.json()["epoch"] == 1)
    ask.set_deadlines(change_deadline=timedelta(seconds=60))
    assert (await ask("POST", "/split/0")).status_code == CONFLICT


async def test_another_topic_of_the_name(gateway: Open, stage: Harness) -> None:
    """A request for one topic is not applied to a newer topic of the same name, and its client gets an error."""
    hang = Hang()
    ask = gateway(Script(delete=hang))
    await ask.create()
    asked = asyncio.ensure_future(ask("DELETE"))
    await hang.entered()
    await ask.start(id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING)
    answer = await asked
    assert (answer.status_code, "a new controller took over" in answer.json()["reason"]) == (UNAVAILABLE, True)
    # The double of the metadata store is the same for both: the newer one opens its topic before the older is deleted.
    await until(lambda: ask("GET"), lambda answer: answer.is_success)
    hang.release()
    assert (await ask("PUT", "/subscriptions/bill")).status_code == NO_CONTENT


async def test_a_controller_that_ends_during_a_deletion(gateway: Open) -> None:
    """A deletion is confirmed only by its controller: one that was terminated may have left the topic."""
    hang = Hang()
    ask = gateway(Script(delete=hang))
    await ask.create()
    asked = asyncio.ensure_future(ask("DELETE"))
    await hang.entered()
    await ask.handle.terminate()
    answer = await asked
    assert (answer.status_code, "before it confirmed the deletion" in answer.text) == (UNAVAILABLE, True), answer.text
    hang.release()


@pytest.mark.parametrize(
    ("kind", "status"), [(FailureKind.CONFLICT, CONFLICT), (FailureKind.DENIED, 502), (FailureKind.UNSUPPORTED, 501)]
)
async def test_topics_that_cannot_be_opened(gateway: Open, kind: FailureKind, status: int) -> None:
    """A client that creates a topic gets the reason why its controller cannot open it."""
    ask = gateway(Script(open=ApplicationError("it is taken", type=kind, non_retryable=True)))
    created = await ask("PUT")
    assert (created.status_code, created.json()) == (status, {"reason": "it is taken"})
    assert (await ask("GET")).status_code == NOT_FOUND


async def test_a_topic_that_opens_late(gateway: Open) -> None:
    """A topic that is not open in time is reported as opening later, and opens."""
    hang = Hang()
    ask = gateway(Script(open=[hang, None]), change_deadline=timedelta(seconds=1))
    created = await ask("PUT")
    assert (created.status_code, "not open yet: open the topic" in created.json()["reason"]) == (UNAVAILABLE, True)
    assert (await ask("GET")).status_code == UNAVAILABLE
    hang.release()
    await until(lambda: ask("GET"), lambda answer: answer.status_code == 200)
