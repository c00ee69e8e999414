"""A copy is held while its workflow orders it, or a source of the automatic throttle objects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from activities.lifecycle import pacer as pacing
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.pacer import Brakes, Pacer
from activities.lifecycle.runtime import Runtime
from activities.metadata_store.context import MetadataStoreTask
from clients.errors import StoreUnreachable, Superseded
from clients.load import Reading, Sources
from clients.tls import Tls
from models.lifecycle.auto_throttle import AutoThrottle, CopyOrders, Pause
from models.lifecycle.claim import Attempt
from models.lifecycle.execution import Execution
from models.lifecycle.report import PrecheckResult
from models.lifecycle.status import ProgressTask, ProgressUnit
from models.metadata_store.input import MetadataStoreInput
from models.settings import Settings
from temporal.converter import DATA_CONVERTER
from tests.support.http_server import Answers
from tests.support.waiting import wait_for

PAUSED = CopyOrders(pause=Pause(by="cli:ann@desk", since=datetime(2026, 1, 1, tzinfo=UTC), reason="OPS-7"))


class Copy:
    """A copy without work: notes what its brakes did.

    Attributes:
        orders: of its workflow; None if that does not answer.
        done: what was done, in order.
        failure: what the claim raises; None for nothing.
    """

    def __init__(self) -> None:
        self.orders: CopyOrders | None = CopyOrders()
        self.done: list[str] = []
        self.failure: Exception | None = None
        self.context = ActivityContext()

    def brakes(self) -> Brakes:
        """Return what holds it."""
        return Brakes(
            hold=lambda: self.done.append("hold"),
            release=lambda: self.done.append("release"),
            claim_held=lambda: self._claim("claim held"),
            claim_free=lambda: self._claim("claim free"),
            stop=lambda: self.done.append("stop"),
        )

    def pacer(self, ask: Callable[[], CopyOrders | None] | None = None, **first: Any) -> Pacer:
        """Return what paces it, with the throttle of its input."""
        orders = CopyOrders(**first)
        return Pacer(
            ask or (lambda: self.orders),
            self.brakes(),
            self.context,
            lambda wanted: Sources(wanted, admin=Tls()),
            orders,
        )

    def _claim(self, what: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.done.append(what)


def why(context: ActivityContext) -> str:
    """Return why work waits; empty if it does not."""
    waiting = context.report().waiting
    return f"{waiting.kind}: {waiting.why}" if waiting else ""


def throttle(server: Answers, **more: Any) -> AutoThrottle:
    """Return a throttle by one endpoint, with looks that are always due."""
    # On a busy machine an answer may take longer than the default.
    long_timeout = {"timeout": "PT1M"}
    wanted = AutoThrottle.model_validate({"http": f"{server.base_url}/may-copy", **long_timeout, **more})
    return wanted.model_copy(update={"every": wanted.every * 0})


def test_a_pause_holds_the_copy_and_says_who_why() -> None:
    """Nothing is written without a pause; one is written once, and taken back once."""
    copy = Copy()
    with copy.pacer() as pacer:
        pacer.check()
        assert copy.done == []
        copy.orders = PAUSED
        for _ in range(3):
            pacer.check()
        assert copy.done == ["hold", "claim held"]
        assert why(copy.context) == "pause: `resume`: paused by cli:ann@desk (OPS-7)"
        copy.orders = None
        pacer.check()
        assert why(copy.context), "without an answer the last order counts"
        copy.orders = CopyOrders()
        pacer.check()
        assert copy.done[2:] == ["release", "claim free"]
        assert not why(copy.context)


class _Workflow:
    """A client of Temporal and a handle in one: each workflow answers the same.

    Attributes:
        answer: of the query, as JSON.
    """

    def __init__(self) -> None:
        self.answer: object = None

    def get_workflow_handle(self, workflow_id: str) -> _Workflow:
        assert workflow_id == "blue-green/prod"
        return self

    async def query(self, name: str, *, result_type: type[Any], rpc_timeout: timedelta) -> Any:
        assert (name, rpc_timeout > timedelta(0)) == ("copy_orders", True)
        (answer,) = await DATA_CONVERTER.decode(await DATA_CONVERTER.encode([self.answer]), [result_type])
        return answer


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_orders_that_cannot_be_read_change_nothing(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last orders count, the status says why, and the attempt does not end."""
    # Only this thread asks.
    monkeypatch.setattr(pacing, "_ASK_EVERY", 600.0)
    monkeypatch.setattr("activities.lifecycle.runtime._QUERY_LIMIT", timedelta(minutes=1))
    workflow, copy = _Workflow(), Copy()
    runtime = Runtime(Settings(), cast("Any", workflow), "queue", loop)
    copy.context.progress(ProgressTask.COPY, ProgressUnit.RECORDS, 5, 10)
    workflow.answer = {"pause": "at night"}
    fault = "the last orders count: the orders of blue-green/prod cannot be read: pause: "
    with copy.pacer(lambda: runtime.copy_orders(["blue-green/prod"])) as pacer:
        pacer.start()
        assert copy.done == []
        progress = copy.context.report().progress
        assert progress is not None
        assert progress.detail.startswith(fault)
        workflow.answer = PAUSED.model_dump(mode="json")
        pacer.check()
        assert why(copy.context) == "pause: `resume`: paused by cli:ann@desk (OPS-7)"
        workflow.answer = {"pause": 5}
        pacer.check()
        assert why(copy.context).startswith(f"pause: `resume`: paused by cli:ann@desk (OPS-7); {fault}")
        workflow.answer = {}
        pacer.check()
        assert not why(copy.context)
        progress = copy.context.report().progress
        assert (progress and progress.detail, pacer.failure) == ("", None)


def test_an_endpoint_holds_the_copy() -> None:
    """The reason names source and answer; it lasts until the source agrees."""
    answers = {"/may-copy": (429, "")}
    copy = Copy()
    with Answers(answers) as server, copy.pacer(throttle=throttle(server)) as pacer:
        # The workflow does not answer yet: what the input says counts.
        copy.orders = None
        pacer.check()
        assert copy.done == ["hold", "claim held"]
        assert why(copy.context) == (
            f"automatic throttle: the automatic throttle: {server.base_url}/may-copy: it answers 429"
        )
        answers["/may-copy"] = 503, ""
        pacer.check()
        assert "it answers 503" in why(copy.context)
        answers["/may-copy"] = 200, ""
        pacer.check()
        assert copy.done[2:] == ["release", "claim free"]
        # A changed throttle is used from the next look on, and a removed one holds nothing.
        answers["/may-copy"] = 500, ""
        copy.orders = CopyOrders(throttle=throttle(server, zookeepers=["127.0.0.1:9"]))
        pacer.check()
        assert "ZooKeeper 127.0.0.1:9: " in why(copy.context)
        assert "; " in why(copy.context)
        copy.orders = CopyOrders()
        pacer.check()
        assert not why(copy.context)


class _Slow:
    """A source that does not answer before it is released.

    Attributes:
        asked: names of the sources that are asked now.
        released: they answer.
    """

    def __init__(self, name: str, asked: set[str], released: threading.Event) -> None:
        self.name = name
        self._asked = asked
        self._released = released

    def read(self) -> list[Reading]:
        self._asked.add(self.name)
        self._released.wait()
        return []


def test_slow_sources_delay_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause waits for no slow source: all are asked at once, and those that do not answer in time object."""
    monkeypatch.setattr(pacing, "_ASK_EVERY", 0.1)
    copy, asked, released = Copy(), set[str](), threading.Event()
    wanted = AutoThrottle.model_validate({"timeout": "PT0.1S"})
    slow = Sources(wanted, admin=Tls())
    slow.all = [_Slow(f"bookie {number}", asked, released) for number in range(200)]
    copy.orders = CopyOrders(throttle=wanted)
    with Pacer(lambda: copy.orders, copy.brakes(), copy.context, lambda _: slow, CopyOrders()) as pacer:
        try:
            pacer.check()
            assert why(copy.context).startswith(
                "automatic throttle: the automatic throttle: bookie 0: it does not answer"
            )
            assert why(copy.context).endswith("; and 197 more")
            wait_for("all are asked", lambda: len(asked) == 200, 20)
            copy.orders = CopyOrders(throttle=wanted, pause=PAUSED.pause)
            pacer.check()
            assert why(copy.context).startswith("pause: ")
            copy.orders = CopyOrders(throttle=wanted)
        finally:
            released.set()

        def is_free() -> bool:
            pacer.check()
            return not why(copy.context)

        wait_for("the copy may run", is_free, 20)


def test_sources_are_looked_at_from_time_to_time() -> None:
    """Between two looks the last one counts."""
    answers = {"/may-copy": (500, "")}
    copy = Copy()
    with Answers(answers) as server:
        rare = {"every": "PT5M", "timeout": "PT1M"}
        copy.orders = CopyOrders(throttle=AutoThrottle.model_validate({"http": f"{server.base_url}/may-copy", **rare}))
        with copy.pacer() as pacer:
            pacer.check()
            answers["/may-copy"] = 200, ""
            pacer.check()
            assert why(copy.context)


def test_a_store_that_is_away_gets_the_hold_later() -> None:
    """No task starts in the meantime."""
    copy = Copy()
    with copy.pacer() as pacer:
        copy.orders, copy.failure = PAUSED, StoreUnreachable("away")
        pacer.check()
        copy.failure = None
        pacer.check()
        assert copy.done == ["hold", "claim held"]


def test_an_order_counts_although_the_last_one_could_not_be_written() -> None:
    """Tasks follow the newest order, and so does the claim, of which a failed write may have arrived."""
    copy = Copy()
    with copy.pacer() as pacer:
        copy.orders, copy.failure = PAUSED, StoreUnreachable("away")
        pacer.check()
        copy.orders, copy.failure = CopyOrders(), None
        pacer.check()
        assert copy.done == ["hold", "release", "claim free"]
        assert not why(copy.context)
        copy.orders = PAUSED
        pacer.check()
        copy.orders, copy.failure = CopyOrders(), StoreUnreachable("away")
        pacer.check()
        copy.orders, copy.failure = PAUSED, None
        pacer.check()
        assert copy.done[3:] == ["hold", "claim held", "release", "hold", "claim held"]
        assert why(copy.context)


def test_the_rest_of_a_step_is_not_held_by_a_late_look() -> None:
    """A look that was under way when the copy ended may have held it; the claim says so no more."""
    copy = Copy()
    copy.orders = PAUSED
    with copy.pacer() as pacer:
        pacer.check()
        pacer.finish()
    assert copy.done[:2] == ["hold", "claim held"]
    assert copy.done[-2:] == ["claim free", "release"]


@pytest.mark.parametrize("failure", [Superseded("a newer attempt has begun"), RuntimeError("a fault of ours")])
def test_an_attempt_that_may_not_go_on_ends(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A held attempt whose claim another one took stops its jobs, and lets them see that; also after a fault."""
    monkeypatch.setattr(pacing, "_ASK_EVERY", 0.01)
    monkeypatch.setattr(pacing, "_CONFIRM_EVERY", 0.0)
    copy = Copy()
    copy.orders = PAUSED
    with copy.pacer() as pacer:
        pacer.start()
        copy.failure = failure
        wait_for("the end", lambda: pacer.failure, 10)
        assert pacer.failure is failure
        wait_for("the end of a job that starts later", lambda: copy.done.count("stop") > 1, 10)
    assert copy.done[0] == "hold"
    first = copy.done.index("stop")
    assert copy.done[first : first + 2] == ["stop", "release"]


def test_a_late_attempt_does_not_start() -> None:
    """The first look is before the first task."""
    copy = Copy()
    copy.orders, copy.failure = PAUSED, Superseded("a newer attempt has begun")
    with copy.pacer() as pacer, pytest.raises(Superseded):
        pacer.start()


def test_a_workflow_that_answers_late_is_asked_again() -> None:
    """An attempt that takes over in a pause does not start a task before it knows of the pause."""
    copy = Copy()
    answers = iter([None, PAUSED])
    with copy.pacer(ask=lambda: next(answers, None)) as pacer:
        pacer.start()
        assert copy.done == ["hold", "claim held"]


def test_the_end_of_a_copy_holds_nothing() -> None:
    """The rest of the same step is not held: clients may wait for it."""
    copy = Copy()
    copy.orders = PAUSED
    with copy.pacer() as pacer:
        pacer.check()
    assert copy.done[-1] == "release"
    assert not why(copy.context)


def test_the_precheck_warns_of_what_would_stop_the_copy() -> None:
    """A wrong address shows in a dry run, and not only when the copy waits."""
    runtime = Runtime(Settings(), cast("Any", None), "queue")
    started = datetime(2026, 1, 1, tzinfo=UTC)
    input = MetadataStoreInput(cluster="dev", source="zk:zk:2181", target="oxia://oxia:6648")
    execution = Execution(input=input, run_id="run-1", started=started, epoch=1)
    attempt = Attempt.of(execution, input.workflow_id, 1)
    with Answers({"/may-copy": (503, "")}) as server:
        wanted = throttle(server, bookies=[f"{server.base_url}/may-copy"])
        with MetadataStoreTask(runtime, execution, attempt, ActivityContext()) as task:
            result = task.with_throttle_warnings(PrecheckResult(warnings=("old",)), wanted, "")
            assert task.with_throttle_warnings(result, None, "") == result
    url = f"{server.base_url}/may-copy"
    assert result.warnings == (
        "old",
        f"auto_throttle would stop the copy now: bookie {url}: it answers 503 to {url}",
        f"auto_throttle would stop the copy now: {url}: it answers 503",
    )
