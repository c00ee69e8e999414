"""The steps of routing `attribution`: change only the bookie cluster that each ledger is attributed to.

An attribution changes when its ledger is known to be equal in both clusters, in whichever direction it was copied. So
a rollback is the same compare-and-set with the names exchanged: a reference that named the old cluster has its old
bytes again after it. A reference that named no cluster then names the old one, which means the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledgers import (
    HIDDEN,
    all_references,
    attributed_references,
    bootstrap_cluster,
    misattributed,
    progress_path,
    read_known,
    scan,
)
from activities.bookie_cluster.plugin_admin import PluginAdmin
from activities.bookie_cluster.progress import ATTRIBUTIONS, SwitchProgress, read_failed
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.step import step
from activities.pulsar.registrations import brokers
from clients.bookkeeper.ledger_table import LedgerFacts, LedgerTable
from clients.bookkeeper.ledgers import LedgerRecord
from clients.cas.store import retry_each
from clients.errors import StoreConflict, StoreDenied, StoreUnreachable
from clients.pulsar.admin.errors import AdminError, AdminUnreachable
from clients.pulsar.attribution import attribution, set_schema_attribution
from clients.pulsar.managed_ledgers import decode_cursor_info
from clients.pulsar.names import CursorName, cursor_name
from clients.pulsar.references import LedgerReference, ReferenceKind
from clients.store import StoreReader, Unreadable
from clients.zookeeper import wire
from clients.zookeeper.connection import Connection
from clients.zookeeper.coordination import Coordination
from clients.zookeeper.multi import change_each
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import Promotion
from models.bookie_cluster.updates import ClientClosing, ReadModeChange
from models.lifecycle.failures import NAMED, FailedItem
from models.lifecycle.status import ProgressTask, ProgressUnit

_MOVED_KINDS = (ReferenceKind.SCHEMA, ReferenceKind.CURSOR)
Change = Callable[[bytes], bytes | None]
"""Returns the new value of a node; None to keep it."""
# A topic that moves between brokers has no owner for a moment.
_ASKS, _PAUSE = 3, 0.5
_PART = 512


@dataclass
class _References:
    """References to a schema's or a cursor's ledger, sorted by what can be done about them."""

    ready: list[LedgerReference] = field(default_factory=list[LedgerReference])
    already: int = 0
    deferred: list[str] = field(default_factory=list[str])
    failed: list[FailedItem] = field(default_factory=list[FailedItem])


class _Ledgers:
    """State of ledgers in both clusters of one direction.

    Args:
        task: the switch.
        store: reads the brokers' metadata store.
        ids: which ledgers.
    """

    def __init__(self, task: BookieClusterTask, store: StoreReader, ids: Iterable[int]) -> None:
        wanted = sorted(set(ids))
        self._ends = task.ends
        self._known = read_known(task, store)
        self._failures = read_failed(store, progress_path(task, task.direction))
        with task.ledgers(self._ends.source) as source, task.ledgers(self._ends.target) as target:
            self._source = _by_id(source.read(wanted))
            self._target = _by_id(target.read(wanted))

    @property
    def by_cluster(self) -> dict[str, LedgerTable]:
        """Return the ledgers of each cluster, by its name."""
        return {self._ends.source.name: self._source, self._ends.target.name: self._target}

    def equal(self, ledger: int) -> bool:
        """Return whether a ledger is closed and known to be equal in both."""
        here = self._source.get(ledger)
        return here is not None and self._known.holds(here, self._target.get(ledger))

    def serving_cluster(self, ledger: int) -> str | None:
        """Return the cluster to read a ledger from: the target if it is equal there, else the one that has it."""
        if self.equal(ledger) or (ledger in self._target and ledger not in self._source):
            return self._ends.target.name
        return self._ends.source.name if ledger in self._source else None

    def failure(self, ledger: int) -> str:
        """Return why a ledger cannot be moved, now or later on; empty if there is no such reason."""
        if ledger in self._failures:
            return f"ledger {ledger}: {self._failures[ledger]}"
        return "" if ledger in self._source else f"{self._ends.source.name} has no ledger {ledger}"

    def obstacle(self, ledger: int) -> str:
        """Return why a ledger cannot be moved yet."""
        if not self._source[ledger].closed:
            return f"ledger {ledger} is open"
        if ledger not in self._target:
            return f"ledger {ledger} is in {self._ends.source.name} only"
        return f"ledger {ledger} is not compared yet"


@step(BookieClusterTask)
def promote(task: BookieClusterTask, direction: Direction) -> Promotion:
    """Move, in PROMOTE or its reverse in a rollback, the attribution of every ledger that is equal in both clusters.

    Idempotent, and safe to run twice at once. Open ledgers and those of one cluster only stay where they are.

    Raises:
        Cancelled: the step was cancelled.
        StoreError: the metadata cannot be read or written, or no broker is registered to be asked.
    """
    task = task.toward(direction)
    source, target = task.ends.source.name, task.ends.target.name
    with task.registry() as registry, task.broker_store() as store:
        registry.claim.require()
        references = _sort_out(task, store)
        ledgers: defaultdict[str, set[int]] = defaultdict(set)
        moves: list[Move] = []
        for reference in references.ready:
            if reference.kind is ReferenceKind.SCHEMA:
                ledgers[reference.path].add(reference.ledger_id)
            elif name := cursor_name(reference.path):
                moves.append(Move(reference.path, name, reference.ledger_id))
            else:
                why = "it is not a cursor of a topic that brokers can look up"
                references.failed.append(FailedItem(path=_named(reference), reason=why))
        task.context.check()
        moved = partial(set_schema_attribution, old=source, new=target)
        changes = {path: partial(moved, ledgers=ids) for path, ids in ledgers.items()}
        # Schemas are ours to change, each after a check of the fence (I14); a running topic's cursors are not (I13).
        schemas = rewrite(task, store, changes, registry.claim.require)
        # Without a fence of ours: the owner refuses if the cursor has another ledger than the one that is named.
        cursors = promote_cursors(task, store, moves)
        what = f"attribution(s) did not become {target}"
        failed = SwitchProgress(task, registry).report(ATTRIBUTIONS, what, [*references.failed, *cursors.failed])
    return Promotion(
        schemas=len(schemas.done),
        cursors=cursors.promoted,
        already=references.already,
        rollovers=cursors.rollovers,
        deferred=tuple(references.deferred[:NAMED]),
        deferred_count=len(references.deferred),
        contested=len(schemas.contested),
        failed=failed,
    )


def reconcile(task: BookieClusterTask) -> int:
    """Set attributions of schemas again that a broker has dropped; returns how many.

    Brokers 4.2 and 5.0 drop all attributions of a schema when they store its next version. Each ledger is attributed to
    the cluster that has it; if both have an equal copy, to the target.

    Raises:
        StoreError: the metadata cannot be read or written.
    """
    with task.registry() as registry, task.broker_store() as store:
        bare = [
            reference
            for reference in all_references(store)
            if reference.kind is ReferenceKind.SCHEMA and reference.cluster is None
        ]
        ledgers = _Ledgers(task, store, (reference.ledger_id for reference in bare))
        serving: defaultdict[str, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for reference in bare:
            if cluster := ledgers.serving_cluster(reference.ledger_id):
                serving[reference.path][cluster].add(reference.ledger_id)
        changes = {path: partial(_attribute, serving=clusters) for path, clusters in serving.items()}
        # Only positions without attribution are filled in: what brokers wrote since is never changed.
        done = rewrite(task, store, changes, registry.claim.require).done
    return sum(len(ids) for path in done for ids in serving[path].values())


@step(BookieClusterTask)
def set_read_mode(task: BookieClusterTask, change: ReadModeChange) -> None:
    """Store the clusters to read from, and notify every broker.

    Raises:
        StoreError: a broker did not take it, or none is registered; the registry has it then, and it can be repeated.
    """
    with task.registry() as registry:
        # The registry first: a broker that starts in between reads the mode there.
        registry.set_read_mode(change.mode)
    with _all_brokers(task) as admin:
        admin.set_read_mode(change.mode)


@step(BookieClusterTask)
def close_client(task: BookieClusterTask, closing: ClientClosing) -> None:
    """Close every broker's client of the cluster that it does not write to (PIP-477, I5).

    Raises:
        StoreConflict: brokers write there, something still refers to it, or it is not a cluster of this switch.
        StoreError: a broker did not close it, or none is registered; it can be repeated.
    """
    cluster, input = closing.cluster, task.input
    if cluster not in (input.source.name, input.target.name):
        raise StoreConflict(
            f"{cluster} is not a cluster of this switch; name {input.source.name} or {input.target.name}"
        )
    with task.registry() as registry:
        directive = registry.switch_target()
    # Before the first directive brokers write to the source.
    if cluster == (directive[0].target if directive else input.source.name):
        raise StoreConflict(f"brokers write to {cluster}; switch to the other cluster first")
    users = _users(task, cluster)
    if users:
        raise StoreConflict(
            f"{len(users)} references still need {cluster}, the first of them {users[0]}; let them age out or clean "
            "up, and close its client then"
        )
    with _all_brokers(task) as admin:
        admin.close_client(cluster)


def _sort_out(task: BookieClusterTask, store: StoreReader) -> _References:
    source, target = task.ends.source.name, task.ends.target.name
    bootstrap = bootstrap_cluster(task, store)
    named = [reference for reference in all_references(store) if reference.kind in _MOVED_KINDS]
    waiting = [reference._replace(cluster=reference.cluster or bootstrap) for reference in named]
    waiting = [reference for reference in waiting if reference.cluster in (source, None)]
    # Nothing was copied for these: the marker says that they are in the target, or in a third cluster.
    assumed = [reference for reference in named if reference.cluster is None and bootstrap not in (source, None)]
    ledgers = _Ledgers(task, store, (reference.ledger_id for reference in (*waiting, *assumed)))
    misplaced = set(misattributed(assumed, bootstrap, ledgers.by_cluster))
    references = _References(
        already=sum((reference.cluster or bootstrap) == target and reference not in misplaced for reference in named)
    )
    for reference in misplaced:
        ledger = f"ledger {reference.ledger_id}"
        why = f"{ledger} has no attribution, and is not in {bootstrap}, which the bootstrap marker names"
        references.failed.append(FailedItem(path=_named(reference), reason=why))
    for reference in waiting:
        if ledgers.equal(reference.ledger_id):
            references.ready.append(reference)
        elif reference.cluster is None and ledgers.serving_cluster(reference.ledger_id) == target:
            references.already += 1  # brokers read those from where they write
        elif failure := ledgers.failure(reference.ledger_id):
            references.failed.append(FailedItem(path=_named(reference), reason=failure))
        else:
            references.deferred.append(f"{_named(reference)}: {ledgers.obstacle(reference.ledger_id)}")
    return references


def _users(task: BookieClusterTask, cluster: str) -> list[str]:
    """Return the references that need a cluster: those attributed to it, and those that only it can serve."""
    ends = task.input.ends(Direction.FORWARD)
    mine, other = (ends.source, ends.target) if cluster == ends.source.name else (ends.target, ends.source)
    with task.ledgers(mine) as directory:
        records = scan(directory)
    with task.ledgers(other) as directory:
        elsewhere = scan(directory)
    only = {number for number in records if number not in elsewhere}
    with task.broker_store() as store:
        users = [
            f"{_named(attributed_reference)}, ledger {attributed_reference.ledger_id}"
            for attributed_reference in attributed_references(task, store)
            # An offloaded ledger is read from tiered storage; no bookie has it any more.
            if not attributed_reference.offloaded
            and (attributed_reference.cluster == cluster or attributed_reference.ledger_id in only)
        ]
    # Cursors' ledgers have the references to these, and are not read here: each counts as needed.
    return users + [f"compacted ledger {number}" for number in sorted(only) if _is_hidden(records[number])]


def _is_hidden(record: LedgerFacts) -> bool:
    return record.component in HIDDEN


def _attribute(value: bytes, serving: dict[str, set[int]]) -> bytes | None:
    """Return a schema's node with the cluster of each reference that has none; None if all have one."""
    changed: bytes | None = None
    for cluster, ledgers in serving.items():
        changed = set_schema_attribution(changed or value, None, cluster, ledgers=ledgers) or changed
    return changed


def _all_brokers(task: BookieClusterTask) -> PluginAdmin:
    with task.broker_store() as store:
        return PluginAdmin(task.admin, brokers(store))


def _named(reference: LedgerReference) -> str:
    if reference.kind is ReferenceKind.CURSOR and (name := cursor_name(reference.path)):
        return str(name)
    return f"{reference.kind} {reference.path}"


def _by_id(records: Iterable[LedgerRecord | None]) -> LedgerTable:
    return LedgerTable(record.facts for record in records if record)


class Rewritten(NamedTuple):
    """Paths of the nodes that were changed, and of those that others kept changing."""

    done: list[str]
    contested: list[str]


def rewrite(
    task: BookieClusterTask, store: StoreReader, changes: Mapping[str, Change], fence: Callable[[], object]
) -> Rewritten:
    """Change nodes, each by compare-and-set; one that another client changed first is read again, up to five times.

    Args:
        task: whose brokers' metadata store is changed.
        store: reads the same store.
        changes: by path; a path that is gone is skipped.
        fence: asked between reading and writing; raises where this attempt must not write any more.

    Raises:
        StoreDenied: a node's ACL refuses it.
        StoreError: the store cannot be read or written; which nodes were changed is not known.
    """
    done: list[str] = []
    access = task.access.to(task.input.store)

    def change_some(paths: Sequence[str]) -> list[str]:
        tried = _prepared(store, connection, {path: changes[path] for path in paths})
        fence()
        # Each write names the version that was read: an attempt that froze after the fence can change only nodes that
        # did not change since.
        errors = change_each(connection, list(tried.values()))
        done.extend(path for path, error in zip(tried, errors, strict=True) if not error)
        return [path for path, error in zip(tried, errors, strict=True) if error]

    with Connection(task.input.store, access=access.zookeeper, timeout=access.timeout) as connection:
        contested = retry_each(sorted(changes), change_some)
    return Rewritten(done, contested)


def _prepared(store: StoreReader, connection: Connection, changes: Mapping[str, Change]) -> dict[str, bytes]:
    """Return the writes that the current nodes need, by path."""
    records = store.read([path.encode() for path in changes])
    writes: dict[str, bytes] = {}
    for (path, change), record in zip(changes.items(), records, strict=True):
        if isinstance(record, Unreadable):
            raise StoreDenied(record.reason)
        value = change(record.value) if record else None
        if record and value is not None:
            writes[path] = wire.op_set(connection.absolute(record.path), value, record.version)
    return writes


class Move(NamedTuple):
    """A cursor that is to be promoted: its node, its name, and the ledger that was built for it."""

    path: str
    name: CursorName
    ledger: int


@dataclass
class Moved:
    """Outcome of cursors.

    Attributes:
        promoted: how many have the new attribution.
        rollovers: how many have another ledger by now.
        failed: the others, and why.
    """

    promoted: int = 0
    rollovers: int = 0
    failed: list[FailedItem] = field(default_factory=list[FailedItem])


def promote_cursors(task: BookieClusterTask, store: StoreReader, moves: Sequence[Move]) -> Moved:
    """Ask the owners to change the attribution of cursors to the target; the nodes count, not the answers.

    Args:
        task: the switch; as many owners are asked at once as its plan copies batches at once.
        store: reads the brokers' metadata store.
        moves: the cursors.

    Raises:
        Cancelled: the step was cancelled.
        StoreError: the store cannot be read, or no broker is registered.
    """
    moved = Moved()
    if not moves:
        return moved
    parallelism = task.input.migration_concurrency
    with (
        PluginAdmin(task.admin, brokers(store), parallelism) as admin,
        task.zookeeper() as zookeeper,
        ThreadPoolExecutor(parallelism) as pool,
    ):
        owners = _Owners(admin, task.context, task.ends.target.name)
        for first in range(0, len(moves), _PART):
            batch = moves[first : first + _PART]
            answers = list(pool.map(owners.ask, batch))
            _record_moves(
                task.ends.target.name, _Nodes(store, zookeeper), list(zip(batch, answers, strict=True)), moved
            )
            task.context.progress(ProgressTask.PROMOTE, ProgressUnit.CURSORS, first + len(batch), len(moves))
    return moved


class _Owners:
    """Finds and asks the owners of topics, from many threads."""

    def __init__(self, admin: PluginAdmin, context: ActivityContext, target: str) -> None:
        self._admin = admin
        self._control = context
        self._target = target
        self._known: dict[str, tuple[str, ...]] = {}

    def ask(self, move: Move) -> str:
        """Ask the owner to promote one cursor; return its answer in words."""
        said = ""
        for again in range(_ASKS):
            self._control.pause(_PAUSE if again else 0)
            try:
                # Asked again after a failure: the owner of the topic may have changed.
                owner = self._owner(move.name, fresh=again > 0)
                status = self._admin.promote_cursor(owner, move.name, self._target, move.ledger)
                return f"{owner[0]} answered {status}"
            except (AdminUnreachable, StoreUnreachable) as error:
                # The topic may be moving to another owner.
                said = f"its owner could not be asked ({error})"
            except AdminError as error:
                return str(error)
        return said

    def _owner(self, name: CursorName, *, fresh: bool) -> tuple[str, ...]:
        topic = str(name.topic)
        if fresh or topic not in self._known:
            self._known[topic] = self._admin.owner(name)
        return self._known[topic]


class _Nodes(NamedTuple):
    """Reads cursors in bulk, or a single one up to date."""

    store: StoreReader
    zookeeper: Coordination

    def read(self, paths: Sequence[str]) -> list[bytes | None]:
        """Read nodes with everything that was committed before this call; many at once."""
        values: list[bytes | None] = []
        for record in self.store.read([path.encode() for path in paths]):
            if isinstance(record, Unreadable):
                raise StoreDenied(record.reason)
            values.append(record.value if record else None)
        return values

    def read_newest(self, path: str) -> bytes | None:
        """Return one node with everything that was committed before this call, over its own session."""
        node = self.zookeeper.get(path)
        return node[0] if node else None


def _record_moves(target: str, nodes: _Nodes, asked: Sequence[tuple[Move, str]], moved: Moved) -> None:
    for (move, said), value in zip(asked, nodes.read([move.path for move, _ in asked]), strict=True):
        # Read again: an owner that was too slow to answer may have done it by now.
        if _counted(target, move, value, moved) or _counted(target, move, nodes.read_newest(move.path), moved):
            continue
        why = f"{said}, and its node does not name {target}"
        moved.failed.append(FailedItem(path=str(move.name), reason=why))


def _counted(target: str, move: Move, value: bytes | None, moved: Moved) -> bool:
    """Count a cursor by what its node says; False if nothing has happened to it."""
    if value is None:
        return True  # it was deleted by another client
    cursor = decode_cursor_info(value)
    # It has rolled over: brokers create a cursor's next ledger in the cluster that they write to.
    if cursor.cursorsLedgerId != move.ledger:
        moved.rollovers += 1
    elif attribution(cursor.cursorProperties) == target:
        moved.promoted += 1
    else:
        return False
    return True
