"""`pulsar-migrate topic-controller`: commands for the controller of a scalable topic."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, TypeAdapter, ValidationError
from temporalio.client import Client

from cli.inputs import parse_duration, read_object
from cli.migrations import Servers
from cli.operations import against_temporal, checked, hint_at_missing_attributes, query, query_line, send_update
from cli.options import Form, Output, answer, hint
from cli.tables import Sections, table_lines
from models.lifecycle.input import ClusterName
from models.lifecycle.units import Quantity, Unit, format_value
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo, SubscriptionKind
from models.topic_controller.assignment import in_order
from models.topic_controller.auto_scale import AutoScaleChange
from models.topic_controller.input import (
    KIND,
    Deletion,
    InitialPosition,
    MergeRequest,
    SplitRequest,
    SubscriptionRequest,
    Unsubscription,
    controlled_topic,
    controller_id,
)
from models.topic_controller.pruning import PruneRequest, PruneResult
from models.topic_controller.sessions import GraceChange
from models.topic_controller.state import (
    ChangePreview,
    ControllerStatus,
    LayoutChange,
    Scaling,
    SegmentStats,
    TopicReport,
)
from process.exit_codes import CommandFailed, ExitCode
from temporal.client import ANSWER_LIMIT

AnswerT = TypeVar("AnswerT")
_SIZE = Unit(Quantity.SIZE)

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="The scalable topic, e.g. persistent://shop/live/orders, or the id of its controller."
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        envvar="PULSAR_MIGRATE_CLUSTER",
        metavar="NAME",
        help="Pulsar cluster of the topic; required unless TOPIC is the id of a controller.",
    ),
]
servers = Servers.of
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what it would do, and do nothing.")]
_INVERSE = {"split": "a merge makes one segment again", "merge": "a split makes two segments again"}
_Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]


def topic_app() -> typer.Typer:
    """Return the command `topic`, with its subcommands."""
    app = typer.Typer(
        cls=Sections,
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Show and change scalable topics that a controller of pulsar-migrate leads.",
    )
    show, change = "Show", "Change"
    for name, command in {
        "list": list_command,
        "status": status_command,
        "layout": layout_command,
        "stats": stats_command,
        "consumers": consumers_command,
    }.items():
        app.command(name, rich_help_panel=show)(command)
    for name, command in {
        "split": split_command,
        "merge": merge_command,
        "subscribe": subscribe_command,
        "unsubscribe": unsubscribe_command,
        "grace": grace_command,
        "prune": prune_command,
        "auto-scale": auto_scale_command,
        "delete": delete_command,
    }.items():
        app.command(name, rich_help_panel=change)(command)
    return app


def list_command(cluster: Cluster = "", output: Output = Form.TEXT) -> None:
    """List the topics with a running controller; with `--cluster`, those of one cluster."""

    async def work(client: Client) -> list[dict[str, str]]:
        running = "WorkflowType = 'TopicController' AND ExecutionStatus = 'Running'"
        controllers = [
            {
                "cluster": named[0],
                "topic": named[1],
                "doing": str(run.search_attributes.get("MigrationPhase", ["-"])[0]),
            }
            async for run in client.list_workflows(running, rpc_timeout=ANSWER_LIMIT)
            if (named := controlled_topic(run.id)) and cluster in ("", named[0])
        ]
        if any(row["doing"] == "-" for row in controllers):
            await hint_at_missing_attributes(client)
        return controllers

    topics = sorted(against_temporal(work), key=lambda row: (row["cluster"], row["topic"]))
    rows = [("CLUSTER", "TOPIC", "DOING"), *((row["cluster"], row["topic"], row["doing"]) for row in topics)]
    answer(output, table_lines(rows) if topics else ["no topic has a controller"], list[Any](topics))


def status_command(topic: Topic, cluster: Cluster = "", output: Output = Form.TEXT) -> None:
    """Show the state of a topic, what its controller does, and what that waits for."""
    status = _ask(_id(topic, cluster), "status", ControllerStatus)
    answer(output, status_lines(status), status)


def layout_command(topic: Topic, cluster: Cluster = "", output: Output = Form.TEXT) -> None:
    """Show all segments of a topic, active and sealed."""
    layout = _ask(_id(topic, cluster), "layout", SegmentLayout)
    answer(output, layout_lines(layout), layout)


def stats_command(topic: Topic, cluster: Cluster = "", output: Output = Form.TEXT) -> None:
    """Ask the brokers for rates, sizes and backlogs, segment by segment."""
    report = _update(_id(topic, cluster), "stats", None, TopicReport)
    answer(output, stats_lines(report), report)


def consumers_command(
    topic: Topic, subscription: _Subscription, cluster: Cluster = "", output: Output = Form.TEXT
) -> None:
    """Show which segments each consumer of an ordered subscription reads."""
    segments = _ask(_id(topic, cluster), "assignments", dict[str, tuple[int, ...]], subscription)
    lists = {name: " ".join(map(str, ids)) or "-" for name, ids in sorted(segments.items())}
    rows = [("CONSUMER", "SEGMENTS"), *lists.items()]
    answer(output, table_lines(rows) if segments else [f"{subscription} has no consumers with a session"], segments)


def split_command(
    topic: Topic,
    segment: Annotated[str, typer.Argument(metavar="SEGMENT", help="Id of an active segment.")],
    *,
    dry_run: _DryRun = False,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Split an active segment in the middle of its hash range."""
    request = checked(SplitRequest, {"segment": segment})
    _changed(_id(topic, cluster), "split", request, output, dry_run=dry_run)


def merge_command(
    topic: Topic,
    segment: Annotated[str, typer.Argument(metavar="SEGMENT", help="Id of an active segment.")],
    other: Annotated[str, typer.Argument(metavar="SEGMENT", help="Id of an adjacent active segment.")],
    *,
    dry_run: _DryRun = False,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Merge two adjacent active segments into one."""
    request = checked(MergeRequest, {"segments": (segment, other)})
    _changed(_id(topic, cluster), "merge", request, output, dry_run=dry_run)


def subscribe_command(
    topic: Topic,
    subscription: _Subscription,
    *,
    kind: Annotated[SubscriptionKind, typer.Option(help="How the subscription is consumed.")] = SubscriptionKind.STREAM,
    initial_position: Annotated[
        InitialPosition, typer.Option(help="Start of the subscription: the oldest stored message, or the end.")
    ] = InitialPosition.EARLIEST,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Create a subscription at the start of every segment, or at its end."""
    given = {"name": subscription, "kind": kind, "initial_position": initial_position}
    request = checked(SubscriptionRequest, given)
    _update(_id(topic, cluster), "create_subscription", request, type(None))
    answer(output, [f"{subscription} ({kind}) has a cursor on every segment"], request)


def unsubscribe_command(
    topic: Topic, subscription: _Subscription, cluster: Cluster = "", output: Output = Form.TEXT
) -> None:
    """Delete a subscription with its cursors on all segments."""
    request = checked(Unsubscription, {"name": subscription})
    _update(_id(topic, cluster), "delete_subscription", request, type(None))
    answer(output, [f"{subscription} is deleted"], request)


def grace_command(
    topic: Topic,
    grace: Annotated[str, typer.Argument(metavar="DURATION", help="Time, for example 90s or PT5M.")],
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Set how long a consumer's session outlives its connection."""
    change = checked(GraceChange, {"grace": parse_duration(grace)})
    _update(_id(topic, cluster), "set_grace", change, type(None))
    answer(output, [f"sessions outlive their connections by {change.grace.total_seconds():g} s"], change)


def prune_command(
    topic: Topic,
    segments: Annotated[
        list[str] | None, typer.Argument(metavar="SEGMENTS", help="Ids of segments (default: all that may be removed).")
    ] = None,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also remove segments that retention keeps, or without subscriptions.")
    ] = False,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Remove sealed segments without remaining messages, and show why others stay."""
    request = checked(PruneRequest, {"segments": segments or (), "force": force})
    pruned = _update(_id(topic, cluster), "prune", request, PruneResult)
    answer(output, prune_lines(pruned), pruned)


def auto_scale_command(
    topic: Topic,
    policy: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|off", help="New policy; off: none (default: only show it).")
    ] = None,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Show or set a topic's auto scaling; the output has the last decision."""
    if policy is not None:
        given = None if policy == "off" else read_object(policy, "--policy")
        _update(_id(topic, cluster), "set_auto_scale", checked(AutoScaleChange, {"policy": given}), type(None))
    scaling = _ask(_id(topic, cluster), "auto_scale", Scaling)
    answer(output, scaling_lines(scaling), scaling)


def delete_command(
    topic: Topic,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm that all messages are deleted.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Delete even while clients are connected.")] = False,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Delete a topic with all its messages, and end its controller."""
    if not yes:
        cause = f"this deletes {topic} with all its messages, and cannot be undone."
        raise CommandFailed(ExitCode.USAGE, cause, "add --yes if you mean it")
    request = Deletion(force=force)
    _update(_id(topic, cluster), "delete", request, type(None))
    answer(output, [f"{topic} is deleted"], request)


def _changed(workflow_id: str, name: str, request: BaseModel, form: Form, *, dry_run: bool) -> None:
    if dry_run:
        preview = _ask(workflow_id, f"preview_{name}", ChangePreview, request)
        answer(form, preview_lines(name, preview), preview)
        return
    change = _update(workflow_id, name, request, LayoutChange)
    answer(form, [change_line(change)], change)


def _update(workflow_id: str, name: str, request: BaseModel | None, kind: type[AnswerT]) -> AnswerT:
    return send_update(workflow_id, name, request, kind, see=_status_of(workflow_id))


def _ask(workflow_id: str, name: str, kind: type[AnswerT], *arguments: Any) -> AnswerT:
    hint(query_line(workflow_id, name, *arguments))
    result = against_temporal(lambda client: query(client, workflow_id, name, kind, *arguments))
    if result is None:
        raise CommandFailed(ExitCode.REFUSED, f"{workflow_id} is opening its topic.", f"see {_status_of(workflow_id)}")
    return result


def _id(topic: str, cluster: str) -> str:
    """Return the id of the workflow that controls a topic; the topic may have any form that we print.

    Raises:
        CommandFailed: this is not the name of a scalable topic, or its cluster is missing, or a different one.
    """
    named = controlled_topic(topic)
    if named is not None:
        topic = named[1]
        if cluster and cluster != named[0]:
            cause = f"{KIND}/{named[0]}/{topic} is a topic of the cluster {named[0]}, not of {cluster}."
            raise CommandFailed(
                ExitCode.USAGE, cause, "leave out --cluster and PULSAR_MIGRATE_CLUSTER, or give the other topic's id"
            )
        cluster = named[0]
    if not cluster:
        cause = f"the cluster of {topic} is missing; several clusters may have a topic of this name."
        cure = "give --cluster NAME, or set PULSAR_MIGRATE_CLUSTER; pulsar-migrate topic-controller list shows both"
        raise CommandFailed(ExitCode.USAGE, cause, cure)
    try:
        return controller_id(TypeAdapter[str](ClusterName).validate_python(cluster), topic)
    except ValidationError as error:
        raise CommandFailed(
            ExitCode.USAGE, f"invalid cluster name {cluster!r}.", "correct --cluster or PULSAR_MIGRATE_CLUSTER"
        ) from error
    except ValueError as error:
        cause, _, cure = str(error).partition("; ")
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error


def _status_of(workflow_id: str) -> str:
    return f"pulsar-migrate topic-controller status {workflow_id}"


def status_lines(status: ControllerStatus) -> list[str]:
    """Return the controller's status of its topic as lines."""
    subscriptions = [_subscription(status, name) for name in sorted(status.subscriptions)]
    rows = [
        ("topic", status.topic),
        ("doing", status.doing or "nothing"),
        *([("waits for", status.waiting)] if status.waiting else []),
        ("epoch", f"{status.epoch}, {status.changes} changes in the life of this workflow"),
        *(("active", segment) for segment in status.active),
        ("sealed", str(status.sealed)),
        *(("subscr.", subscription) for subscription in subscriptions),
        *(("away", f"{name} since {format_value(since)}") for name, since in sorted(status.away.items())),
        *(("note", note) for note in status.notes),
    ]
    return [f"{about:<10} {text}" for about, text in rows]


def layout_lines(layout: SegmentLayout) -> list[str]:
    """Return all segments as lines, in the order of their hash ranges."""
    head = ("SEGMENT", "HASHES", "STATE", "PARENTS", "CHILDREN")
    return [f"epoch {layout.epoch}", *table_lines([head, *(_segment(segment) for segment in in_order(layout))])]


def preview_lines(name: str, preview: ChangePreview) -> list[str]:
    """Return the dry run of a split or merge as lines."""
    nothing = "nothing was done: this is a dry run"
    old = " and ".join(map(str, preview.seals))
    if not preview.accepted:
        return [f"the {name} of {old} would be refused: {preview.why}", nothing]
    made = " and ".join(f"{segment.segment_id} ({segment.hash_range})" for segment in preview.makes)
    after = [f"waits      for the end of: {preview.after}"] if preview.after else []
    return [
        f"the {name} of {old} would be accepted: epoch {preview.epoch}, {made} instead of {old}",
        *after,
        f"cursors    of {preview.subscriptions:,} subscriptions on each new segment",
        f"consumers  {preview.consumers:,} with a session get segments again; they read old segments to their end",
        f"undo       {_INVERSE[name]}",
        nothing,
    ]


def change_line(change: LayoutChange) -> str:
    """Return the result of a split or merge as a line."""
    made = " and ".join(f"{segment.segment_id} ({segment.hash_range})" for segment in change.made)
    return f"epoch {change.epoch}: {made} instead of {' and '.join(map(str, change.sealed))}"


def prune_lines(pruned: PruneResult) -> list[str]:
    """Return which segments were removed, and why the others stay."""
    gone = [("removed", pruned.removed), ("deleted", pruned.deleted)]
    removed = [f"{what:<10} {' '.join(map(str, ids)) or 'nothing'}" for what, ids in gone]
    return [*removed, *(f"stays      {segment_id}: {why}" for segment_id, why in sorted(pruned.retained.items()))]


def scaling_lines(scaling: Scaling) -> list[str]:
    """Return the policy and the last decision as lines."""
    if scaling.policy is None:
        return ["off"]
    fields = scaling.policy.model_dump(mode="json", by_alias=True).items()
    last = f"{scaling.decision} ({format_value(scaling.decided_at)})" if scaling.decided_at else "nothing yet"
    return [f"last decision: {last}", *(f"{name:<27} {value}" for name, value in fields)]


def stats_lines(report: TopicReport) -> list[str]:
    """Return rates, sizes and clients of each segment, and the backlog of each subscription."""
    head = ("SEGMENT", "STATE", "MSG/S", "KB/S", "STORED", "PRODUCERS", "CONSUMERS", "BACKLOG")
    return [
        f"epoch {report.epoch}",
        *table_lines([head, *(_stats(segment) for segment in report.segments)]),
        *(f"backlog of {name}: {count:,} messages" for name, count in sorted(report.subscriptions.items())),
        *(
            f"segment {segment.descriptor}: {segment.unavailable_reason}"
            for segment in report.segments
            if segment.unavailable_reason
        ),
    ]


def _subscription(status: ControllerStatus, name: str) -> str:
    consumers = status.consumers.get(name, 0)
    with_sessions = f", {consumers} consumers with a session" if consumers else ""
    return f"{name} ({status.subscriptions[name]}){with_sessions}"


def _segment(segment: SegmentInfo) -> tuple[str, ...]:
    parents, children = (" ".join(map(str, ids)) or "-" for ids in (segment.parent_ids, segment.child_ids))
    return (str(segment.segment_id), str(segment.hash_range), segment.state.lower(), parents, children)


def _stats(segment: SegmentStats) -> tuple[str, ...]:
    state = "unknown" if segment.unavailable_reason else "active" if segment.active else "sealed"
    clients = (str(segment.producers), str(sum(segment.consumers.values())), f"{sum(segment.backlog.values()):,}")
    rates = (f"{segment.messages_in:,.1f}", f"{segment.bytes_in / 1000:,.1f}")
    return (segment.descriptor, state, *rates, _SIZE.format(segment.stored_bytes), *clients)
