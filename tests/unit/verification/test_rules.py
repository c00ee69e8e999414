"""Rules of verifications: equal records, and phases with two sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError
from temporalio.exceptions import ApplicationError

from activities.lifecycle.context import ActivityContext
from activities.verification.context import Comparison, MigrationGate
from activities.verification.ledgers import LedgerComparison, LedgerSide
from activities.verification.stores import StoreComparison, StoreRules
from clients.verification.kazoo_records import KazooRecords
from clients.verification.ledger_records import Fragment, LedgerNode
from clients.verification.records import Answer, RecordReader, StoredRecord
from models.bookie_cluster.input import KIND as BOOKIE_CLUSTER
from models.bookie_cluster.input import Routing
from models.lifecycle.status import ProgressUnit, WaitKind
from models.metadata_store.input import KIND as METADATA_STORE
from models.store_url import parse_store_url
from models.verification.input import LedgerRange, Readiness, VerificationInput, objection, readiness
from models.verification.results import NAMED, Named, Tally, VerificationCertificate
from worker.catalog import KINDS

ZOOKEEPER, OTHER, OXIA = map(parse_store_url, ("zk:a:2181", "zk:b:2181", "oxia://c:6648"))
COORDINATOR = "/pulsar/migration-coordinator"
COMMIT = 1_000
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def record(value: bytes = b"v", version: int = 3, counter: int = 0, **more: bool | int) -> StoredRecord:
    """Return a record that was written before the commit."""
    given: dict[str, int] = {"is_ephemeral": False, "created_ms": COMMIT - 1, "changed_ms": COMMIT - 1, **more}
    return StoredRecord(value, version, counter, **given)  # pyright: ignore[reportArgumentType]


LIVE = StoreRules(ZOOKEEPER, OXIA)
BETWEEN = StoreRules(ZOOKEEPER, OTHER, lambda: COMMIT)
BACK = StoreRules(OXIA, ZOOKEEPER, lambda: COMMIT)


@pytest.mark.parametrize(
    ("rules", "source", "target", "committed", "expected"),
    [
        (LIVE, record(), record(), False, "equal"),
        (LIVE, record(), record(b"w"), False, "other value (from byte 0)"),
        (LIVE, record(b"abc"), record(b"ab"), False, "other value (3 and 2 bytes)"),
        (LIVE, record(), record(version=4), False, "version 3, and 4 in the target"),
        (LIVE, record(), record(version=2), True, "version 3, and 2 in the target"),
        (LIVE, record(), record(b"w", version=4), True, "written in the target since the commit"),
        (LIVE, record(), record(b"w"), True, "other value (from byte 0)"),
        (LIVE, record(), record(is_ephemeral=True), False, "a session holds it in the target"),
        (LIVE, record(is_ephemeral=True), None, False, "held by a session"),
        (
            LIVE,
            record(b"", counter=9),
            record(b"", counter=8),
            False,
            "numbers of children continue at 8",
        ),
        (LIVE, record(b"v", counter=9), record(b"v", counter=8), False, "equal"),
        (BETWEEN, record(), record(version=0, created_ms=COMMIT + 1), True, "written in the target since the commit"),
        (
            BETWEEN,
            record(version=0),
            record(b"w", version=0, created_ms=COMMIT + 1),
            True,
            "written in the target since",
        ),
        (BETWEEN, record(version=0), record(version=0, created_ms=COMMIT + 1), True, "equal"),
        (BETWEEN, record(version=0), record(b"w", version=0), True, "other value (from byte 0)"),
        (BETWEEN, record(), record(version=0), True, "version 3, and 0 in the target"),
        (BETWEEN, record(), record(version=0, created_ms=COMMIT + 1), False, "version 3, and 0 in the target"),
        (BACK, record(), record(version=0), False, "equal"),
        (BACK, record(), record(b"w", version=1), True, "written in the target since the commit"),
        (BACK, record(), record(b"w", version=0), True, "other value (from byte 0)"),
        (BACK, record(b"", counter=9), record(b"", version=0, counter=9), False, "numbers of children continue at 9"),
    ],
)
def test_pairs_of_records(
    rules: StoreRules, source: StoredRecord, target: StoredRecord | None, committed: bool, expected: str
) -> None:
    """A pair is equal, not compared, or different, with the reason."""
    verdict = rules.judge("/p", source, target, committed=committed)
    assert (verdict.reason or verdict.sort).startswith(expected)


def test_a_ledger_that_the_target_lacks_before_the_commit() -> None:
    """A metadata store has the metadata of each ledger before the commit: one that the target lacks is a difference."""
    path, metadata = "/ledgers/00/0000/L0001", record(b"closed")
    assert LIVE.judge(path, metadata, None, committed=False).sort == "different"
    assert LIVE.judge(path, metadata, None, committed=True).sort == "excluded"


def ledger(*, is_closed: bool) -> LedgerNode:
    """Return the metadata of a ledger without entries."""
    fragments = (Fragment(0, ("b",)),)
    return LedgerNode(is_closed, -1, 0, "CRC32C", b"", (), 1, fragments)


def ledger_side(ledgers: dict[int, LedgerNode]) -> LedgerSide:
    """Return a cluster with ledgers that have no entries."""

    def ids() -> dict[int, str]:
        return {ledger_id: str(ledger_id) for ledger_id in ledgers}

    def read(paths: list[str]) -> list[LedgerNode]:
        return [ledgers[int(path)] for path in paths]

    return LedgerSide(cast("Any", SimpleNamespace(ids=ids, ledgers=read)), cast("Any", None))


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (
            "BUILD",
            {
                "closed ledgers that the target does not have before the commit: copied in a later round, or not to be "
                "moved": ["2"],
                "ledgers that are open": ["3"],
                "ledgers that only the target has": ["4"],
            },
        ),
        (
            "ROLLBACK_WINDOW",
            {
                "ledgers that the target does not have after the commit: not copied, not to be moved, or deleted "
                "there": ["2", "3"],
                "ledgers that only the target has": ["4"],
            },
        ),
    ],
)
def test_ledgers_that_one_side_has(phase: str, expected: dict[str, list[str]]) -> None:
    """Before the commit closed ledgers that the target lacks are counted apart from open ones, which come later."""
    closed, unclosed = ledger(is_closed=True), ledger(is_closed=False)
    source, target = ledger_side({1: closed, 2: closed, 3: unclosed}), ledger_side({1: closed, 4: closed})
    tally = compare_ledgers(source, target, [phase], Routing.RESTART)
    assert tally.equal == 1
    assert {reason: named.items for reason, named in tally.excluded.items()} == expected


@pytest.mark.parametrize(
    ("phase", "routing", "differing"),
    [
        ("BUILD", Routing.RESTART, []),
        ("ROLLBACK_WINDOW", Routing.ATTRIBUTION, []),
        (
            "ROLLBACK_WINDOW",
            Routing.RESTART,
            [
                "ledger 1, open in the target: its copy is unfinished",
                "ledger 2, open in the source: its copy may be unfinished",
                "ledger 3, open in the target: its copy is unfinished",
            ],
        ),
    ],
)
def test_unfinished_copies(phase: str, routing: Routing, differing: list[str]) -> None:
    """Open ledgers that both sides have differ once brokers read only the target: nothing finishes their copies."""
    closed, unclosed = ledger(is_closed=True), ledger(is_closed=False)
    source, target = (
        ledger_side({1: closed, 2: unclosed, 3: unclosed}),
        ledger_side({1: unclosed, 2: closed, 3: unclosed}),
    )
    tally = compare_ledgers(source, target, [phase], routing)
    assert tally.differing.items == differing
    assert sum(named.count for named in tally.excluded.values()) == (0 if differing else 3)


def test_copies_back_are_not_unfinished_copies() -> None:
    """A rollback that begins during the comparison copies ledgers to the source, which are open there until then."""
    source, target = ledger_side({5: ledger(is_closed=False)}), ledger_side({5: ledger(is_closed=True)})
    with pytest.raises(ApplicationError, match="there are not two sides to compare: it is in ROLLED_BACK"):
        compare_ledgers(source, target, ["ROLLBACK_WINDOW", "ROLLED_BACK"], Routing.RESTART)


def compare_ledgers(source: LedgerSide, target: LedgerSide, phases: list[str], routing: Routing) -> Tally:
    """Compare two clusters, while the migration says that it is in these phases, the last one until the end."""
    context = ActivityContext()
    gate = MigrationGate(lambda: (phases.pop(0) if phases[1:] else phases[0], True), BOOKIE_CLUSTER, context)
    comparison = Comparison(context, make_input(ledgers="0-9"), gate, ProgressUnit.LEDGERS)
    LedgerComparison(comparison, source, target, LedgerRange(0, 9), routing).run()
    return comparison.tally


def test_phases_with_two_sides() -> None:
    """Both sides are compared during a hold and after the commit, and never while clients wait."""
    assert readiness("metadata-store", "CATCH_UP", running=True) is Readiness.READY
    assert readiness("metadata-store", "COPYING", running=True) is Readiness.URGENT
    assert readiness("metadata-store", "VALIDATION", running=False) is Readiness.COMMITTED
    assert readiness("metadata-store", "CATCH_UP", running=False) is Readiness.NOTHING
    assert readiness("bookie-cluster", "ROLLBACK_WINDOW", running=True) is Readiness.COMMITTED
    assert "it is in PRE_COPY; possible in CATCH_UP" in objection("metadata-store", "PRE_COPY", running=True)
    assert "it has ended in FAILED" in objection("metadata-store", "FAILED", running=False)


def test_every_kind_is_supported_or_refused_with_a_reason() -> None:
    """Kinds without a verification say why."""
    reasons = {kind: objection(kind, "CATCH_UP", running=True) for kind in KINDS}
    assert not reasons.pop("metadata-store")
    assert all(len(reason) > 20 for reason in reasons.values())


def test_the_gate_waits_while_clients_wait() -> None:
    """While the migration is urgent nothing is read, and the wait has a reason; a rollback ends the verification."""
    phases = iter([("PREPARATION", True), ("COPYING", True), ("VALIDATION", True), ("FAILED", True)])
    waits: list[str] = []

    class Resting(ActivityContext):
        def pause(self, seconds: float) -> None:
            del seconds
            waiting = self.report().waiting
            assert waiting is not None
            assert waiting.kind is WaitKind.MIGRATION
            waits.append(waiting.why)

    gate = MigrationGate(lambda: next(phases), "metadata-store", Resting())
    gate.check()
    assert waits == [f"the migration, for whose {phase} clients wait" for phase in ("PREPARATION", "COPYING")]
    assert gate.committed
    gate.ask_again()
    with pytest.raises(ApplicationError, match="there are not two sides to compare: it is in FAILED"):
        gate.check()


class Records(RecordReader):
    """A store of a test's own, which calls a function before each read."""

    def __init__(self, records: dict[str, StoredRecord], before: Callable[[], object] = lambda: None) -> None:
        self.records = records
        self.before = before

    @property
    def layout(self) -> str:
        """Nothing."""
        return ""

    def paths(self, scope: str, after: str) -> Iterator[list[str]]:
        """Yield all paths."""
        del scope
        if not after:
            yield sorted(self.records)

    def read(self, paths: Sequence[str]) -> list[Answer]:
        """Return records."""
        self.before()
        return [self.records.get(path) for path in paths]


@pytest.mark.parametrize("when", ["pause", "read"])
def test_a_commit_during_the_second_look_is_no_difference(when: str) -> None:
    """A record that services wrote since is counted apart, although the difference was first seen before that."""
    phase = "CATCH_UP"
    source, target = Records({"/a": record(), "/b": record()}), Records({"/a": record(version=2), "/b": record()})

    def commit() -> None:
        nonlocal phase
        phase = "VALIDATION"
        target.records = {"/a": record(b"w", version=9), "/b": record()}

    class Resting(ActivityContext):
        def pause(self, seconds: float) -> None:
            del seconds
            if when == "pause":
                commit()
            else:
                target.before = commit

    context = Resting()
    gate = MigrationGate(lambda: (phase, True), "metadata-store", context)
    comparison = Comparison(context, make_input(), gate, ProgressUnit.RECORDS)
    gate.check()
    StoreComparison(comparison, LIVE, source, target, ("",)).run()
    assert (comparison.tally.equal, comparison.tally.differing.items) == (1, [])
    assert comparison.tally.excluded["written in the target since the commit"].items == ["/a"]


def test_numbers_given_during_a_comparison_are_no_difference() -> None:
    """A parent whose children get numbers all the time is counted apart; a value that differs counts all the same."""
    source = Records({"/ids": record(b"", counter=8), "/values": record(b"a", counter=8)})
    target = Records({"/ids": record(b"", counter=7), "/values": record(b"b")})

    class Resting(ActivityContext):
        def pause(self, seconds: float) -> None:
            del seconds
            source.records = {"/ids": record(b"", counter=9), "/values": record(b"a", counter=9)}
            target.records["/ids"] = record(b"", counter=8)

    context = Resting()
    gate = MigrationGate(lambda: ("CATCH_UP", True), "metadata-store", context)
    comparison = Comparison(context, make_input(), gate, ProgressUnit.RECORDS)
    StoreComparison(comparison, LIVE, source, target, ("",)).run()
    assert comparison.tally.excluded["changed in the source while it was compared"].items == ["/ids"]
    assert comparison.tally.differing.items == ["/values: other value (from byte 0)"]


def test_keys_that_are_not_text_are_compared() -> None:
    """A key of Oxia that is not UTF-8 is named, and the next attempt continues with what was counted."""
    key = "/a\udcff"
    source, target = Records({"/a": record()}), Records({"/a": record(), key: record()})
    context = ActivityContext()
    gate = MigrationGate(lambda: ("CATCH_UP", True), "metadata-store", context)
    comparison = Comparison(context, make_input(recheck_after="PT0S"), gate, ProgressUnit.RECORDS)
    StoreComparison(comparison, LIVE, source, target, ("",)).run()
    assert comparison.tally.differing.items == ["/a\\xff: only in the target"]
    assert key in comparison.tally.position
    continued = Comparison(ActivityContext(context.noted), make_input(), gate, ProgressUnit.RECORDS)
    assert continued.tally == comparison.tally


def test_own_keys_that_are_not_text_are_counted_apart() -> None:
    """A key of the migration's own coordination is excluded by a name that can be shown."""
    context = ActivityContext()
    gate = MigrationGate(lambda: ("CATCH_UP", True), "metadata-store", context)
    comparison = Comparison(context, make_input(), gate, ProgressUnit.RECORDS)
    both = Records({f"{COORDINATOR}/\udcff": record()})
    StoreComparison(comparison, LIVE, both, both, ("",)).run()
    (excluded,) = comparison.tally.excluded.values()
    assert excluded.items == [f"{COORDINATOR}/\\xff"]


class Nodes(KazooRecords):
    """A ZooKeeper whose nodes all exist, without a connection."""

    def _ask(self, start: object, paths: Sequence[str]) -> Iterator[tuple[str, object]]:
        stat = SimpleNamespace(version=0, cversion=0, numChildren=0, ephemeralOwner=0, ctime=1, mtime=1)
        return ((path, (path.encode(), stat)) for path in paths)


def test_keys_that_are_not_paths_of_nodes() -> None:
    """ZooKeeper has no node for a key of Oxia that is not a path, and is not asked for another node instead."""
    keys = ["/a\udcff", "a", "/a//b", "/a/", "/a/./b", "/", "/é/b"]
    answers = Nodes(ZOOKEEPER, timeout=1).read(keys)
    assert [answer.value if isinstance(answer, StoredRecord) else answer for answer in answers] == [
        *[None] * 6,
        "/é/b".encode(),
    ]


@pytest.mark.parametrize(
    "values", [{"paths": ["admin"]}, {"paths": ["/admin/"]}, {"ledgers": "9-3"}, {"ledgers": "9"}, {"throttle": 0}]
)
def test_wrong_scopes_are_refused(values: dict[str, object]) -> None:
    """A path or a range that cannot be meant is refused."""
    with pytest.raises(ValidationError):
        make_input(**values)


def test_a_path_beneath_another_is_compared_once() -> None:
    """Paths that are beneath other ones are left out."""
    assert make_input(paths=["/b", "/a/c", "/a", "/ab"]).paths == ("/a", "/ab", "/b")


def test_lists_are_cut_and_counted() -> None:
    """A certificate names the first items of each kind, and counts all."""
    tally = Tally()
    for number in range(10 * NAMED):
        tally.differing.add(str(number))
    assert (tally.differing.count, len(tally.differing.items)) == (10 * NAMED, NAMED)


def certificate(**changes: object) -> VerificationCertificate:
    """Return a certificate of ten equal items, with changes."""
    given: dict[str, object] = {
        **dict.fromkeys(("migration", "migration_run", "scope", "source", "target", "method", "sha256"), "x"),
        "committed": True,
        "compared": 10,
        "equal": 10,
        "equal_bytes": 1_000,
        "attempts": 1,
        "excluded": {},
        "differing": Named(),
        "unreadable": Named(),
        "started": NOW,
        "ended": NOW,
    }
    return VerificationCertificate.model_validate({**given, **changes})


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({}, "result     equal: 10 of 10 equal, 1.0 kB"),
        ({"differing": Named(count=1, items=["a: b"])}, "result     NOT EQUAL: 10 of 10 equal, 1.0 kB"),
        ({"unreadable": Named(count=1, items=["a: b"])}, "result     NOT EQUAL: 10 of 10 equal, 1.0 kB"),
        ({"compared": 0, "equal": 0, "equal_bytes": 0}, "result     NOTHING COMPARED: 0 of 0 equal, 0 B"),
    ],
)
def test_a_certificate_holds_only_for_what_was_compared(changes: dict[str, object], result: str) -> None:
    """A certificate holds if something was compared, all of it is equal, and everything was readable."""
    made = certificate(**changes)
    assert made.lines()[0] == result
    assert made.holds is ("equal:" in result)


def test_the_digest_depends_on_order_and_content() -> None:
    """The digest covers every item in its order."""
    digests: set[str] = set()
    for items in ((b"a", b"b"), (b"b", b"a"), (b"ab",), (b"a",)):
        tally = Tally()
        for item in items:
            tally.add_equal(item, 1)
        digests.add(tally.digest)
    assert len(digests) == 4


def make_input(**values: object) -> VerificationInput:
    """Return the input of a verification."""
    kind = BOOKIE_CLUSTER if "ledgers" in values else METADATA_STORE
    given: dict[str, object] = {"cluster": "c", "migration": "m", "migration_run": "r", "migration_kind": kind}
    return VerificationInput.model_validate({**given, "migration_input": {}, **values})


@pytest.mark.parametrize(
    ("kind", "scope", "reason"),
    [
        (METADATA_STORE, {"ledgers": "1-2"}, "ledgers are the scope of a bookie-cluster; m is a metadata-store"),
        (BOOKIE_CLUSTER, {"paths": ("/admin",)}, "paths are the scope of a metadata-store; m is a bookie-cluster"),
        (BOOKIE_CLUSTER, {"ledgers": f"1-{1 << 63}"}, "invalid range"),
    ],
)
def test_a_scope_that_would_limit_nothing(kind: str, scope: dict[str, object], reason: str) -> None:
    """A certificate never names a scope that was not the one of the comparison."""
    with pytest.raises(ValidationError, match=reason):
        make_input(migration_kind=kind, **scope)
