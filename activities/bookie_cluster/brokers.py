"""The gate of routing `restart`: brokers stop, and start again on the other cluster; both are verified.

The brokers that are stopped, or must stop, are recorded next to the progress of the switch: an attempt after a crash
counts from the same moment, and checks the ports of brokers that it has never seen registered.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from temporalio.exceptions import ApplicationError

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import all_references, progress_path, read_known, scan
from activities.bookie_cluster.precheck_brokers import check_brokers
from activities.bookie_cluster.progress import read_begun, read_cutover_ledger_id, read_verified
from activities.bookie_cluster.registry import require_metadata_here
from activities.lifecycle.context import Deadline
from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.brokers import BrokerView
from activities.pulsar.coverage import require_covered
from activities.pulsar.registrations import BROKERS, Service, brokers, held_by_sessions, persistent_registration
from clients.errors import StoreError
from clients.json_text import read_json
from clients.pulsar.managed_ledgers import decode_ledger_info
from clients.pulsar.records.bookie_registry import BookieRegistry
from clients.pulsar.references import LedgerReference
from clients.reach import open_link
from clients.store import Record, StoreReader
from models.base import Result
from models.bookie_cluster.input import Direction, Proof
from models.bookie_cluster.results import BrokersOn, BrokersStopped
from models.lifecycle.failures import NAMED, FailureKind
from models.lifecycle.status import Undo, WaitKind

_POLL = 0.25
# Each of these checks asks every broker, or reads all nodes that brokers' sessions can hold.
_CLOSE_LOOK = 1.0
# Where a broker's health check of version 2 writes; each broker has a namespace of its own.
_OWN_TOPIC = "/managed-ledgers/pulsar/{}/persistent/healthcheck"
NODE = "brokers"
TOO_EARLY = "BrokerTooEarly"
"""The detail of the failure that proves a ledger which only the target has; the rollback acts on it."""
# The age up to which a later attempt takes a check as the last one with all brokers running.
_LOOK_EVERY = 5.0
_CONNECT = 1.0
# How long a target is waited for to which brokers were never directed; they serve on the source at that time.
_UNUSED = 900.0
# A proxy without a server accepts a connection, and closes it at once; a frozen process keeps it open.
_HOLD = 0.3
_PORTS_AT_ONCE = 16


@step(BookieClusterTask, name="stop_brokers")
def stop(task: BookieClusterTask, direction: Direction, asked: Proof = Proof.FULL) -> BrokersStopped:
    """Stop brokers, and wait until no registration, session or open port of them is left.

    The order is also given if no broker is registered: one that keeps crashing may register again at any time. A broker
    that was killed counts as registered until its session has expired: it may be frozen, and come back.

    Args:
        task: the step.
        direction: of the switch.
        asked: `waived` if the operator confirms that no broker answers at the ports; only registrations count then.

    Raises:
        ApplicationError: the order failed; or clients are without a broker for longer than the input allows, and the
            rollback starts.
        StoreConflict: the metadata have moved to another store since PRECHECK.
    """
    task = task.toward(direction)
    controller = task.broker_controller()
    with task.registry() as registry, task.broker_store() as store:
        # A late attempt stops here, before it orders anything.
        registry.claim.renew()  # mutant: bookie-cluster/a-late-attempt-stops-brokers
        absence = AbsenceKeeper(task, registry)
        absence.observe(brokers(store), ordered=not controller.by_hand)
        if task.direction is Direction.FORWARD and absence.seen.since is None:
            # No client is without a broker yet.
            require_metadata_here(registry)  # mutant: bookie-cluster/a-stop-though-the-metadata-moved
            require_covered(task.input, task.survey)  # mutant: bookie-cluster/a-stop-without-a-second-census
        if not controller.by_hand:  # mutant: bookie-cluster/a-stop-only-where-brokers-are-registered
            absence.order()
            _require_time(task, absence.seen.since)  # mutant: bookie-cluster/a-stop-after-the-longest-pause
            controller.ask("stop", task.ends.source.metadataServiceUri, registry.claim.require)
        while True:
            running = brokers(store)
            absence.observe(running, ordered=not controller.by_hand)
            if running:
                blockers = [f"{broker.name} is registered" for broker in running]
            else:
                # mutant: bookie-cluster/a-registration-without-a-session-is-stopped
                # mutant: bookie-cluster/not-registered-is-stopped
                blockers = [] if asked is Proof.WAIVED else _unproven(store) or absence.lingering(store)
            if not blockers:
                break
            _require_time(task, absence.seen.since)
            action = "stop all brokers" if controller.by_hand else ""
            task.context.waiting_for(WaitKind.BROKERS_STOP, f"brokers to stop: {'; '.join(blockers)}", action=action)
            task.context.pause(_POLL if running else _CLOSE_LOOK)
    task.context.clear_waiting()
    return BrokersStopped(
        since=absence.seen.since or task.context.server_time, brokers=tuple(sorted(absence.seen.names))
    )


def _unproven(store: StoreReader) -> list[str]:
    """Return the problems of registrations that no session holds; empty if there are none.

    Since PRECHECK the switch may have been held for days. A broker with such a registration never counts as running.
    """
    persistent = persistent_registration(store, (BROKERS,))
    return [f"{persistent.cause}; {persistent.cure}"] if persistent else []


@step(BookieClusterTask, name="start_brokers")
def start(
    task: BookieClusterTask, direction: Direction, asked: Proof = Proof.FULL, undo: Undo = Undo.COPY_BACK
) -> BrokersOn:
    """Start brokers on the target, and wait until as many as before are proven to use it, and to write there.

    Args:
        task: the step.
        direction: of the switch.
        asked: `waived` where the brokers that run are enough for the operator, and in a rollback without proof.
        undo: `none` where brokers stay on the target, whatever one of them has written to the cluster that was left,
            or where a rollback does without that cluster.

    Returns:
        The brokers; or in a rollback, at once, that a broker has written to the cluster that was left, after everything
        had been copied.

    Raises:
        ApplicationError: the order failed; Temporal tries again. Or a broker has written to the cluster that was left,
            and the rollback starts.
    """
    task = task.toward(direction)
    target = task.ends.target
    controller = task.broker_controller()
    with task.registry() as registry, task.broker_store() as store, task.broker_view() as view:
        registry.claim.renew()  # mutant: bookie-cluster/a-late-attempt-starts-brokers
        absences = read_absences(task, registry)
        after_copy = _LedgersAfterCopy(task, store, undo)
        # mutant: bookie-cluster/misrouted-ledgers-are-not-checked-before-the-start
        if misrouted := after_copy.find():
            return BrokersOn(brokers=(), new_ledgers=0, since=task.context.server_time, misrouted=misrouted)
        controller.ask("start", target.metadataServiceUri, registry.claim.require)
        since: datetime | None = None
        while True:
            running = brokers(store)
            # The pause of the clients ends with the first broker, whatever is proven later.
            since = since or (task.context.server_time if running else None)
            proof = _prove(task, store, view, running)
            if asked is Proof.FULL:
                # mutant: bookie-cluster/some-brokers-are-enough
                proof.doubts.extend(_missing(running, absences.values()))
            # When a broker elsewhere stops, its topics move at once to brokers that remove references to its ledgers.
            # mutant: bookie-cluster/misrouted-ledgers-are-not-checked-after-the-start
            # mutant: bookie-cluster/misrouted-ledgers-are-not-checked-while-their-broker-runs
            # mutant: bookie-cluster/misrouted-ledgers-of-a-silent-broker-are-not-checked
            if _is_proven(task, asked, running, proof) or proof.misplaced or proof.silent:
                misrouted = after_copy.find()
                # mutant: bookie-cluster/a-target-that-brokers-never-used-is-not-read-again
                proof.doubts.extend(after_copy.doubts())
            # mutant: bookie-cluster/a-rollback-waits-for-a-broker-with-misrouted-ledgers
            if misrouted or _is_proven(task, asked, running, proof):
                task.context.clear_waiting()
                own = absences.get(task.direction) or absences.get(Direction.FORWARD)
                return BrokersOn(
                    brokers=tuple(sorted(proof.evidence)),
                    new_ledgers=len(proof.evidence),
                    since=since or task.context.server_time,
                    away_since=own.since if own else None,
                    misrouted=misrouted,
                    unread=after_copy.unread,
                )
            _tell_what_is_missing(task, running, proof, by_hand=controller.by_hand)
            task.context.pause(_CLOSE_LOOK if running else _POLL)


@step(BookieClusterTask, reads_only=True)
def find_early_ledgers(task: BookieClusterTask) -> str:
    """Name ledgers that brokers created in the target before any was asked to stop; empty if there are none.

    Raises:
        StoreError: one of the stores cannot be read.
    """
    with task.broker_store() as store:
        if not (newer := newer_than_source(task)):
            return ""
        copies = read_known(task.toward(Direction.FORWARD), store)
        return _only_there(task.toward(Direction.BACK), all_references(store), newer, copies)


def newer_than_source(task: BookieClusterTask) -> set[int]:
    """Return ids of ledgers in the target above all of the source, without copies.

    Raises:
        StoreError: one of the clusters cannot be read.
    """
    with task.ledgers(task.ends.source) as directory:
        highest = directory.highest()
    return _newer_ledgers(task.toward(Direction.BACK), highest)


def require_no_early_ledgers(
    task: BookieClusterTask, newer: set[int], named: Iterable[LedgerReference], copies: Container[int]
) -> None:
    """Require that no broker has written to the target while the others serve on the source.

    Args:
        task: the step.
        newer: see `newer_than_source`.
        named: what Pulsar's metadata refer to, read after the ledgers.
        copies: ledgers that are known to be copies.

    Raises:
        ApplicationError: one has, and the rollback starts.
        StoreError: the source cannot be read.
    """
    source, target = task.ends.source.name, task.ends.target.name
    if early := _only_there(task.toward(Direction.BACK), named, newer, copies):
        raise ApplicationError(
            f"a broker was started on {target} too early: it created {early} there, which brokers on {source} remove "
            "from topics' lists. All brokers stop, what it wrote is copied back, and brokers start on "
            f"{source}. Cure: configure brokers for {target} only when the status asks for their start",
            TOO_EARLY,
            type=FailureKind.CONFLICT,
            non_retryable=True,
        )


class _Proof(NamedTuple):
    """Proofs and open doubts, the brokers that run on another cluster, those that may, and those that cannot write."""

    evidence: list[str]
    doubts: list[str]
    misplaced: list[str]
    silent: list[str]
    unhealthy: list[str]


def _is_proven(task: BookieClusterTask, asked: Proof, running: list[Service], proof: _Proof) -> bool:
    if asked is Proof.WAIVED and task.direction is Direction.BACK:
        return not proof.misplaced
    return bool(running) and not proof.doubts


def _prove(task: BookieClusterTask, store: StoreReader, view: BrokerView, running: list[Service]) -> _Proof:
    target = task.ends.target
    proof = _Proof([], [], [], [], [])
    for broker in running:
        seen = view.bookie_cluster(broker)
        if seen.url is None:
            proof.doubts.append(f"{broker.name}: {seen.why}")
            proof.silent.append(broker.name)
        elif not seen.url.overlaps(target.root):  # mutant: bookie-cluster/a-broker-elsewhere-is-enough
            proof.doubts.append(f"{broker.name} runs on {seen.text}")
            proof.misplaced.append(broker.name)
        elif unhealthy := view.health(broker):
            proof.doubts.append(f"{broker.name}: {unhealthy}")
            proof.unhealthy.append(broker.name)
        # mutant: bookie-cluster/a-brokers-word-is-enough
        elif (ledger := _written_ledger(task, store, broker)) is None:
            # Its settings prove nothing: it wrote a message, and not to a ledger of this cluster.
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
    """Return the ledger to which a broker's own health check writes, if it is an open ledger of the target."""
    path = _OWN_TOPIC.format(broker.name.partition(" ")[2])
    (node,) = store.read([path.encode()])
    ids = [info.ledgerId for info in decode_ledger_info(node.value).ledgerInfo] if isinstance(node, Record) else []
    if not ids:
        return None
    last = ids[-1]
    with task.ledgers(task.ends.target) as directory:
        (record,) = directory.read([last])
    # What was copied there is closed: only a broker that uses this cluster has a ledger open in it.
    return last if record is not None and not record.metadata.closed else None


def _missing(running: list[Service], before: Collection[Absence]) -> list[str]:
    """Return why fewer brokers run than before; their addresses may differ from the earlier ones."""
    most = max((absence.most for absence in before), default=0)
    if len(running) >= most:
        return []
    absent = sorted(
        frozenset[str]().union(*(absence.names for absence in before)) - {broker.name for broker in running}
    )
    return [f"{len(running)} of {most} brokers run ({', '.join(absent)} did before)"]


class _LedgersAfterCopy:
    """Ledgers that brokers created in the cluster that they left, after everything in it had been copied.

    In a rollback before the directive, these are the ledgers that brokers created in the target by mistake.

    Args:
        task: the step, in its direction.
        store: reads the brokers' metadata store.
        undo: see `start`; with `none` nothing is read.

    Attributes:
        unread: in a rollback, the ledgers that the last check could not look for; empty if it could.
    """

    def __init__(self, task: BookieClusterTask, store: StoreReader, undo: Undo) -> None:
        self._task, self._store = task, store
        self._cluster = task.ends.source.name
        self.unread = self._doubt = ""
        self._until: Deadline | None = None
        # In a rollback that was given up brokers cannot go back, and the cluster that was left may be lost.
        reads = undo is not Undo.NONE
        highest = read_cutover_ledger_id(store, progress_path(task, task.direction)) if reads else None
        self._was_copied = highest is not None
        # mutant: bookie-cluster/ledgers-from-before-the-directive-are-not-checked
        if reads and highest is None and task.direction is Direction.BACK:
            # Nothing was copied back, as brokers were never directed there; one may have started there by mistake. Its
            # ledgers are above all copies (I11).
            progress = progress_path(task, Direction.FORWARD)
            # Once for all checks: the list may be long.
            highest = max((*read_verified(store, progress), *read_begun(store, progress)), default=-1)
        self._highest = highest

    def find(self) -> str:
        """Name the ledgers, in a rollback; empty if there are none, or if they cannot be read.

        Raises:
            ApplicationError: there are some, and the rollback starts.
            StoreError: one of the stores cannot be read.
        """
        self.unread = self._doubt = ""
        if self._highest is None:
            return ""
        try:
            newer = _newer_ledgers(self._task, self._highest)
        except StoreError as error:
            if self._task.direction is Direction.FORWARD:
                raise
            # Brokers start all the same: the cluster that a rollback leaves may fail at any time.
            self._doubt = f"the ledgers of {self._cluster} cannot be read: {error}"
            self.unread = f"ledgers of {self._cluster} with ids above {self._highest:,} ({error})"
            return ""
        misrouted = _only_there(self._task, all_references(self._store), newer) if newer else ""
        if misrouted and self._task.direction is Direction.FORWARD:
            raise ApplicationError(
                f"after everything had been copied, a broker created {misrouted} in {self._cluster}; "
                "the target lacks what is in there, so brokers go back",
                type=FailureKind.CONFLICT,
                non_retryable=True,
            )
        return misrouted

    def doubts(self) -> list[str]:
        """Return why brokers that run are not proven to be enough yet; empty if the last check raises no doubt."""
        self._until = self._until or self._task.context.deadline(_UNUSED)
        # mutant: bookie-cluster/a-target-that-brokers-never-used-is-waited-for
        return [self._doubt] if self._doubt and (self._was_copied or not self._until.passed) else []


def _require_time(task: BookieClusterTask, since: datetime | None) -> None:
    """Start the rollback if clients have been without a broker for too long."""
    limit = task.input.pause_deadline
    if task.direction is Direction.FORWARD and since and task.context.server_time - since > limit:
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
    # Only the operator can correct this, however they were started.
    action = ""
    if proof.misplaced:
        action = f"stop {', '.join(proof.misplaced)} at once, and start with {setting}"
    elif proof.unhealthy:
        # Brokers do not see a bookie whose registration changed at the wrong moment (bookkeeper #4646, open).
        action = f"if that lasts for a minute although the bookies run, restart {', '.join(proof.unhealthy)}"
    why = f"proof that brokers write to {target.name}: {'; '.join(proof.doubts)}"
    task.context.waiting_for(WaitKind.BROKERS_PROOF, why, action=action)


class SeenBroker(Result):
    """A registered broker: its name, the session of its registration, and `host:port` of all its listeners."""

    name: str
    session: int
    addresses: tuple[str, ...]

    @staticmethod
    def of(service: Service) -> SeenBroker:
        """Return the broker of a registration."""
        return SeenBroker(name=service.name, session=service.owner, addresses=_addresses(service.data))


class Absence(Result):
    """State of the brokers of one direction.

    Attributes:
        run: the run of the migration that wrote it.
        since: the first moment at which clients may have been without a broker; None while all are there.
        looked: when brokers were checked last, to within some seconds.
        brokers: all that were seen.
        most: how many of them there were at one time.
    """

    run: str
    since: datetime | None = None
    looked: datetime
    brokers: tuple[SeenBroker, ...] = ()
    most: int = 0

    @property
    def names(self) -> frozenset[str]:
        """Names of the brokers that were seen."""
        return frozenset(broker.name for broker in self.brokers)


class AbsenceKeeper:
    """Record of the brokers that one step stops.

    Args:
        task: the step.
        registry: opened on behalf of its attempt, which holds the claim.
    """

    def __init__(self, task: BookieClusterTask, registry: BookieRegistry) -> None:
        self._registry = registry
        self._context = task.context
        self._path = f"{progress_path(task, task.direction)}/{NODE}"
        absences = read_absences(task, registry)
        mine = absences.get(task.direction)
        # What an earlier run left belongs to an earlier stop; its brokers may still be registered.
        self._others = [broker for absence in absences.values() for broker in absence.brokers]
        self.seen = (
            mine if mine and mine.run == task.run_id else Absence(run=task.run_id, looked=task.context.server_time)
        )

    def order(self) -> None:
        """Note that brokers are asked to stop from now on.

        Raises:
            StoreConflict: the claim is lost.
        """
        # mutant: bookie-cluster/each-attempt-counts-its-own-pause
        self._keep(self.seen.model_copy(update={"since": self.seen.since or self._context.server_time}))

    def observe(self, running: Sequence[Service], *, ordered: bool) -> None:
        """Record the brokers that are registered now.

        Args:
            running: the registered brokers.
            ordered: brokers were asked to stop, so that a registered broker may have no clients any more.

        Raises:
            StoreConflict: the claim is lost.
        """
        seen, now = self.seen, self._context.server_time
        there = {service.name: SeenBroker.of(service) for service in running}
        brokers = {broker.name: broker for broker in seen.brokers} | there
        since = seen.since
        if not ordered:
            gone = not there or brokers.keys() - there.keys()
            # The last time that all were seen: it is not known when they stopped.
            since = (since or seen.looked) if gone else None
        most = max(seen.most, len(there))
        new = seen.model_copy(update={"since": since, "brokers": tuple(brokers.values()), "most": most})
        if new != seen or (now - seen.looked).total_seconds() > _LOOK_EVERY:
            self._keep(new.model_copy(update={"looked": now}))

    def lingering(self, store: StoreReader) -> list[str]:
        """Return what remains of brokers that are not registered any more; empty if nothing does.

        A broker that stops normally removes its registration first, and serves until its topics are unloaded.

        Raises:
            StoreError: the brokers' metadata store cannot be read.
        """
        brokers = [*self._others, *self.seen.brokers]
        sessions = {broker.session: broker.name for broker in brokers}
        held = held_by_sessions(store, sessions.keys())
        problems = [
            f"{sessions[session]} still holds {path.decode(errors='replace')}" for session, path in held.items()
        ]
        addresses = {address: broker.name for broker in brokers for address in broker.addresses}
        return problems + [f"{addresses[address]} still answers at {address}" for address in _serving(addresses)]

    def _keep(self, new: Absence) -> None:
        self._registry.put(self._path, new.model_dump_json().encode())
        self.seen = new


def read_absences(task: BookieClusterTask, registry: BookieRegistry) -> dict[Direction, Absence]:
    """Return the recorded brokers of both directions.

    Raises:
        StoreError: the registry cannot be read.
    """
    nodes = {way: registry.store.get(f"{progress_path(task, way)}/{NODE}") for way in Direction}
    return {way: Absence.model_validate_json(node.value) for way, node in nodes.items() if node}


def _addresses(data: bytes) -> tuple[str, ...]:
    """Return `host:port` of every listener in a broker's registration."""
    try:
        document = read_json(data)
    except ValueError:
        return ()
    texts: list[str] = []
    fields: list[Any] = [document]
    while fields:
        field = fields.pop()
        if isinstance(field, dict):
            # `protocols` and `lastStats` hold no addresses; a text that looks like an address elsewhere is one.
            fields += cast("dict[str, Any]", field).values()
        elif isinstance(field, str) and "://" in field:
            texts.append(field)
    return tuple(sorted({address for text in texts if (address := _address(text))}))


def _address(text: str) -> str:
    try:
        host, port = urlsplit(text).hostname, urlsplit(text).port
    except ValueError:
        return ""
    return f"{host}:{port}" if host and port else ""


def _serving(addresses: Iterable[str]) -> list[str]:
    """Return the addresses that accept connections and keep them open."""
    ordered = sorted(addresses)
    with ThreadPoolExecutor(_PORTS_AT_ONCE) as pool:
        answers = list(pool.map(_serves, ordered))
    return [address for address, serves in zip(ordered, answers, strict=True) if serves]


def _serves(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        connection = open_link(host, int(port), _CONNECT)
    except OSError:
        return False
    with connection:
        connection.settimeout(_HOLD)
        try:
            return bool(connection.recv(1))
        except TimeoutError:
            return True
        except OSError:
            return False


def _newer_ledgers(task: BookieClusterTask, highest: int) -> set[int]:
    """Return ids above this one of ledgers in the cluster that brokers left; copies have their ids from elsewhere."""
    with task.ledgers(task.ends.source) as directory:
        # Names alone are enough, where no other client creates ledgers: a start may ask every second.
        if directory.highest() <= highest:
            return set()
        ledgers = scan(directory)
        return {number for number in ledgers if number > highest and not ledgers[number].is_copy}


def _only_there(
    task: BookieClusterTask, named: Iterable[LedgerReference], newer: set[int], copies: Container[int] = ()
) -> str:
    """Name those of these ledgers that Pulsar's metadata refer to, and that the other cluster lacks."""
    # Autorecovery removes the mark of copies, and brokers delete a topic's ledgers before its list of them.
    own = {number for number in newer if number not in copies}  # mutant: bookie-cluster/moved-copies-are-early-ledgers
    # The cluster may serve other clients too, which continue to create ledgers.
    referenced = sorted({reference.ledger_id for reference in named if reference.ledger_id in own})
    if not referenced:
        return ""
    with task.ledgers(task.ends.target) as directory:
        # Ledgers that both have are copies of a rollback that was given up; otherwise ids are disjoint (I11).
        copies = directory.read(referenced)
    misrouted = [number for number, copy in zip(referenced, copies, strict=True) if copy is None]
    more = ", …" if len(misrouted) > NAMED else ""
    return f"ledger(s) {', '.join(map(str, misrouted[:NAMED]))}{more}" if misrouted else ""
