"""Answers of the steps of a metadata store migration without failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from models.lifecycle.status import Status
from models.metadata_store.input import KIND
from models.metadata_store.results import (
    CatchUp,
    Census,
    ChangeCopy,
    CleanupStep,
    Completion,
    LateWrites,
    Precheck,
    PreCopy,
    Preparation,
    Restoration,
    Survey,
    Verification,
)
from models.migration_flag import FlagPhase
from tests.workflows.lifecycle import doubles
from tests.workflows.lifecycle.doubles import OWN_QUEUE

PLAN: dict[str, Any] = {
    "source": "zk:zk-1:2181/pulsar",
    "target": "oxia://oxia-1:6648/pulsar",
    "hold_before_cutover": False,
}

SURVEY = Survey(
    records=12,
    value_bytes=340,
    ephemerals=3,
    largest_path="/managed-ledgers/a",
    largest_bytes=90,
    unreadable=(),
    unreadable_count=0,
)
READY = Precheck(
    blockers=(),
    warnings=("the target is not empty",),
    survey=SURVEY,
    participants=("broker-1", "bookie-1"),
    flag=FlagPhase.NOT_STARTED,
    estimated_copy_seconds=4.0,
    estimated_blocked_seconds=2.5,
    estimate_basis="the source was read in 1.0 s just now",
)
COPIED = PreCopy(
    since_zxid=77,
    copied=12,
    copied_bytes=340,
    copy_seconds=3.0,
    compared=12,
    compare_seconds=1.0,
    repaired=1,
    rounds=2,
    version_floor=10_012,
    worker_queue=OWN_QUEUE,
)
ANSWERS: dict[str, Any] = {
    "precheck": READY,
    "pre_copy": COPIED,
    "copy_whole": COPIED,
    "catch_up": CatchUp(since_zxid=99, changed=5, gap="", version_floor=10_012, worker_queue=OWN_QUEUE),
    "prepare": Preparation(ephemerals=3, seconds=0.5),
    "copy_changes": ChangeCopy(by="watch", gap="", changed=4, written=3, deleted=1, seconds=0.2),
    "verify": Verification(compared=4, repaired=2, whole=False, seconds=0.3),
    "complete": Completion(blocked_seconds=1.75),
    "unblock_writes": Restoration(committed=False, flag=FlagPhase.FAILED),
    "clear_target": 12,
    "follow": LateWrites(),
    "forget_watch": None,
    "unblock_leftover": False,
    "set_speed": None,
    "census": Census(services=(), unknown=()),
    "count_source": 12,
    "clean_source": CleanupStep(removed=12, remaining=0),
}
"""What each step answers unless a script says otherwise: a migration without trouble."""

LIVE = ["precheck", "pre_copy", "prepare", "copy_changes", "verify", "complete"]
HELD = [*LIVE[:2], "catch_up", *LIVE[2:]]
OFFLINE = ["precheck", "copy_whole", "verify", "complete"]
"""The steps before the window, in their order."""


class Script(doubles.Script):
    """Steps of one metadata store migration, with scripted answers."""

    kind: ClassVar[str] = KIND
    input: ClassVar[dict[str, Any]] = PLAN
    usual: ClassVar[dict[str, Any]] = ANSWERS
    unlisted: ClassVar[frozenset[str]] = frozenset({"follow", "forget_watch"})


def between_rounds(script: doubles.Script) -> Callable[[Status], bool]:
    """Return a condition: rounds of a hold have answered, and none runs.

    The test server breaks where a round ends at the moment in which it is cancelled.
    """
    each = ANSWERS["catch_up"].changed
    return lambda status: status.figures.get("caught_up_before_cutover", 0) == each * script.steps.count("catch_up") > 0
