"""Switch a live Pulsar cluster to other bookies on this machine, turn the old ones off, and verify the outcome.

`make demo-bookie-cluster` starts two BookKeeper clusters, brokers and a worker,
runs producers and consumers, switches through the `temporal` CLI, checks the outcome, and leaves everything running but
the old bookies. The exit code is 0 only if every check held. With `down` (`make demo-down`) it ends them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from demos.stage import Stage, say, title
from models.bookie_cluster.input import KIND
from models.bookie_cluster.phases import Phase
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from pulsar_devstack.servers.admin import NAMESPACE, StackAdmin
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.runner import Traffic

CLUSTER = "demo"
SPEC = StackSpec(
    zookeepers=1,
    bookies=2,
    second_bookies=2,
    brokers=2,
    temporal=True,
    cluster=CLUSTER,
    broker_settings={
        "brokerDeleteInactiveTopicsEnabled": "false",
        # Topics of several ledgers out of few messages.
        "managedLedgerMaxEntriesPerLedger": "200",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        # Ledgers whose messages are all consumed would be deleted otherwise.
        "defaultRetentionTimeInMinutes": "60",
        "defaultRetentionSizeInMB": "100",
    },
)
OLD_BOOKIES = ("bookie-1", "bookie-2")
TOPICS = 40
BUSY_TOPICS = 6
HISTORY = 300


def demo() -> int:
    """Run the demo from start to end and verify it; return the exit code."""
    stage = Stage(SPEC, "BookieClusterMigration", f"{KIND}/{CLUSTER}", _broker_control)
    stage.start_servers()
    stack = stage.stack
    admin = StackAdmin(stack.admin_urls[0], access=stage.admin_access)
    title("A live cluster")
    topics = admin.create_all((f"{NAMESPACE}/topic-{number:02}" for number in range(TOPICS)), CLUSTER)
    stage.grant(admin, NAMESPACE)
    say(f"{len(topics)} topics on the bookies of cluster a")
    busy = topics[:: len(topics) // BUSY_TOPICS]
    options, log = stage.client_access.options(), stage.folder / "traffic.log"
    with Traffic.here(stack.broker_url, busy, log=log, options=options) as traffic:
        say(f"from now on {len(traffic.plan.topics)} producers and {len(traffic.plan.topics)} consumers run")
        traffic.wait_for_more(HISTORY)
        stage.rehearse(_plan(stage))
        before = admin.ledger_counts(topics)
        title("The switch")
        stage.start({**_plan(stage), "rollback_window": "PT1H", "cleanup": "remove"})
        stage.cut_over(Phase.BUILD, lambda: f"{traffic.acknowledged:>7,} messages")
        stage.follow(Phase.ROLLBACK_WINDOW, lambda: f"{traffic.acknowledged:>7,} messages")
        traffic.wait_for_more(HISTORY)
        after = admin.ledger_counts(topics)
        title("The end of the rollback window: the old ledgers are deleted")
        stage.update("clean_up", {"src_cluster": "a", "dry_run": True})
        stage.signal("cleanup", "demo: checks are done")
        report = stage.report()
        title("The old bookies are stopped")
        for name in OLD_BOOKIES:
            stack[name].stop()
            say(f"{name} stopped")
        traffic.wait_for_more(HISTORY)
        traffic.stop()
    title("Verified")
    fresh = [ledger for ledger in after if ledger not in before]
    stage.check(f"every new ledger id ({min(fresh):,} and up) is above every old one", min(fresh) > max(before))
    _verify(stage, report, traffic)
    pause, away = report.figures["pause_seconds"], report.figures["brokers_away_seconds"]
    return stage.conclude(f"brokers were away for {away:.1f} s, of which the switch itself took {pause:.1f} s")


def _broker_control(stack: Path) -> dict[str, str]:
    """Return commands of the dev stack by which the worker stops and starts brokers."""
    ours = [sys.executable, "-m", "pulsar_migrate", "dev"]
    return {
        "PULSAR_MIGRATE_BROKER_STOP_COMMAND": json.dumps([*ours, "stop-brokers", "--folder", str(stack)]),
        "PULSAR_MIGRATE_BROKER_START_COMMAND": json.dumps([*ours, "start-brokers", "--folder", str(stack)]),
    }


def _plan(stage: Stage) -> dict[str, Any]:
    return {
        "cluster": CLUSTER,
        "metadata_url": stage.stack.zk_url,
        "source": {"name": "a", "metadataServiceUri": stage.stack.bookkeeper_uri},
        "target": {"name": "b", "metadataServiceUri": stage.stack.second_bookkeeper_uri},
        "routing": "restart",
        "advance_ids": True,
        "broker_control": "command",
    }


def _verify(stage: Stage, report: Report, traffic: Traffic) -> None:
    stage.check(f"outcome: {report.outcome} ({report.summary})", report.outcome is Outcome.DONE)
    seen = report.certificate
    stage.check(
        f"certificate: {seen['compared_entries_in_build']:,} entries compared next to the traffic, "
        f"{seen['compared_entries_in_tail']:,} in the pause; {seen['ledgers_compared']:,} ledgers were on both sides, "
        f"{seen['references_missing']} of {seen['references_found']:,} references lack their ledger",
        seen["references_missing"] == 0,
    )
    faults = traffic.faults()
    messages = traffic.acknowledged
    stage.check(f"all {messages:,} acknowledged messages arrived, in order, the old bookies off", not faults)
    for fault in faults:
        say(f"       {fault}")
