"""Move all traffic of a live Pulsar cluster to another one on this machine, and verify the outcome.

`make demo-blue-green` starts two clusters, a Temporal server and a worker, runs Python and Java clients with all four
types of subscriptions, moves four namespaces through the `temporal` CLI, the canary first, checks the outcome, and
leaves everything running. The exit code is 0 only if every check held. With `down` (`make demo-down`) it ends them.
"""

from __future__ import annotations

from typing import Any

from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.topics import TopicStats
from demos.stage import Stage, say, title
from models.blue_green.input import KIND
from models.blue_green.phases import Phase
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome, WaitKind
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.audit import DeliveryAudit
from pulsar_devstack.traffic.plan import TopicPlan, mixed_topics
from pulsar_devstack.traffic.runner import Traffic
from pulsar_devstack.traffic.two_clusters import create_namespace, pieces

BLUE, GREEN = "blue", "green"
# The default is 0: brokers never look for topics to move.
_SETTINGS = {"clusterMigrationCheckDurationSeconds": "1"}
BLUE_SPEC = StackSpec(zookeepers=1, bookies=1, brokers=2, temporal=True, cluster=BLUE, broker_settings=_SETTINGS)
GREEN_SPEC = StackSpec(zookeepers=1, bookies=1, brokers=1, cluster=GREEN, broker_settings=_SETTINGS)
CANARY = "shop/canary"
OTHERS = ("shop/orders", "shop/payments", "shop/stock")
TOPICS_EACH = 2
RATE = 20
HISTORY = 100


def demo() -> int:
    """Run the demo from start to end and verify it; return the exit code."""
    stage = Stage(BLUE_SPEC, "BlueGreenMigration", f"{KIND}/{BLUE}", second=GREEN_SPEC)
    stage.start_servers()
    access = stage.admin_access
    blue, green = stage.stack, stage.second
    with PulsarAdmin.open(access, blue.admin_urls) as of_blue, PulsarAdmin.open(access, green.admin_urls) as of_green:
        topics = _live_namespaces(stage, of_blue)
        tools = blue.state.toolchain
        with Traffic.in_programs(blue.broker_url, topics, stage.folder, tools, access=stage.client_access) as traffic:
            consumers = sum(len(topic.consumers) for topic in topics)
            say(f"from now on {len(topics)} producers and {consumers} consumers run, in Python and in Java")
            traffic.wait_for_more(HISTORY)
            stage.rehearse(_plan(blue, green))
            _move(stage, traffic)
            clients_on_blue = _clients(of_blue, topics)
            traffic.wait_for_more(HISTORY)
            there = _clients(of_green, topics)
            # Not `cleanup`: it waits until no client has connected to blue for a while, and these clients just did.
            title("The end of the grace window: blue's topics stay")
            stage.signal("proceed", "demo: checks are done")
            report = stage.report()
            traffic.wait_for_more(HISTORY)
            audit = traffic.stop()
        title("Verified")
        stage.check(
            f"no client is left on blue; {there} producers and consumers are on green", there and not clients_on_blue
        )
    _verify(stage, report, audit)
    return stage.conclude(f"no producer waited longer than {audit.longest_gap:.1f} s for an acknowledgement")


def _live_namespaces(stage: Stage, blue: PulsarAdmin) -> list[TopicPlan]:
    """Create namespaces with all kinds of topics: plain, partitioned, with batches, with schemas."""
    title("A live cluster")
    plans: list[TopicPlan] = []
    for number, namespace in enumerate((CANARY, *OTHERS)):
        begin = number * TOPICS_EACH
        topics = mixed_topics(namespace, begin + TOPICS_EACH, RATE)[begin:]
        create_namespace(blue, BLUE, namespace, topics)
        stage.grant(blue, namespace)
        say(f"{namespace}: {', '.join(str(name) for topic in topics for name in pieces(topic))}")
        plans += topics
    return plans


def _move(stage: Stage, traffic: Traffic) -> None:
    def client_counts() -> str:
        return f"{traffic.audit().acknowledged:>6,} messages"

    title("The migration: first the canary")
    stage.start({**_plan(stage.stack, stage.second), "grace_window": "PT1H"})
    stage.cut_over(Phase.PROVISION, client_counts)
    stage.follow(Phase.FLIP, client_counts, WaitKind.GATE)
    title("The canary is on green, and does well: continue")
    stage.signal("proceed", "demo: the canary does well")
    stage.follow(Phase.GRACE, client_counts)


def _plan(blue: Stack, green: Stack) -> dict[str, Any]:
    return {
        "cluster": BLUE,
        "blue": _reached(blue),
        "green_cluster": GREEN,
        "green": _reached(green),
        "namespaces": [CANARY, "shop/*"],
        # Hardened brokers have them for scalable topics, and no client here names one.
        "accept": ["LISTENERS"] if blue.state.spec.pulsar_security else [],
    }


def _reached(stack: Stack) -> dict[str, Any]:
    tls = "_tls" if stack.state.spec.pulsar_security else ""
    return {
        "metadata_url": stack.metadata_url,
        "admin_urls": list(stack.admin_urls),
        f"service_url{tls}": stack.admin_urls[0],
        f"broker_service_url{tls}": stack.broker_url,
    }


def _clients(admin: PulsarAdmin, topics: list[TopicPlan]) -> int:
    """Count the producers and consumers of these topics on a cluster."""
    there = {name for plan in topics for name in admin.topics.names(_namespace(plan))}
    stats = [admin.topics.stats(name) for plan in topics for name in pieces(plan) if str(name) in there]
    return sum(map(_connected, stats))


def _connected(stats: TopicStats) -> int:
    return len(stats.publishers) + sum(len(sub.consumers) for sub in stats.subscriptions.values())


def _namespace(plan: TopicPlan) -> str:
    return "/".join(plan.topic.partition("://")[2].split("/")[:2])


def _verify(stage: Stage, report: Report, audit: DeliveryAudit) -> None:
    seen = report.certificate
    stage.check(f"outcome: {report.outcome} ({report.summary})", report.outcome is Outcome.DONE)
    stage.check(
        f"certificate: {seen['topics_compared']} topics and partitions compared, {seen['subscriptions_on_green']} "
        f"subscriptions on green, {seen['missing_clients']} clients missing",
        not seen["faults"] and not seen["missing_clients"],
    )
    stage.check(
        f"all {audit.acknowledged:,} acknowledged messages arrived, in order, and no client is dead",
        not audit.faults(),
    )
    for fault in audit.faults():
        say(f"       {fault}")
