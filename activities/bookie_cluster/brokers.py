"""The gate of routing `restart`: brokers stop, and start again on the other cluster; both is proven, not believed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from activities.bookie_cluster.broker_control import BrokerController
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import scan
from activities.lifecycle.brokers import BrokerView
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.registrations import Service, brokers
from models.bookie_cluster.input import BookieCluster, BrokerControl
from models.bookie_cluster.results import BrokersOn, BrokersStopped
from models.lifecycle.status import WaitKind

_POLL = 0.25
# Each of these looks reads the metadata of all ledgers on both sides.
_LEDGER_POLL = 1.0


def stop(task: BookieClusterTask, context: ActivityContext) -> BrokersStopped:
    """Have brokers stopped, and wait until none is registered.

    A broker that was killed counts as registered until its session has expired: it may be frozen, and come back.
    """
    controller = BrokerController(task.runtime.settings, task.input.broker_control, task.input.cluster)
    # A late attempt stops here, before it orders anything.
    task.renew()
    with task.broker_store() as store:
        running = brokers(store)
        seen = {broker.name for broker in running}
        if running:
            controller.ask("stop", task.ends.source.metadataServiceUri, context)
        # Whoever was told may answer before brokers are gone; only the registrations count.
        while running := brokers(store):
            seen |= {broker.name for broker in running}
            action = _by_hand(task, "stop all brokers")
            context.waiting_for(WaitKind.BROKERS_STOP, f"{_names(running)} to stop", action=action)
            context.pause(_POLL)
    context.waits_no_more()
    return BrokersStopped(since=datetime.now(UTC), brokers=tuple(sorted(seen)))


def start(task: BookieClusterTask, context: ActivityContext) -> BrokersOn:
    """Have brokers started on the target, and wait until each of them is proven to use it, and to write there."""
    target = task.ends.target
    controller = BrokerController(task.runtime.settings, task.input.broker_control, task.input.cluster)
    task.renew()
    controller.ask("start", target.metadataServiceUri, context)
    since: datetime | None = None
    with task.broker_store() as store, BrokerView(task.runtime.admin) as view:
        while True:
            running = brokers(store)
            # The pause of the clients ends with the first broker, whatever is proven later.
            since = since or (datetime.now(UTC) if running else None)
            proof = _prove(view, running, target)
            if running and since and not proof.doubts:
                # A healthy broker may still write elsewhere; new ledgers in this cluster are the last part of the
                # proof.
                created = _created_since(task)
                if created:
                    context.waits_no_more()
                    return BrokersOn(brokers=tuple(sorted(proof.evidence)), new_ledgers=created, since=since)
                proof = proof._replace(doubts=["no ledger was created in it since the switch"])
            _tell_what_is_missing(task, context, running, proof)
            context.pause(_LEDGER_POLL if running else _POLL)


class _Proof(NamedTuple):
    """What each broker showed, what is still in doubt, and who runs on another cluster."""

    evidence: list[str]
    doubts: list[str]
    misplaced: list[str]


def _prove(view: BrokerView, running: list[Service], target: BookieCluster) -> _Proof:
    proof = _Proof([], [], [])
    for broker in running:
        seen = view.bookie_cluster(broker)
        if seen.url is None:
            proof.doubts.append(f"{broker.name}: {seen.why}")
        elif not seen.url.overlaps(target.root):
            proof.doubts.append(f"{broker.name} runs on {seen.text}")
            proof.misplaced.append(broker.name)
        elif unhealthy := view.health(broker):
            proof.doubts.append(f"{broker.name}: {unhealthy}")
        else:
            proof.evidence.append(f"{broker.name}: uses {seen.text}, and its health check wrote and read a message")
    return proof


def _created_since(task: BookieClusterTask) -> int:
    """How many ledgers brokers created in the target since the switch: only new ones have ids above all old ones."""
    with task.ledgers(task.ends.source) as old, task.ledgers(task.ends.target) as new:
        left, ids = scan(old), scan(new)
    if task.input.skip_idgen_precheck:
        # Without the check ids need not grow, so a ledger is new if the other side lacks it.
        return len(ids.keys() - left.keys())
    highest = max(left, default=-1)
    return sum(ledger_id > highest for ledger_id in ids)


def _tell_what_is_missing(
    task: BookieClusterTask, context: ActivityContext, running: list[Service], proof: _Proof
) -> None:
    target = task.ends.target
    setting = f"bookkeeperMetadataServiceUri={target.metadataServiceUri}"
    if not running:
        action = _by_hand(task, f"start the brokers with {setting}")
        context.waiting_for(WaitKind.BROKERS_START, f"brokers to start with {setting}", action=action)
        return
    # Whoever started them, nobody but the operator can put this right.
    action = f"stop {', '.join(proof.misplaced)} at once, and start with {setting}" if proof.misplaced else ""
    why = f"proof that brokers write to {target.name}: {'; '.join(proof.doubts)}"
    context.waiting_for(WaitKind.BROKERS_PROOF, why, action=action)


def _by_hand(task: BookieClusterTask, action: str) -> str:
    return action if task.input.broker_control is BrokerControl.MANUAL else ""


def _names(running: list[Service]) -> str:
    return ", ".join(broker.name for broker in running)
