"""Both sides of a migration in numbers, who is still on the old one, and what clients felt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from models.lifecycle.status import Outcome, Progress, ProgressTask
from models.lifecycle.units import Quantity, Unit
from page.guide import BATCH, Guide
from views.migration import View

_NUMBER = Unit(Quantity.NUMBER)

Values = Mapping[str, Any]


class Sides(NamedTuple):
    """Two bars: they become equal, or one falls as the other rises.

    Attributes:
        unit: what is counted.
        old, new: counts of both sides.
        total: length of a full bar.
        crossing: what leaves the old side arrives on the new one; otherwise the new side becomes a copy.
        note: how the numbers came about.
    """

    unit: str
    old: int
    new: int
    total: int
    crossing: bool
    note: str

    @property
    def equal(self) -> bool:
        """True once nothing is missing on the new side."""
        return self.new >= self.total

    @property
    def share(self) -> float:
        """Share of the new side, from 0 to 1."""
        return min(1.0, self.new / self.total) if self.total else 1.0


class MigrationData(NamedTuple):
    """Data of a migration, from its status or its report."""

    phase: str
    facts: Values
    figures: Values
    certificate: Values
    progress: Progress | None
    failed: int
    undone: bool


def data_of(view: View, guide: Guide | None) -> MigrationData:
    """Return the data of a migration."""
    status, report = view.status, view.report
    return MigrationData(
        phase=status.phase if status else view.phase,
        facts=status.facts if status else {},
        figures=report.figures if report else status.figures if status else {},
        certificate=report.certificate if report else {},
        progress=status.progress if status and not view.ended else None,
        failed=sum(items.count for items in status.failed_items) if status else 0,
        undone=view.failure is not None or bool(guide and _is_undone(view, guide)),
    )


def _is_undone(view: View, guide: Guide) -> bool:
    if view.report:
        return view.report.outcome is Outcome.ROLLED_BACK
    return view.status is not None and view.status.phase in guide.rollback


def sides_of(kind: str, data: MigrationData) -> Sides | None:
    """Return both sides of a migration; None where they are unknown: before the first count, and after a rollback."""
    count = _COUNTS.get(kind)
    return count(data) if count and not data.undone else None


def _metadata_store(data: MigrationData) -> Sides | None:
    total = _number(data.facts, "precheck", "survey", "records")
    copied = _number(data.figures, "copied_records")
    compared = _number(data.certificate, "compared_in_pre_copy")
    if compared is not None:
        return _copy("records", compared, compared, "all records were compared")
    if total is None:
        return None
    if copied is not None:
        return _copy("records", max(total, copied), copied, "counted in PRECHECK; brokers write in the meantime")
    return _copying("records", total, data.progress)


def _bookie_cluster(data: MigrationData) -> Sides | None:
    compared = _number(data.certificate, "ledgers_compared")
    if compared is not None:
        return _copy("ledgers", compared, compared, "all ledgers were compared")
    total = _number(data.facts, "precheck", "survey", "ledgers")
    if total is None:
        return None
    copies = [_values(data.figures, name) for name in ("build", "tail")]
    done = [_number(copy, name) for copy in copies for name in ("copied_ledgers", "equal_ledgers")]
    if any(number is not None for number in done):
        copied = sum(number or 0 for number in done)
        note = "counted in PRECHECK; brokers create and delete some"
        unsealed = _number(data.facts, "precheck", "survey", "unsealed")
        if unsealed and not _values(data.figures, "tail"):
            note = f"open ledgers, {_NUMBER.format(unsealed)} at PRECHECK, are copied in SWITCH"
        return _copy("ledgers", max(total, copied), copied, note)
    return _copying("ledgers", total, data.progress)


def _blue_green(data: MigrationData) -> Sides | None:
    total = _number(data.facts, "precheck", "survey", "namespaces")
    moved = _number(data.figures, "namespaces_moved")
    return _moving("namespaces", total, moved, data)


def _batch(data: MigrationData) -> Sides | None:
    clients = [_number(data.facts, "loaded", name) for name in ("producers", "consumers")]
    if clients[0] is None:
        return None
    total = sum(number or 0 for number in clients)
    missing = _number(data.facts, "drained", "missing_count")
    gone = data.phase in {"DRAIN", "VERIFY"} or missing is not None
    remaining = (missing or 0) if gone else total
    note = "redirected; counted at the end of DRAIN" if gone and missing is None else ""
    return Sides("clients", remaining, total - remaining, total, crossing=True, note=note)


def _topic(data: MigrationData) -> Sides | None:
    backlog = _number(data.facts, "precheck", "backlog")
    if backlog is None:
        return None
    drained = _values(data.facts, "drained")
    remaining = sum(cast("Mapping[str, int]", drained.get("backlogs") or {}).values()) if drained else backlog
    note = "unconsumed messages; new ones go to the segments after FLIP"
    return Sides("old messages", remaining, max(0, backlog - remaining), backlog, crossing=True, note=note)


def _namespace(data: MigrationData) -> Sides | None:
    total = _number(data.facts, "survey", "topics")
    return _moving("topics", total, _number(data.figures, "topics_scalable"), data)


def _operation(data: MigrationData) -> Sides | None:
    total = _number(data.facts, "precheck", "topics")
    outcome = _values(data.facts, "outcome")
    done = [_number(outcome, name) for name in ("changed", "unchanged", "with_findings")]
    return _moving("topics", total, sum(number or 0 for number in done) if outcome else None, data)


_COUNTS = {
    "metadata-store": _metadata_store,
    "bookie-cluster": _bookie_cluster,
    "blue-green": _blue_green,
    BATCH: _batch,
    "scalable-topic": _topic,
    "scalable-namespace": _namespace,
    "scalable-operation": _operation,
}


def _copy(unit: str, old: int, new: int, note: str) -> Sides:
    return Sides(unit, old, new, max(old, new), crossing=False, note=note)


def _copying(unit: str, total: int, progress: Progress | None) -> Sides:
    """Return the sides of a copy that runs, or of the comparison after it, which reads both sides."""
    if progress and progress.unit == unit and progress.task is ProgressTask.COPY:
        return _copy(unit, max(total, progress.total or 0), progress.done, "")
    if progress and progress.unit == unit and progress.task is ProgressTask.COMPARE:
        share = f"{100 * progress.done / progress.total:.0f} % compared" if progress.total else "being compared"
        return _copy(unit, total, total, share)
    return _copy(unit, total, 0, "")


def _moving(unit: str, total: int | None, moved: int | None, data: MigrationData) -> Sides | None:
    """Return the sides of items that move one after the other; those that failed stay where they are."""
    progress = data.progress
    if progress and progress.unit == unit and progress.total and progress.task in _MOVES:
        total, moved = progress.total, max(moved or 0, progress.done - data.failed)
    if total is None:
        return None
    new = min(moved or 0, total)
    return Sides(unit, total - new, new, total, crossing=True, note="")


_MOVES = frozenset((ProgressTask.MIGRATE, ProgressTask.OPERATE))


class Fact(NamedTuple):
    """A check of the old side, in words.

    Attributes:
        label: what was checked.
        items: those that were found.
        good: whether this is as it should be.
    """

    label: str
    items: tuple[str, ...]
    good: bool


# Fact, its label, and whether the list must be empty.
_OLD_SIDE: dict[str, Sequence[tuple[str, str, bool]]] = {
    "metadata-store": (
        ("still_on_source", "services that still use the old store", True),
        ("not_known", "not known", True),
    ),
    "bookie-cluster": (
        ("misplaced_brokers", "brokers that do not use the new cluster", True),
        ("misrouted_ledgers", "ledgers that brokers created on the old cluster since the switch", True),
        ("brokers", "registered brokers, and the cluster that each uses", False),
        ("deferred", "cursors and schemas that stay on the old cluster", True),
    ),
    "blue-green": (
        ("busy", "topics that were in use on blue at COMPLETE", True),
        ("differences", "differences between blue and green", True),
    ),
}
_CENSUS = (("connections", "connections to blue"), ("topics", "topics on blue"))
_PARTICIPANTS = {
    "metadata-store": (("participants", "brokers and bookies at PRECHECK"),),
    "bookie-cluster": (("brokers", "brokers at PRECHECK"), ("bookies", "bookies of the new cluster")),
}


def old_side(kind: str, data: MigrationData) -> list[Fact]:
    """Return who is still on the old side, as the last check found it."""
    facts: list[Fact] = []
    for name, label, empty in _OLD_SIDE.get(kind, ()):
        items = data.facts.get(name)
        if items is not None:
            facts.append(_fact(label, items, good=not items or not empty))
    census = _values(data.facts, "census")
    for name, label in _CENSUS:
        count = _number(census, name)
        if count is not None:
            facts.append(Fact(f"{label}: {_NUMBER.format(count)}", (), count == 0))
    if not facts:
        precheck = _values(data.facts, "precheck")
        facts = [_fact(label, precheck.get(name) or (), good=True) for name, label in _PARTICIPANTS.get(kind, ())]
        facts = [fact for fact in facts if fact.items]
    return facts


def _fact(label: str, items: Sequence[str], *, good: bool) -> Fact:
    return Fact(f"{label}: {_NUMBER.format(len(items))}", tuple(items), good)


FELT = frozenset((
    "blocked_seconds",
    "pause_seconds",
    "brokers_away_seconds",
    "rollback_brokers_away_seconds",
    "longest_quiesce_seconds",
    "longest_final_copy_seconds",
    "longest_flip_seconds",
    "longest_drain_seconds",
    "quiesce_seconds",
    "final_copy_seconds",
    "flip_seconds",
    "drain_seconds",
    "held_seconds",
    "longest_seconds",
))  # fmt: skip
"""Figures that say what clients felt."""


def verdict(data: MigrationData) -> str:
    """Return the result of the comparison of both sides, as the certificate has it; empty before the end."""
    differences = _number(data.certificate, "differences")
    missing = _number(data.certificate, "references_missing")
    faults = data.certificate.get("faults")
    if differences is not None:
        return f"differences: {_NUMBER.format(differences)}"
    if missing is not None:
        return f"references without a ledger: {_NUMBER.format(missing)}"
    if isinstance(faults, list):
        return f"faults: {_NUMBER.format(len(cast('list[Any]', faults)))}"
    return f"faults: {_NUMBER.format(faults)}" if isinstance(faults, int) else ""


def estimate_of(data: MigrationData, name: str) -> float | None:
    """Return an estimate of PRECHECK; None if it has none."""
    estimate = _values(data.facts, "precheck").get(name)
    return float(estimate) if isinstance(estimate, int | float) else None


def _values(values: Values, *names: str) -> Values:
    """Return a nested model as JSON has it; empty where it is missing."""
    for name in names:
        inner = values.get(name)
        values = cast("Values", inner) if isinstance(inner, Mapping) else {}
    return values


def _number(values: Values, *names: str) -> int | None:
    number = _values(values, *names[:-1]).get(names[-1])
    return number if isinstance(number, int) and not isinstance(number, bool) else None
