"""Make two topics of a live Pulsar cluster scalable on this machine, under V5 clients, and verify the outcome.

`make demo-scalable-topic` starts a cluster, a Temporal server and a worker, runs Pulsar's V5 Java clients on two topics
of three partitions, makes both scalable through the `temporal` CLI, checks the outcome, and leaves everything running.
One topic has ordered subscriptions, which are drained first; the other one takes messages throughout. The exit code is
0 only if every check held. With `down` (`make demo-down`) it ends them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from demos.stage import Stage, say, title
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, WaitKind
from models.scalable_topic.input import KIND
from models.scalable_topic.phases import Phase
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.audit import DeliveryAudit
from pulsar_devstack.traffic.plan import TopicPlan
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan
from pulsar_devstack.traffic.scalable_traffic import Absence, ScalableTraffic
from pulsar_devstack.traffic.two_clusters import create_namespace

CLUSTER = "demo"
SPEC = StackSpec(zookeepers=1, bookies=1, brokers=2, temporal=True, cluster=CLUSTER)
NAMESPACE = "shop/live"
PARTITIONS = 3
RATE = 20
BACKLOG = 60
HISTORY = 60
# How long the consumer of a backlog is away: it keeps DRAIN waiting so long.
AWAY = Absence(returns=2, waits=6)

ORDERS = ScalableTopicPlan(f"persistent://{NAMESPACE}/orders", PARTITIONS, ordered=True, interval=1 / RATE)
CLICKS = ScalableTopicPlan(f"persistent://{NAMESPACE}/clicks", PARTITIONS, ordered=False, interval=1 / RATE)
TOPICS = (ORDERS, CLICKS)


def demo() -> int:
    """Run the demo from start to end and verify it; return the exit code."""
    stage = Stage(SPEC, "ScalableTopicMigration", _workflow(ORDERS))
    stage.start_servers()
    with PulsarAdmin.open(stage.admin_access, stage.stack.admin_urls) as admin:
        title("A live cluster")
        _create_topics(stage, admin)
        with _traffic(stage, admin) as traffic:
            traffic.wait_for_more(HISTORY)
            stage.rehearse(_plan(stage, ORDERS))
            _migrate_ordered(stage, admin, traffic)
            _migrate_under_traffic(stage, admin, traffic)
            title("Everybody is back")
            absent = traffic.wait_until_all_are_back()
            traffic.wait_for_more(HISTORY)
            reports = [_end(stage, plan) for plan in TOPICS]
            audit = traffic.stop()
            title("Verified")
            stage.check(f"every consumer found its topic{_named(absent)}", not absent)
    _verify(stage, reports, audit)
    return stage.conclude(f"no producer waited longer than {audit.longest_send:.2f} s for an acknowledgement")


def _workflow(plan: ScalableTopicPlan) -> str:
    return f"{KIND}/{CLUSTER}/{TopicName.parse(plan.topic).local_path}"


def _plan(stage: Stage, plan: ScalableTopicPlan) -> dict[str, Any]:
    return {
        "cluster": CLUSTER,
        "metadata_url": stage.stack.metadata_url,
        "admin_urls": list(stage.stack.admin_urls),
        "topic": plan.topic,
    }


def _create_topics(stage: Stage, admin: PulsarAdmin) -> None:
    create_namespace(admin, CLUSTER, NAMESPACE, [TopicPlan(plan.topic, plan.partitions, (), ()) for plan in TOPICS])
    stage.grant(admin, NAMESPACE)
    for plan in TOPICS:
        subscriptions = ", ".join(
            f"{regular_consumer.subscription} ({regular_consumer.type})" for regular_consumer in plan.regular_consumers
        )
        say(f"{plan.topic}: {plan.partitions} partitions; subscriptions {subscriptions}")


@contextmanager
def _traffic(stage: Stage, admin: PulsarAdmin) -> Generator[ScalableTraffic]:
    tools = with_scalable_clients(stage.stack.state.toolchain)
    with ScalableTraffic(
        stage.stack.broker_url,
        admin,
        TOPICS,
        stage.folder,
        tools,
        backlog=BACKLOG,
        absence=AWAY,
        access=stage.client_access,
    ) as traffic:
        say(f"regular clients left {BACKLOG} messages in each subscription; from now on V5 clients send and receive")
        say("`stays` has its consumer throughout, that of `returns` leaves for a while, that of `waits` comes later")
        yield traffic


def _migrate_ordered(stage: Stage, admin: PulsarAdmin, traffic: ScalableTraffic) -> None:
    """Migrate the topic with ordered subscriptions: show the waits, and how they end."""
    title("The topic with ordered subscriptions: these must be consumed first")
    stage.start({**_plan(stage, ORDERS), "cleanup": "remove", "grace_window": "PT1H"})
    stage.follow(Phase.CLIENTS, lambda: _messages(traffic), WaitKind.CLIENTS)
    title("Its producer is silent, and its old consumers read to the end")
    traffic.step_aside()
    stage.cut_over(Phase.CLIENTS, lambda: _messages(traffic))
    stage.follow(Phase.GRACE, lambda: _messages(traffic))
    _show_layout(admin, ORDERS)


def _migrate_under_traffic(stage: Stage, admin: PulsarAdmin, traffic: ScalableTraffic) -> None:
    """Migrate the other topic under traffic, without any wait."""
    title("The topic without: it becomes scalable while messages are sent")
    stage.workflow_id = _workflow(CLICKS)
    plan = {**_plan(stage, CLICKS), "hold_before_cutover": False, "cleanup": "remove", "grace_window": "PT1H"}
    stage.start({**plan, "auto_scale": {"min_segments": PARTITIONS}})
    stage.follow(Phase.GRACE, lambda: _messages(traffic))
    _show_layout(admin, CLICKS)


def _messages(traffic: ScalableTraffic) -> str:
    return f"{traffic.audit().acknowledged:>6,} messages"


def _show_layout(admin: PulsarAdmin, plan: ScalableTopicPlan) -> None:
    say(f"{plan.scalable_topic}:")
    for _, segment in sorted(admin.scalable_topics.layout(TopicName.parse(plan.topic)).segments.items()):
        stored = segment.legacy_topic_name or "its own"
        say(f"  segment {segment.segment_id}  hashes {segment.hash_range}  {segment.state:<6}  messages in {stored}")


def _end(stage: Stage, plan: ScalableTopicPlan) -> Report:
    """End the grace window of a topic, and keep the regular one."""
    stage.workflow_id = _workflow(plan)
    stage.signal("proceed", "demo: checks are done")
    return stage.report()


def _verify(stage: Stage, reports: list[Report], audit: DeliveryAudit) -> None:
    for report in reports:
        seen = report.certificate
        stage.check(f"outcome: {report.outcome} ({report.summary})", report.outcome is Outcome.DONE)
        stage.check(
            f"certificate: {seen['partitions']} partitions became {seen['segments']} segments, {seen['subscriptions']} "
            "subscriptions have a place on each, no old message is left",
            seen["segments"] == PARTITIONS and not seen["faults"] and not seen["undrained"],
        )
        call, flip = report.figures["migrate_seconds"], report.figures["flip_seconds"]
        say(f"       the brokers' call took {call:.2f} s, and with all that it leaves out {flip:.2f} s")
    stage.check(
        f"all {audit.acknowledged:,} acknowledged messages arrived at each subscription, at ordered ones in order, "
        "and no client is dead",
        not audit.faults(),
    )
    for fault in audit.faults():
        say(f"       {fault}")


def _named(absent: dict[str, str]) -> str:
    return "".join(f"; {name}: {why}" for name, why in absent.items())
