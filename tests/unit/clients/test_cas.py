"""Compare-and-set and claims on a store in memory, whose writes others can come before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark.fence
from clients.cas.claims import ClaimKeeper, require_newest
from clients.cas.store import TRIES, Check, Create, retry, retry_each, write_alone
from clients.errors import ClaimHeld, StoreConflict, StoreContention, Superseded, VersionConflict
from models.lifecycle.claim import CLAIM, Attempt, PacedClaim
from spark.fence import CopyHeld, WriteFence
from tests.support.clients.claims import attempt_of
from tests.support.clients.memory_store import MemoryStore

ATTEMPTS = st.builds(
    attempt_of,
    st.just("one"),
    run=st.integers(1, 3),
    epoch=st.integers(1, 4),
    attempt=st.integers(1, 3),
)


def keeper(store: MemoryStore, me: Attempt) -> ClaimKeeper[PacedClaim]:
    """Return a claim on behalf of an attempt."""
    return ClaimKeeper(store, PacedClaim, me)


def once(action: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that performs an action the first time only."""
    pending = [action]

    def act() -> None:
        if pending:
            pending.pop()()

    return act


def test_the_loop_reads_again_after_writes_of_others() -> None:
    """A change is made to the current value after any other writes, up to a limit with a typed conflict."""
    store = MemoryStore()
    store.create("/n", b"0")

    def add(by: int) -> None:
        node = store.get("/n")
        assert node is not None
        store.set("/n", str(int(node.value) + by).encode(), node.version)

    others = [10] * (TRIES - 1)

    def interfere() -> None:
        if others:
            store.before_write, acting = (lambda: None), store.before_write
            add(others.pop())
            store.before_write = acting

    store.before_write = interfere
    retry(lambda: add(1), "/n")
    assert store.nodes["/n"].value == b"41"

    others = [10] * TRIES
    with pytest.raises(StoreContention, match="/n was changed by others"):
        retry(lambda: add(1), "/n")
    assert store.nodes["/n"].value == b"91"


def test_a_record_of_one_attempt_is_not_written_over_another_ones() -> None:
    """A lone writer continues from its own value only, even if another attempt writes right before or after it."""
    store = MemoryStore()
    version = write_alone(store, "/n", b"mine", None)
    version = write_alone(store, "/n", b"mine too", version)
    assert (store.nodes["/n"].value, store.nodes["/n"].version) == (b"mine too", version)
    store.set("/n", b"another's", version)
    with pytest.raises(StoreContention):
        write_alone(store, "/n", b"late", version)

    class Overtaken(MemoryStore):
        def set(self, path: str, value: bytes, version: int) -> None:
            super().set(path, value, version)
            super().set(path, b"right after", version + 1)

    store = Overtaken()
    with pytest.raises(StoreContention):
        write_alone(store, "/n", b"mine too", write_alone(store, "/n", b"mine", None))
    assert store.nodes["/n"].value == b"right after"


def test_the_loop_passes_final_conflicts_on() -> None:
    """An error that another try cannot cure is not tried again."""
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise StoreConflict("held")

    with pytest.raises(StoreConflict, match="held"):
        retry(fail, "/n")
    assert len(tries) == 1


def test_many_records_are_tried_until_few_are_left() -> None:
    """Of many records those that others changed are tried again, and those that they keep changing are named."""
    asked: list[list[int]] = []

    def change(keys: Sequence[int]) -> list[int]:
        asked.append(list(keys))
        return [key for key in keys if key == 9 or (key == 5 and len(asked) < 3)]

    assert retry_each([1, 5, 9], change) == [9]
    assert asked == [[1, 5, 9], [5, 9], [5, 9], [9], [9]]


def test_other_migrations_are_kept_out_by_name() -> None:
    """A claim is one migration's: others are refused with its name and the cure, and cannot change or remove it."""
    store = MemoryStore()
    keeper(store, attempt_of("metadata-store/c", run=1)).take(throttle=3.0)
    foreign = keeper(store, attempt_of("bookie-cluster/c", run=2))
    for act in (foreign.take, foreign.renew, foreign.require, foreign.release, lambda: foreign.change(throttle=1.0)):
        with pytest.raises(ClaimHeld, match="'metadata-store/c'") as refused:
            act()
        assert (refused.value.workflow_id, refused.value.run_id) == ("metadata-store/c", "run-1")
    with pytest.raises(ClaimHeld, match=f"delete {CLAIM}"):
        foreign.take()
    claim = keeper(store, attempt_of("metadata-store/c", run=1)).require()
    assert claim.throttle == 3.0


@given(st.lists(ATTEMPTS, min_size=1, max_size=12))
def test_only_the_newest_attempt_passes_the_fence(attempts: list[Attempt]) -> None:
    """In any order of attempts, only the newest so far passes, and no older one passes after it."""
    store = MemoryStore()
    newest: Attempt | None = None
    for me in attempts:
        late = newest is not None and _order(me) < _order(newest)
        try:
            keeper(store, me).take()
        except Superseded:
            assert late
        else:
            assert not late
            newest = me
        held = keeper(store, me).read()
        assert held is not None
        assert newest is not None
        assert _passes(held.claim, newest)
        for attempt in attempts:
            assert not (_passes(held.claim, attempt) and _order(attempt) < _order(newest))


def _order(me: Attempt) -> tuple[int, int, int]:
    return me.started_ms, me.epoch, me.attempt


def _passes(claim: PacedClaim, me: Attempt) -> bool:
    fence = WriteFence(lambda: claim, attempt=me, what="the store", parallelism=1)
    try:
        require_newest(claim, me, "the store")
    except StoreConflict:
        with pytest.raises(StoreConflict):
            fence.check(1)
        return False
    fence.check(1)
    return True


def test_no_throttle_while_a_caller_is_blocked() -> None:
    """A fence that is not paced asks who holds the claim, and never waits for the throttle in it."""
    me = attempt_of("one")
    held = PacedClaim(**me._asdict(), throttle=1e-6)
    slept: list[float] = []

    def lift(seconds: float) -> None:
        nonlocal held
        slept.append(seconds)
        held = held.model_copy(update={"throttle": None})

    for paced, waits in ((False, 0), (True, 1)):
        fence = WriteFence(lambda: held, attempt=me, what="the store", parallelism=1, paced=paced, sleep=lift)
        fence.check(1_000)
        assert len(slept) == waits
    held = PacedClaim(**attempt_of("one", epoch=9)._asdict())
    with pytest.raises(Superseded):
        WriteFence(lambda: held, attempt=me, what="the store", parallelism=1, paced=False).check(1)


def test_another_limit_counts_for_what_is_owed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waits for hours under a low limit continues soon after a higher one is set, and no sooner."""
    now, me = [0.0], attempt_of("one")
    limits = [(0.0, 1e-3), (10.0, 1.0), (20.0, None), (30.0, 1.0)]

    def read() -> PacedClaim:
        limit = next(limit for since, limit in reversed(limits) if since <= now[0])
        return PacedClaim(**me._asdict(), throttle=limit)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(spark.fence, "time", SimpleNamespace(monotonic=lambda: now[0]))
    fence = WriteFence(read, attempt=me, what="the store", parallelism=1, sleep=sleep)
    fence.check(5_000_000)
    # 10 kB in the first 10 s, and the rest with 1 MB/s.
    assert 14.5 < now[0] < 17
    fence.check(100_000_000)
    assert 20 <= now[0] < 22
    now[0] = 30.0
    fence.check(1_000_000)
    assert 30.5 < now[0] < 32


def test_a_held_task_waits_and_then_gives_its_slot_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short hold costs nothing; after a longer one the task ends, and a newer attempt ends it in between.

    The hold of a worker that died holds no other attempt, and no copy that clients wait for.
    """
    now, me = [0.0], attempt_of("one")
    claim = PacedClaim(**me._asdict(), held=me.mark)
    free_at = 5.0

    def read() -> PacedClaim:
        return claim if now[0] < free_at else claim.model_copy(update={"held": ""})

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(spark.fence, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def fence(me: Attempt = me, *, paced: bool = True) -> WriteFence:
        return WriteFence(read, attempt=me, what="the store", parallelism=1, paced=paced, sleep=sleep)

    fence().check(1)
    assert 5 <= now[0] < 7
    now[0], free_at = 0.0, 3_600.0
    with pytest.raises(CopyHeld):
        fence().check(1)
    assert 20 <= now[0] < 25
    now[0] = 0.0
    fence(paced=False).check(1)
    claim = PacedClaim(**attempt_of("one", attempt=2)._asdict(), held=me.mark)
    fence(attempt_of("one", attempt=2)).check(1)
    assert now[0] == 0
    with pytest.raises(Superseded):
        fence().check(1)


def test_an_answer_of_the_fence_counts_from_the_question_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that froze with the claim in hand reads it again before it writes any more."""
    now, me = [0.0], attempt_of("one")
    reads: list[float] = []

    def freeze() -> PacedClaim:
        reads.append(now[0])
        now[0] += 30
        return PacedClaim(**me._asdict())

    monkeypatch.setattr(spark.fence, "time", SimpleNamespace(monotonic=lambda: now[0]))
    fence = WriteFence(freeze, attempt=me, what="the store", parallelism=1)
    for _ in range(3):
        fence.check(1)
    assert len(reads) == 3


def test_only_the_first_activity_of_a_run_takes_over() -> None:
    """`renew` continues where this run holds the claim, and finds its end: it neither creates nor takes over one."""
    store = MemoryStore()
    with pytest.raises(Superseded, match="does not hold"):
        keeper(store, attempt_of("one")).renew()
    keeper(store, attempt_of("one")).take(throttle=1.0)
    with pytest.raises(Superseded):
        keeper(store, attempt_of("one", run=2)).renew()
    keeper(store, attempt_of("one", epoch=2)).renew()
    with pytest.raises(Superseded):
        keeper(store, attempt_of("one", epoch=1, attempt=9)).renew()
    taken = keeper(store, attempt_of("one", run=2)).take(throttle=2.0)
    assert taken.throttle == 2.0
    assert keeper(store, attempt_of("one", run=2, epoch=2)).take(throttle=5.0).throttle == 2.0
    with pytest.raises(Superseded):
        keeper(store, attempt_of("one", epoch=9)).take()


def test_unknown_fields_survive() -> None:
    """Fields that a newer version adds to a claim are still there after attempts, runs and the pace changed."""
    store = MemoryStore()
    text = b'{"workflow_id":"one","run_id":"run-1","attempt":7,"new":{"a":[1]}}'
    store.create(CLAIM, text)
    keeper(store, attempt_of("one", run=2)).take(throttle=2.0)
    keeper(store, attempt_of("one", run=2, epoch=2)).renew()
    keeper(store, attempt_of("one", run=2, epoch=3)).change(throttle=1.0)
    held = keeper(store, attempt_of("one", run=2)).read()
    assert held is not None
    assert held.claim.model_extra == {"new": {"a": [1]}}
    assert (held.claim.run_id, held.claim.epoch, held.claim.throttle) == ("run-2", 2, 1.0)


def test_a_change_of_pace_takes_nothing_over() -> None:
    """The pace changes for whichever attempt of this run writes, and for no other run."""
    store = MemoryStore()
    assert keeper(store, attempt_of("one")).change(throttle=1.0) is None
    keeper(store, attempt_of("one", run=2)).take()
    assert keeper(store, attempt_of("one", run=1)).change(throttle=1.0) is None
    assert keeper(store, attempt_of("one", run=2, epoch=7)).change(throttle=1.0) is not None
    assert keeper(store, attempt_of("one", run=2)).require().throttle == 1.0


def test_a_claim_is_lost_between_reading_and_writing() -> None:
    """An attempt that takes a claim, or writes under it, stops if a newer attempt takes the claim at that moment."""
    store = MemoryStore()
    old, new = keeper(store, attempt_of("one")), keeper(store, attempt_of("one", epoch=2))
    store.before_write = once(new.take)
    with pytest.raises(Superseded):
        old.take()
    old.me = attempt_of("one", epoch=3)
    guard = old.renew() and old.guard()
    assert isinstance(guard, Check)
    keeper(store, attempt_of("one", epoch=4)).renew()
    with pytest.raises(VersionConflict):
        store.transaction([guard, Create("/written", b"")])


@pytest.mark.parametrize("what", ["take", "renew", "change", "release"])
def test_a_claim_that_is_taken_at_that_moment_is_not_overwritten(what: str) -> None:
    """If a newer attempt takes a claim at the moment in which an older one changes it, the newer one keeps it."""
    store = MemoryStore()
    keeper(store, attempt_of("one")).take(throttle=1.0)
    mine, newer = keeper(store, attempt_of("one", epoch=2)), keeper(store, attempt_of("one", epoch=3))
    acts = {
        "take": mine.take,
        "renew": mine.renew,
        "change": lambda: mine.change(throttle=2.0),
        "release": mine.release,
    }
    store.before_next_writes(newer.take)
    if what == "change":
        assert acts[what]() is not None
    else:
        with pytest.raises(Superseded):
            acts[what]()
    held = newer.require()
    assert (held.epoch, held.throttle) == (3, 2.0 if what == "change" else 1.0)


def test_a_release_removes_empty_parents() -> None:
    """A released claim takes empty parents with it, and leaves those that hold something."""
    store = MemoryStore()
    for path in ("/pulsar", "/pulsar/migration-coordinator"):
        store.create(path, b"")
    me = keeper(store, attempt_of("one"))
    me.take()
    store.create("/pulsar/other", b"")
    me.release()
    me.release()
    assert set(store.nodes) == {"/pulsar", "/pulsar/other"}


def test_a_record_that_is_no_claim_is_named() -> None:
    """A record of another program at the claim's path is left alone, and the error names its path."""
    store = MemoryStore()
    store.create(CLAIM, b"hello")
    with pytest.raises(StoreConflict, match=r"holds no claim .*Invalid JSON") as refused:
        keeper(store, attempt_of("one")).take()
    assert "\n" not in str(refused.value)
    assert store.nodes[CLAIM].value == b"hello"
