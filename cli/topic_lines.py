"""Scalable topics as text: how one stands, its segments, and their statistics."""

from __future__ import annotations

from cli.tables import table_lines
from models.lifecycle.units import Quantity, Unit, format_value
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo
from models.topic_controller.assignment import in_order
from models.topic_controller.pruning import Pruned
from models.topic_controller.state import ControllerStatus, LayoutChange, Scaling, SegmentStats, TopicReport

_SIZE = Unit(Quantity.SIZE)


def status_lines(status: ControllerStatus) -> list[str]:
    """Everything that the controller says of its topic."""
    subscriptions = [_subscription(status, name) for name in sorted(status.subscriptions)]
    found = [
        ("topic", status.topic),
        ("doing", status.doing or "nothing"),
        *([("waits for", status.waiting)] if status.waiting else []),
        ("epoch", f"{status.epoch}, {status.changes} changes in the life of this workflow"),
        *(("active", one) for one in status.active),
        ("sealed", str(status.sealed)),
        *(("subscr.", one) for one in subscriptions),
        *(("away", f"{name} since {format_value(since)}") for name, since in sorted(status.away.items())),
        *(("note", note) for note in status.notes),
    ]
    return [f"{about:<10} {text}" for about, text in found]


def layout_lines(layout: SegmentLayout) -> list[str]:
    """All segments, in the order of their hashes."""
    head = ("SEGMENT", "HASHES", "STATE", "PARENTS", "CHILDREN")
    return [f"epoch {layout.epoch}", *table_lines([head, *(_segment(one) for one in in_order(layout))])]


def change_line(change: LayoutChange) -> str:
    """What a split or a merge did."""
    made = " and ".join(f"{one.segment_id} ({one.hash_range})" for one in change.made)
    return f"epoch {change.epoch}: {made} instead of {' and '.join(map(str, change.sealed))}"


def prune_lines(pruned: Pruned) -> list[str]:
    """What has gone, and why the rest stays."""
    gone = [("removed", pruned.removed), ("deleted", pruned.deleted)]
    told = [f"{what:<10} {' '.join(map(str, ids)) or 'nothing'}" for what, ids in gone]
    return [*told, *(f"stays      {number}: {why}" for number, why in sorted(pruned.kept.items()))]


def scaling_lines(scaling: Scaling) -> list[str]:
    """The policy, and the last decision."""
    if scaling.policy is None:
        return ["off"]
    fields = scaling.policy.model_dump(mode="json", by_alias=True).items()
    last = f"{scaling.decision} ({format_value(scaling.decided_at)})" if scaling.decided_at else "nothing yet"
    return [f"last decision: {last}", *(f"{name:<27} {value}" for name, value in fields)]


def stats_lines(report: TopicReport) -> list[str]:
    """Rates, sizes and clients of each segment, and the backlog of each subscription."""
    head = ("SEGMENT", "STATE", "MSG/S", "KB/S", "STORED", "PRODUCERS", "CONSUMERS", "BACKLOG")
    return [
        f"epoch {report.epoch}",
        *table_lines([head, *(_stats(one) for one in report.segments)]),
        *(f"backlog of {name}: {count:,} messages" for name, count in sorted(report.subscriptions.items())),
        *(f"segment {one.descriptor}: {one.trouble}" for one in report.segments if one.trouble),
    ]


def _subscription(status: ControllerStatus, name: str) -> str:
    consumers = status.consumers.get(name, 0)
    with_sessions = f", {consumers} consumers with a session" if consumers else ""
    return f"{name} ({status.subscriptions[name]}){with_sessions}"


def _segment(segment: SegmentInfo) -> tuple[str, ...]:
    parents, children = (" ".join(map(str, ids)) or "-" for ids in (segment.parent_ids, segment.child_ids))
    return (str(segment.segment_id), str(segment.hash_range), segment.state.lower(), parents, children)


def _stats(one: SegmentStats) -> tuple[str, ...]:
    state = "unknown" if one.trouble else "active" if one.active else "sealed"
    clients = (str(one.producers), str(sum(one.consumers.values())), f"{sum(one.backlog.values()):,}")
    rates = (f"{one.messages_in:,.1f}", f"{one.bytes_in / 1000:,.1f}")
    return (one.descriptor, state, *rates, _SIZE.format(one.stored_bytes), *clients)
