"""`pulsar-migrate topic`: what operators ask of the controller of a scalable topic."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, TypeAdapter, ValidationError
from temporalio.client import Client

from cli.inputs import parse_duration, read_json
from cli.migrations import Servers
from cli.operations import against_temporal, checked, query, query_line, send_update
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
from models.topic_controller.state import ControllerStatus, LayoutChange, Scaling, SegmentStats, TopicReport
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
        help="The Pulsar cluster of the topic; needed unless TOPIC is the id of a controller.",
    ),
]
servers = Servers.of
_Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")]


def topic_app() -> typer.Typer:
    """The command `topic`, with all commands below it."""
    app = typer.Typer(
        cls=Sections,
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Look at scalable topics with a controller of ours, and change them.",
    )
    look, change = "Look", "Change"
    for name, command in {
        "list": list_command,
        "status": status_command,
        "layout": layout_command,
        "stats": stats_command,
        "consumers": consumers_command,
    }.items():
        app.command(name, rich_help_panel=look)(command)
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
    """List the topics that have a controller which runs; with `--cluster`, those of one cluster."""

    async def work(client: Client) -> list[dict[str, str]]:
        running = "WorkflowType = 'ScalableTopicController' AND ExecutionStatus = 'Running'"
        return [
            {
                "cluster": named[0],
                "topic": named[1],
                "doing": str(run.search_attributes.get("MigrationPhase", ["-"])[0]),
            }
            async for run in client.list_workflows(running, rpc_timeout=ANSWER_LIMIT)
            if (named := controlled_topic(run.id)) and cluster in ("", named[0])
        ]

    found = sorted(against_temporal(work), key=lambda row: (row["cluster"], row["topic"]))
    rows = [("CLUSTER", "TOPIC", "DOING"), *((row["cluster"], row["topic"], row["doing"]) for row in found)]
    answer(output, table_lines(rows) if found else ["no topic has a controller"], list[Any](found))


def status_command(topic: Topic, cluster: Cluster = "", output: Output = Form.TEXT) -> None:
    """Say how a topic stands, what its controller does, and what that waits for."""
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
    found = _ask(_id(topic, cluster), "assignments", dict[str, tuple[int, ...]], subscription)
    rows = [("CONSUMER", "SEGMENTS"), *((name, " ".join(map(str, ids)) or "-") for name, ids in sorted(found.items()))]
    answer(output, table_lines(rows) if found else [f"{subscription} has no consumers with a session"], found)


def split_command(
    topic: Topic,
    segment: Annotated[str, typer.Argument(metavar="SEGMENT", help="Id of an active segment.")],
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Divide an active segment in the middle of its hashes."""
    _changed(_id(topic, cluster), "split", checked(SplitRequest, {"segment": segment}), output)


def merge_command(
    topic: Topic,
    one: Annotated[str, typer.Argument(metavar="SEGMENT", help="Id of an active segment.")],
    other: Annotated[str, typer.Argument(metavar="SEGMENT", help="Id of a neighbour of it.")],
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Make one segment of two active neighbours."""
    _changed(_id(topic, cluster), "merge", checked(MergeRequest, {"segments": (one, other)}), output)


def subscribe_command(
    topic: Topic,
    subscription: _Subscription,
    *,
    kind: Annotated[SubscriptionKind, typer.Option(help="How it is consumed.")] = SubscriptionKind.STREAM,
    initial_position: Annotated[
        InitialPosition, typer.Option(help="Where a new one starts: with all that the topic still has, or at its end.")
    ] = InitialPosition.EARLIEST,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Create a subscription, at the start of every segment, or at its end."""
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
    grace: Annotated[str, typer.Argument(metavar="DURATION", help="For example 90s or PT5M.")],
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Set how long sessions of consumers outlive their connections."""
    change = checked(GraceChange, {"grace": parse_duration(grace)})
    _update(_id(topic, cluster), "set_grace", change, type(None))
    answer(output, [f"sessions outlive their connections by {change.grace.total_seconds():g} s"], change)


def prune_command(
    topic: Topic,
    segments: Annotated[
        list[str] | None, typer.Argument(metavar="SEGMENTS", help="Ids; all that may go by default.")
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also what retention keeps, or nobody subscribed to.")] = False,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Remove sealed segments of which nothing is left, and say why others stay."""
    request = checked(PruneRequest, {"segments": segments or (), "force": force})
    pruned = _update(_id(topic, cluster), "prune", request, PruneResult)
    answer(output, prune_lines(pruned), pruned)


def auto_scale_command(
    topic: Topic,
    policy: Annotated[str | None, typer.Option(metavar="JSON|@FILE|off", help="The new policy; off for none.")] = None,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Show how a topic scales by itself, and what was decided last; or set it."""
    if policy is not None:
        given = None if policy == "off" else read_json(policy, "--policy")
        _update(_id(topic, cluster), "set_auto_scale", checked(AutoScaleChange, {"policy": given}), type(None))
    scaling = _ask(_id(topic, cluster), "auto_scale", Scaling)
    answer(output, scaling_lines(scaling), scaling)


def delete_command(
    topic: Topic,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Really: its messages are gone then.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while clients are connected.")] = False,
    cluster: Cluster = "",
    output: Output = Form.TEXT,
) -> None:
    """Delete a topic with all its messages, and end its controller."""
    if not yes:
        cause = f"this deletes {topic} with all its messages, and nothing brings them back."
        raise CommandFailed(ExitCode.USAGE, cause, "add --yes if you mean it")
    request = Deletion(force=force)
    _update(_id(topic, cluster), "delete", request, type(None))
    answer(output, [f"{topic} is deleted"], request)


def _changed(workflow_id: str, name: str, request: BaseModel, form: Form) -> None:
    change = _update(workflow_id, name, request, LayoutChange)
    answer(form, [change_line(change)], change)


def _update(workflow_id: str, name: str, request: BaseModel | None, kind: type[AnswerT]) -> AnswerT:
    return send_update(workflow_id, name, request, kind, see=_status_of(workflow_id))


def _ask(workflow_id: str, name: str, kind: type[AnswerT], *arguments: Any) -> AnswerT:
    hint(query_line(workflow_id, name, *arguments))
    found = against_temporal(lambda client: query(client, workflow_id, name, kind, *arguments))
    if found is None:
        raise CommandFailed(ExitCode.REFUSED, f"{workflow_id} is opening its topic.", f"see {_status_of(workflow_id)}")
    return found


def _id(topic: str, cluster: str) -> str:
    """Return the id of the workflow that controls a topic, which may be named in any form that we print.

    Raises:
        CommandFailed: this is not the name of a scalable topic, or its cluster is missing, or another one.
    """
    named = controlled_topic(topic)
    if named is not None:
        topic = named[1]
        if cluster and cluster != named[0]:
            cause = f"{KIND}/{named[0]}/{topic} is a topic of the cluster {named[0]}, and not of {cluster}."
            raise CommandFailed(
                ExitCode.USAGE, cause, "leave out --cluster and PULSAR_MIGRATE_CLUSTER, or give the other topic's id"
            )
        cluster = named[0]
    if not cluster:
        cause = f"the cluster of {topic} is missing; several clusters may have a topic of this name."
        cure = "give --cluster NAME, or set PULSAR_MIGRATE_CLUSTER; pulsar-migrate topic list shows both"
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
    return f"pulsar-migrate topic status {workflow_id}"


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
        *(("subscr.", subscription) for subscription in subscriptions),
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


def prune_lines(pruned: PruneResult) -> list[str]:
    """What has gone, and why the rest stays."""
    gone = [("removed", pruned.removed), ("deleted", pruned.deleted)]
    told = [f"{what:<10} {' '.join(map(str, ids)) or 'nothing'}" for what, ids in gone]
    return [*told, *(f"stays      {number}: {why}" for number, why in sorted(pruned.retained.items()))]


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


def _stats(one: SegmentStats) -> tuple[str, ...]:
    state = "unknown" if one.unavailable_reason else "active" if one.active else "sealed"
    clients = (str(one.producers), str(sum(one.consumers.values())), f"{sum(one.backlog.values()):,}")
    rates = (f"{one.messages_in:,.1f}", f"{one.bytes_in / 1000:,.1f}")
    return (one.descriptor, state, *rates, _SIZE.format(one.stored_bytes), *clients)
