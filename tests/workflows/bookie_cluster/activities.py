"""Usual answers of the activities of the bookie cluster migration."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from models.bookie_cluster.input import KIND
from models.bookie_cluster.results import (
    MISSING,
    NOT_COPIED,
    BrokersOn,
    BrokersStopped,
    CleanupTargets,
    CopySummary,
    Directive,
    IdCheck,
    LedgersDeleted,
    LedgerSurvey,
    Promotion,
    Registration,
    RollbackReadiness,
    SwitchCensus,
    SwitchPrecheck,
    TailCopy,
)
from models.lifecycle.failures import Blocker, FailedItem, FailedItems
from tests.workflows.lifecycle import doubles

PLAN: dict[str, Any] = {
    "metadata_url": "zk:zk-1:2181",
    "source": {"name": "old", "metadataServiceUri": "zk+hierarchical://zk-1:2181/ledgersA"},
    "target": {"name": "new", "metadataServiceUri": "zk+hierarchical://zk-1:2181/ledgersB"},
    "hold_before_cutover": False,
}
READY = SwitchPrecheck(
    blockers=(),
    warnings=("a ledger has one replica only",),
    steps=("register both clusters", "copy the closed ledgers"),
    survey=LedgerSurvey(
        ledgers=1200,
        unsealed=4,
        entry_bytes=34_000_000,
        kinds={"managed-ledger": 1100, "schema": 100},
        references=1190,
        dangling=(),
        dangling_count=0,
        largest_ensemble=2,
    ),
    ids=IdCheck(highest=1300, next_id=4294967296, cure=0),
    brokers=("broker-1", "broker-2"),
    bookies=("bookie-3", "bookie-4"),
    free_bytes=10**12,
    needed_bytes=68_000_000,
    estimated_copy_seconds=12.0,
    estimated_pause_seconds=3.0,
    estimate_basis="a probe wrote 5.7 MB/s just now",
)
BLOCKER = Blocker(code="IDS_TOO_LOW", cause="new ids would collide.", cure='set "advance_ids"')
BLOCKED = READY.model_copy(update={"blockers": (BLOCKER,)})
SAFE = IdCheck(highest=1300, next_id=4294967296, cure=0)
TOO_LOW = IdCheck(highest=1300, next_id=21, cure=1)
BUILT = CopySummary(copied=1190, equal=6, left_open=4, entries=34_000, entry_bytes=35_000_000, compared=34_200)
FAILED = CopySummary(
    copied=1188,
    failed=FailedItems.of(
        NOT_COPIED,
        [FailedItem(ledger_id=7, reason="no replica gives entry 3"), FailedItem(ledger_id=9, reason="differs")],
    ),
)
TAIL = TailCopy(copy_summary=CopySummary(copied=4, recovered=4, entries=40), checked=1200, removed=1, references=1190)
LOST = FailedItems.of(
    MISSING, [FailedItem(ledger_id=7, path="/managed-ledgers/t", reason="its data ledger is not in new")]
)
HOLED = TAIL.model_copy(update={"copy_summary": FAILED, "missing": LOST})
NOT_PROMOTED = "attribution(s) did not become new"
PROMOTED = Promotion(
    schemas=100,
    cursors=20,
    already=3,
    rollovers=2,
    deferred=("t/sub: its ledger 8 is open",),
    deferred_count=1,
    failed=FailedItems(what=NOT_PROMOTED),
)
CONTESTED = PROMOTED.model_copy(update={"contested": 3})
TARGETS = CleanupTargets(
    cluster="old", ledgers=1100, entry_bytes=30_000_000, examples=(1, 2, 3), retained=2, reasons=("2 are referred to",)
)
CENSUS = SwitchCensus(
    brokers=("broker-1: new", "broker-2: new"),
    misrouted_ledgers=(),
    attributions_set_again=0,
    target_only=5,
    target_only_bytes=2_500_000,
    targets=TARGETS,
)


def stopped(now: datetime) -> BrokersStopped:
    """Return the result of a stop after which no broker is registered."""
    return BrokersStopped(since=now, brokers=("broker-1", "broker-2"))


def _directed(now: datetime) -> Directive:
    return Directive(epoch=7, at=now + timedelta(seconds=40))


def _started(now: datetime) -> BrokersOn:
    evidence = ("broker-1: created ledger 4294967296",)
    return BrokersOn(brokers=evidence, new_ledgers=2, since=now + timedelta(seconds=150), away_since=now)


ANSWERS: dict[str, Any] = {
    "register": Registration(added=("old", "new"), epoch=6),
    "precheck": READY,
    "check_ids": SAFE,
    "advance_ids": SAFE,
    "build": BUILT,
    "stop_brokers": stopped,
    "copy_tail": TAIL,
    "set_target": _directed,
    "start_brokers": _started,
    "find_early_ledgers": "",
    "check_rollback": RollbackReadiness(),
    "do_without_target": TailCopy(copy_summary=CopySummary(), checked=0, removed=0, references=1190),
    "promote": PROMOTED,
    "census": CENSUS,
    "list_targets": TARGETS,
    "flip_statuses": None,
    "delete_ledgers": LedgersDeleted(deleted=1100, remaining=0),
    "remove_copies": LedgersDeleted(deleted=1196, remaining=0),
    "release": None,
    "set_pace": None,
    "set_read_mode": None,
    "close_client": None,
}

BEGIN = ["register", "precheck", "build"]
PAUSE = ["stop_brokers", "check_ids", "copy_tail", "set_target"]
RESTART = [*BEGIN, *PAUSE, "start_brokers"]
ATTRIBUTION = [*BEGIN, "check_ids", "set_target", "build", "promote"]
"""The steps before the window, in their order."""

BEGIN_BACK = ["find_early_ledgers", "release"]
"""The rollback of routing `restart` before brokers are asked to stop."""

STOPPED_BACK = [
    "check_rollback",
    "stop_brokers",
    "advance_ids",
    "check_ids",
    "copy_tail",
    "set_target",
    "start_brokers",
]
"""The rollback of routing `restart` once brokers were directed to the target."""

COPY_BACK = ["check_rollback", "build", *STOPPED_BACK]
"""The same once they serve there: the source is looked at again before they stop."""


class Script(doubles.Script):
    """Script of the answers of the activities of one bookie cluster migration."""

    kind: ClassVar[str] = KIND
    input: ClassVar[dict[str, Any]] = {**PLAN, "routing": "restart"}
    usual: ClassVar[dict[str, Any]] = ANSWERS


class AttributionScript(Script):
    """The same for brokers with the plugin."""

    input: ClassVar[dict[str, Any]] = {**PLAN, "routing": "attribution"}
