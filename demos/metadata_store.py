"""Move a live Pulsar cluster from ZooKeeper to Oxia on this machine, and verify that nothing was lost.

With `HARDENED=1` the target is another ZooKeeper, since Pulsar's own client of Oxia offers no certificate (5.0.1).

`make demo` starts real servers and a worker, runs producers and consumers,
migrates through the `temporal` CLI, checks the outcome, and leaves servers and worker running for a look around. The
exit code is 0 only if every check held. With `down` (`make demo-down`) it ends them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from demos.stage import Stage, say, title
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.metadata_store.input import KIND
from models.metadata_store.phases import Phase
from pulsar_devstack.hardening import is_wanted
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import StackSpec
from pulsar_devstack.traffic.pulsar_client import Churn
from pulsar_devstack.traffic.runner import Traffic

CLUSTER = "demo"
SPEC = StackSpec(
    zookeepers=1,
    bookies=1,
    brokers=2,
    oxias=0 if is_wanted() else 1,
    second_zookeepers=1 if is_wanted() else 0,
    temporal=True,
    cluster=CLUSTER,
    # Most topics here have no clients, and brokers would delete them after a minute.
    broker_settings={"brokerDeleteInactiveTopicsEnabled": "false"},
)

TENANTS = 3
NAMESPACES = 2
TOPICS = 20
BUSY_TOPICS = 6
NEW_TOPICS = 20


def demo() -> int:
    """Run the demo from start to end and verify it; return the exit code."""
    stage = Stage(SPEC, "MetadataStoreMigration", f"{KIND}/{CLUSTER}")
    stage.start_servers()
    stack = stage.stack
    admin = StackAdmin(stack.admin_urls[0], access=stage.admin_access)
    title("A live cluster")
    topics = admin.create_all((f"tenant-{t}/ns-{n}/topic-{i:02}" for t, n, i in _numbers()), CLUSTER)
    stage.grant(admin, *(f"tenant-{t}/ns-{n}" for t in range(TENANTS) for n in range(NAMESPACES)))
    say(f"{TENANTS} tenants, {TENANTS * NAMESPACES} namespaces, {len(topics)} topics")
    churn = Churn(admin, "tenant-1/ns-1/during-")
    busy = topics[:: len(topics) // BUSY_TOPICS]
    target = stack.second_zk_url if is_wanted() else stack.oxia_url
    plan = {"cluster": CLUSTER, "source": stack.zk_url, "target": target}
    options, log = stage.client_access.options(), stage.folder / "traffic.log"
    with Traffic.here(stack.broker_url, busy, log=log, options=options) as traffic, churn:
        say(f"from now on {len(traffic.plan.topics)} producers and {len(traffic.plan.topics)} consumers run,")
        say("and a client creates topics, one after the other")
        stage.rehearse(plan)
        before = admin.ledger_counts(topics)
        _migrate(stage, plan, traffic)
        _after_commit(stage, admin, [*topics, *churn.created], before)
        report = _end_window(stage)
        traffic.stop()
    _verify(stage, report, traffic)
    _verify_churn(stage, admin, churn)
    return stage.conclude(f"metadata writes were blocked for {report.figures['blocked_seconds']:.2f} s")


def _migrate(stage: Stage, plan: dict[str, Any], traffic: Traffic) -> None:
    title("The migration")
    stage.start({**plan, "validation_window": "PT1H"})
    stage.cut_over(Phase.CATCH_UP, lambda: f"{traffic.acknowledged:>7,} messages")
    stage.follow(Phase.VALIDATION, lambda: f"{traffic.acknowledged:>7,} messages")


def _end_window(stage: Stage) -> Report:
    title("The end of the validation window")
    stage.update("change_window", {"remaining": "PT30M"})
    stage.signal("cleanup", "demo: checks are done")
    return stage.report()


def _after_commit(stage: Stage, admin: StackAdmin, topics: list[str], before: Counter[int]) -> None:
    title(f"After COMPLETED: brokers write to {'the other ZooKeeper' if is_wanted() else 'Oxia'}")
    new = admin.create_all((f"tenant-0/ns-0/after-{number:02}" for number in range(NEW_TOPICS)), CLUSTER)
    fresh, now = admin.ledger_counts(new), admin.ledger_counts([*topics, *new])
    reused = sorted(ledger for ledger, uses in now.items() if uses > 1)
    say(f"ledger ids before: up to {max(before)}; of the {len(new)} new topics: {min(fresh)} to {max(fresh)}")
    stage.check(f"{len(new)} topics were created", len(new) == NEW_TOPICS and len(fresh) >= NEW_TOPICS)
    stage.check(f"{len(now)} ledgers of {len(topics) + len(new)} topics, no id used twice", not reused)
    stage.check("every new ledger id is above every old one", min(fresh) > max(before))


def _verify(stage: Stage, report: Report, traffic: Traffic) -> None:
    title("Verified")
    audit, faults = traffic.audit(), traffic.faults()
    errors = sum(sum(producer.errors.values()) for producer in audit.producers)
    stage.check(f"outcome: {report.outcome} ({report.summary})", report.outcome is Outcome.DONE)
    compared = report.certificate.get("compared_in_pre_copy", 0)
    blocked, differences = (report.certificate.get(name) for name in ("compared_while_blocked", "differences"))
    stage.check(
        f"certificate: {compared:,} records compared next to the traffic, {blocked} while writes were blocked, "
        f"{differences} differences",
        compared > 0 and differences == 0,
    )
    stage.check(f"all {traffic.acknowledged:,} acknowledged messages arrived, in order", not faults)
    stage.check(
        f"no send failed; no producer waited longer than {audit.longest_gap:.2f} s for its next message", errors == 0
    )
    for fault in faults:
        say(f"       {fault}")


def _verify_churn(stage: Stage, admin: StackAdmin, churn: Churn) -> None:
    lost = sorted(set(churn.created) - set(admin.topics.names(churn.namespace)))
    stage.check(f"all {len(churn.created)} topics that were created while the migration ran are there", not lost)
    say(f"       {churn.refused} creations were rejected while writes were blocked, and retried")
    for name in lost:
        say(f"       lost: {name}")


def _numbers() -> Iterator[tuple[int, int, int]]:
    return ((t, n, i) for t in range(TENANTS) for n in range(NAMESPACES) for i in range(TOPICS))
