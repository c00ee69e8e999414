"""The gate of routing `restart`: brokers stop, and start again on the other cluster; both is proven, not believed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

from temporalio.exceptions import ApplicationError

from activities.bookie_cluster.absence import Absence, AbsenceKeeper, read_absences
from activities.bookie_cluster.broker_control import BrokerController
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.precheck_brokers import check_brokers
from activities.bookie_cluster.registry import require_metadata_here
from activities.bookie_cluster.strays import strays
from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.brokers import BrokerView
from activities.pulsar.coverage import require_covered
from activities.pulsar.registrations import BROKERS, Service, brokers, persistent_registration
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.store import Record, StoreReader
from models.bookie_cluster.input import Direction, Proof
from models.bookie_cluster.results import BrokersOn, BrokersStopped
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import WaitKind

_POLL = 0.25
# Each of these looks asks every broker, or reads all that brokers' sessions can hold.
_CLOSE_LOOK = 1.0
# Where a broker's health check of version 2 writes; each broker has a namespace of its own.
_OWN_TOPIC = "/managed-ledgers/pulsar/{}/persistent/healthcheck"


@step(BookieClusterTask, name="stop_brokers")
def stop(task: BookieClusterTask, direction: Direction, asked: Proof = Proof.FULL) -> BrokersStopped:
    """Have brokers stopped, and wait until nothing of them is left: no registration, no session, no open port.

    The order is given where no broker is registered too: one that keeps crashing may come back at any time. A broker
    that was killed counts as registered until its session has expired: it may be frozen, and come back.

    Args:
        task: the step.
        direction: of the switch.
        asked: `waived` where the operator vouches for what answers at brokers' ports; registrations alone count then.

    Raises:
        ApplicationError: the order failed; or clients are without a broker for longer than the input allows, and the
            way back begins.
        StoreConflict: the metadata have moved to another store since PRECHECK.
    """
    task = task.toward(direction)
    controller = BrokerController(task)
    with task.registry() as registry, task.broker_store() as store:
        # A late attempt stops here, before it orders anything.
        registry.claim.renew()
        absence = AbsenceKeeper(task, registry)
        absence.look(brokers(store), ordered=not controller.by_hand)
        if task.direction is Direction.FORWARD and absence.seen.since is None:
            # Nobody is without a broker yet.
            require_metadata_here(registry)
            require_covered(task.input, task.survey)
        if not controller.by_hand:
            absence.order()
            _require_time(task, absence.seen.since)
            controller.ask("stop", task.ends.source.metadataServiceUri, registry.claim.require)
        while True:
            running = brokers(store)
            absence.look(running, ordered=not controller.by_hand)
            if running:
                left = [f"{broker.name} is registered" for broker in running]
            else:
                left = [] if asked is Proof.WAIVED else _unproven(store) or absence.lingering(store)
            if not left:
                break
            _require_time(task, absence.seen.since)
            action = "stop all brokers" if controller.by_hand else ""
            task.context.waiting_for(WaitKind.BROKERS_STOP, f"brokers to stop: {'; '.join(left)}", action=action)
            task.context.pause(_POLL if running else _CLOSE_LOOK)
    task.context.waits_no_more()
    return BrokersStopped(since=absence.seen.since or datetime.now(UTC), brokers=tuple(sorted(absence.seen.names)))


def _unproven(store: StoreReader) -> list[str]:
    """Return what is wrong with registrations that no session holds; empty without any.

    Since PRECHECK the switch may have been held for days. A broker with such a registration never counts as running.
    """
    persistent = persistent_registration(store, (BROKERS,))
    return [f"{persistent.cause}; {persistent.cure}"] if persistent else []


@step(BookieClusterTask, name="start_brokers")
def start(task: BookieClusterTask, direction: Direction, asked: Proof = Proof.FULL) -> BrokersOn:
    """Have brokers started on the target, and wait until as many as before are proven to use it, and to write there.

    Args:
        task: the step.
        direction: of the switch.
        asked: `waived` where the brokers that run are enough for the operator, and in a rollback without proof.

    Raises:
        ApplicationError: the order failed; Temporal tries again.
        StoreConflict: a broker has written to the cluster that was left, after everything had been copied.
    """
    task = task.toward(direction)
    target = task.ends.target
    controller = BrokerController(task)
    with task.registry() as registry, task.broker_store() as store, BrokerView(task.runtime.admin) as view:
        registry.claim.renew()
        absences = read_absences(task, registry)
        _refuse_strays(task)
        controller.ask("start", target.metadataServiceUri, registry.claim.require)
        since: datetime | None = None
        while True:
            running = brokers(store)
            # The pause of the clients ends with the first broker, whatever is proven later.
            since = since or (datetime.now(UTC) if running else None)
            proof = _prove(task, store, view, running)
            if asked is Proof.FULL:
                proof.doubts.extend(_missing(running, absences.values()))
            if _is_proven(task, asked, running, proof):
                _refuse_strays(task)
                task.context.waits_no_more()
                own = absences.get(task.direction) or absences.get(Direction.FORWARD)
                return BrokersOn(
                    brokers=tuple(sorted(proof.evidence)),
                    new_ledgers=len(proof.evidence),
                    since=since or datetime.now(UTC),
                    away_since=own.since if own else None,
                )
            _tell_what_is_missing(task, running, proof, by_hand=controller.by_hand)
            task.context.pause(_CLOSE_LOOK if running else _POLL)


class _Proof(NamedTuple):
    """What each broker showed, what is still in doubt, who runs on another cluster, and who cannot write."""

    evidence: list[str]
    doubts: list[str]
    misplaced: list[str]
    unhealthy: list[str]


def _is_proven(task: BookieClusterTask, asked: Proof, running: list[Service], proof: _Proof) -> bool:
    if asked is Proof.WAIVED and task.direction is Direction.BACK:
        return not proof.misplaced
    return bool(running) and not proof.doubts


def _prove(task: BookieClusterTask, store: StoreReader, view: BrokerView, running: list[Service]) -> _Proof:
    target = task.ends.target
    proof = _Proof([], [], [], [])
    for broker in running:
        seen = view.bookie_cluster(broker)
        if seen.url is None:
            proof.doubts.append(f"{broker.name}: {seen.why}")
        elif not seen.url.overlaps(target.root):
            proof.doubts.append(f"{broker.name} runs on {seen.text}")
            proof.misplaced.append(broker.name)
        elif unhealthy := view.health(broker):
            proof.doubts.append(f"{broker.name}: {unhealthy}")
            proof.unhealthy.append(broker.name)
        elif (ledger := _written_ledger(task, store, broker)) is None:
            # What it says of itself is no proof: it wrote a message, and not to a ledger of this cluster.
            proof.doubts.append(f"{broker.name}: the last ledger of its health check is not being written there")
        else:
            proof.evidence.append(f"{broker.name}: uses {seen.text}, and its health check wrote to ledger {ledger:,}")
    if task.direction is Direction.FORWARD and not proof.doubts:
        # They have other settings than PRECHECK saw, and perhaps another release.
        findings = Findings()
        check_brokers(task, findings, None, committed=True)
        proof.doubts.extend(map(str, findings.blockers))
    return proof


def _written_ledger(task: BookieClusterTask, store: StoreReader, broker: Service) -> int | None:
    """The ledger to which a broker's own health check writes, if it is one of the target that is being written."""
    path = _OWN_TOPIC.format(broker.name.partition(" ")[2])
    (node,) = store.read([path.encode()])
    ids = [one.ledgerId for one in decode_ledger_info(node.value).ledgerInfo] if isinstance(node, Record) else []
    if not ids:
        return None
    last = ids[-1]
    with task.ledgers(task.ends.target) as directory:
        (record,) = directory.read([last])
    # What was copied there is closed: only a broker that uses this cluster has a ledger open in it.
    return last if record is not None and not record.metadata.closed else None


def _missing(running: list[Service], before: Collection[Absence]) -> list[str]:
    """What keeps brokers from being as many as before; their addresses may be others than before."""
    most = max((one.most for one in before), default=0)
    if len(running) >= most:
        return []
    absent = sorted(frozenset[str]().union(*(one.names for one in before)) - {broker.name for broker in running})
    return [f"{len(running)} of {most} brokers run ({', '.join(absent)} did before)"]


def _refuse_strays(task: BookieClusterTask) -> None:
    if task.direction is Direction.FORWARD and (found := strays(task)):
        raise ApplicationError(
            f"after everything had been copied, a broker created {found} in {task.ends.source.name}; the target lacks "
            "what is in there, so brokers go back",
            type=FailureKind.CONFLICT,
            non_retryable=True,
        )


def _require_time(task: BookieClusterTask, since: datetime | None) -> None:
    """Begin the way back where clients have been without a broker for too long already."""
    limit = task.input.pause_deadline
    if task.direction is Direction.FORWARD and since and datetime.now(UTC) - since > limit:
        raise ApplicationError(
            f"longest pause: not all brokers have stopped {limit} after the first",
            type=FailureKind.DEADLINE,
            non_retryable=True,
        )


def _tell_what_is_missing(task: BookieClusterTask, running: list[Service], proof: _Proof, *, by_hand: bool) -> None:
    target = task.ends.target
    setting = f"bookkeeperMetadataServiceUri={target.metadataServiceUri}"
    if not running:
        action = f"start the brokers with {setting}" if by_hand else ""
        task.context.waiting_for(WaitKind.BROKERS_START, f"brokers to start with {setting}", action=action)
        return
    # Whoever started them, nobody but the operator can put this right.
    action = ""
    if proof.misplaced:
        action = f"stop {', '.join(proof.misplaced)} at once, and start with {setting}"
    elif proof.unhealthy:
        # Brokers have lost sight of a bookie whose registration changed at the wrong moment (bookkeeper #4646, open).
        action = f"if that lasts for a minute although the bookies run, restart {', '.join(proof.unhealthy)}"
    why = f"proof that brokers write to {target.name}: {'; '.join(proof.doubts)}"
    task.context.waiting_for(WaitKind.BROKERS_PROOF, why, action=action)
