"""Attributions of cursors, which only the topic's owner may change while it runs (PIP-477, "Cursor PROMOTE", I13)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.plugin_admin import PluginAdmin
from activities.lifecycle.context import ActivityContext
from activities.pulsar.registrations import brokers
from clients.errors import StoreDenied, StoreUnreachable
from clients.pulsar.admin.errors import AdminError, AdminUnreachable
from clients.pulsar.attribution import attribution
from clients.pulsar.managed_ledgers import decode_cursor_info
from clients.pulsar.names import CursorName
from clients.store import StoreReader, Unreadable
from clients.zookeeper.coordination import Coordination
from models.lifecycle.failures import FailedItem
from models.lifecycle.status import ProgressTask, ProgressUnit

# A topic that changes brokers has no owner for a moment.
_ASKS, _PAUSE = 3, 0.5
_PART = 512


class Move(NamedTuple):
    """A cursor that is to be promoted: its node, its name, and the ledger that was built for it."""

    path: str
    name: CursorName
    ledger: int


@dataclass
class Moved:
    """What became of cursors.

    Attributes:
        promoted: how many have the new attribution.
        rollovers: how many have another ledger by now.
        failed: the others, and why.
    """

    promoted: int = 0
    rollovers: int = 0
    failed: list[FailedItem] = field(default_factory=list[FailedItem])


def promote_cursors(task: BookieClusterTask, store: StoreReader, moves: Sequence[Move]) -> Moved:
    """Have the owners change the attribution of cursors to the target; what the nodes say then counts, not the answers.

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
        PluginAdmin(task.runtime.admin, brokers(store), parallelism) as admin,
        task.zookeeper() as zookeeper,
        ThreadPoolExecutor(parallelism) as pool,
    ):
        owners = _Owners(admin, task.context, task.ends.target.name)
        for first in range(0, len(moves), _PART):
            part = moves[first : first + _PART]
            answers = list(pool.map(owners.ask, part))
            _settle(task.ends.target.name, _Nodes(store, zookeeper), list(zip(part, answers, strict=True)), moved)
            task.context.progress(ProgressTask.PROMOTE, ProgressUnit.CURSORS, first + len(part), len(moves))
    return moved


class _Owners:
    """Finds and asks the owners of topics, from many threads."""

    def __init__(self, admin: PluginAdmin, context: ActivityContext, target: str) -> None:
        self._admin = admin
        self._control = context
        self._target = target
        self._known: dict[str, tuple[str, ...]] = {}

    def ask(self, move: Move) -> str:
        """Ask for one cursor; returns what its owner answered, in words."""
        said = ""
        for again in range(_ASKS):
            self._control.pause(_PAUSE if again else 0)
            try:
                # Asked anew after a failure: who owned the topic a moment ago may not own it now.
                owner = self._owner(move.name, fresh=again > 0)
                status = self._admin.promote_cursor(owner, move.name, self._target, move.ledger)
                return f"{owner[0]} answered {status}"
            except (AdminUnreachable, StoreUnreachable) as error:
                # The topic may be on its way to another owner.
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
    """Reads cursors in bulk, or one for certain."""

    store: StoreReader
    zookeeper: Coordination

    def read(self, paths: Sequence[str]) -> list[bytes | None]:
        """With everything that was committed before this call; many at once."""
        values: list[bytes | None] = []
        for record in self.store.read([path.encode() for path in paths]):
            if isinstance(record, Unreadable):
                raise StoreDenied(record.reason)
            values.append(record.value if record else None)
        return values

    def read_newest(self, path: str) -> bytes | None:
        """The same for one, over a session of its own."""
        found = self.zookeeper.get(path)
        return found[0] if found else None


def _settle(target: str, nodes: _Nodes, asked: Sequence[tuple[Move, str]], moved: Moved) -> None:
    for (move, said), value in zip(asked, nodes.read([move.path for move, _ in asked]), strict=True):
        # Looked at once more: an owner that was too slow to answer may have done it by now.
        if _counted(target, move, value, moved) or _counted(target, move, nodes.read_newest(move.path), moved):
            continue
        why = f"{said}, and its node does not name {target}"
        moved.failed.append(FailedItem(path=str(move.name), reason=why))


def _counted(target: str, move: Move, value: bytes | None, moved: Moved) -> bool:
    """Count a cursor by what its node says; False if nothing has happened to it."""
    if value is None:
        return True  # somebody has deleted it
    cursor = decode_cursor_info(value)
    # It has rolled over: brokers create a cursor's next ledger in the cluster that they write to.
    if cursor.cursorsLedgerId != move.ledger:
        moved.rollovers += 1
    elif attribution(cursor.cursorProperties) == target:
        moved.promoted += 1
    else:
        return False
    return True
