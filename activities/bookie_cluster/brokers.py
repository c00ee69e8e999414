"""The gate of routing `restart`: brokers stop, and start again on the other cluster; both is proven, not believed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from activities.bookie_cluster.broker_control import BrokerController
from activities.bookie_cluster.context import SwitchContext
from activities.bookie_cluster.ledgers import scan
from activities.lifecycle.brokers import BrokerView
from activities.lifecycle.registrations import Service, brokers
from activities.lifecycle.runner import ActivityContext
from models.bookie_cluster.input import BookieCluster, BrokerControl
from models.bookie_cluster.results import BrokersOn, BrokersStopped

_POLL = 0.25
_LEDGER_POLL = 1.0


def stop(work: SwitchContext, context: ActivityContext) -> BrokersStopped:
    """Have brokers stopped, and wait until none is registered.

    A broker that was killed counts as registered until its session has expired: it may be frozen, and come back.
    """
    controller = BrokerController(work.runtime.settings, work.input.broker_control, work.input.cluster)
    with work.broker_store() as store:
        running = brokers(store)
        seen = {broker.name for broker in running}
        if running:
            controller.ask("stop", work.ends.source.metadataServiceUri, context)
        while running := brokers(store):
            seen |= {broker.name for broker in running}
            context.waiting_for(f"{_by_hand(work)}{_names(running)} to stop")
            context.pause(_POLL)
    context.waiting_for("")
    return BrokersStopped(since=datetime.now(UTC), brokers=tuple(sorted(seen)))


def start(work: SwitchContext, context: ActivityContext) -> BrokersOn:
    """Have brokers started on the target, and wait until each of them is proven to use it, and to write there."""
    target = work.ends.target
    controller = BrokerController(work.runtime.settings, work.input.broker_control, work.input.cluster)
    controller.ask("start", target.metadataServiceUri, context)
    since: datetime | None = None
    with work.broker_store() as store, BrokerView(work.runtime.settings) as view:
        while True:
            running = brokers(store)
            since = since or (datetime.now(UTC) if running else None)
            proof = _prove(view, running, target)
            if running and since and not proof.doubts:
                created = _created_since(work)
                if created:
                    context.waiting_for("")
                    return BrokersOn(brokers=tuple(sorted(proof.evidence)), new_ledgers=created, since=since)
                proof = proof._replace(doubts=["no ledger was created in it since the switch"])
            context.waiting_for(_what_is_missing(work, running, proof))
            context.pause(_LEDGER_POLL if running else _POLL)


class _Proof(NamedTuple):
    """What each broker showed, and what is still in doubt."""

    evidence: list[str]
    doubts: list[str]


def _prove(view: BrokerView, running: list[Service], target: BookieCluster) -> _Proof:
    proof = _Proof([], [])
    for broker in running:
        seen = view.bookie_cluster(broker)
        if seen.url is None:
            proof.doubts.append(f"{broker.name}: {seen.why}")
        elif not seen.url.overlaps(target.root):
            proof.doubts.append(
                f"{broker.name} runs on {seen.text}; stop it at once and start it with "
                f"bookkeeperMetadataServiceUri={target.metadataServiceUri}"
            )
        elif unhealthy := view.health(broker):
            proof.doubts.append(f"{broker.name}: {unhealthy}")
        else:
            proof.evidence.append(f"{broker.name}: uses {seen.text}, and its health check wrote and read a message")
    return proof


def _created_since(work: SwitchContext) -> int:
    """How many ledgers brokers created in the target since the switch: only new ones have ids above all old ones."""
    with work.ledgers(work.ends.source) as old, work.ledgers(work.ends.target) as new:
        left, ids = scan(old), scan(new)
    if work.input.skip_idgen_precheck:
        return len(ids.keys() - left.keys())
    highest = max(left, default=-1)
    return sum(ledger_id > highest for ledger_id in ids)


def _what_is_missing(work: SwitchContext, running: list[Service], proof: _Proof) -> str:
    if not running:
        return (
            f"{_by_hand(work)}brokers to start with bookkeeperMetadataServiceUri={work.ends.target.metadataServiceUri}"
        )
    return f"proof that brokers write to {work.ends.target.name}: {'; '.join(proof.doubts)}"


def _by_hand(work: SwitchContext) -> str:
    return "you: " if work.input.broker_control is BrokerControl.MANUAL else ""


def _names(running: list[Service]) -> str:
    return ", ".join(broker.name for broker in running)
