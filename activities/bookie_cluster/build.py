"""The steps of the switch that check ids and copy ledgers (PIP-477, "Phase 2: BUILD", I8 and I11)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import NamedTuple

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledger_copier import LedgerCopier
from activities.bookie_cluster.ledgers import (
    Verified,
    all_references,
    compacted,
    moving,
    progress_path,
    read_known,
    scan,
)
from activities.bookie_cluster.progress import SwitchProgress, read_cutover_ledger_id
from activities.lifecycle.context import ActivityContext
from clients.bookkeeper.cluster import open_cluster
from clients.bookkeeper.digests import read_header
from clients.bookkeeper.idgen import raise_generator, read_generator
from clients.bookkeeper.last_entries import last_entries
from clients.bookkeeper.ledgers import LedgerRecord
from clients.errors import StoreError
from clients.pulsar.bookie_registry import BookieRegistry
from clients.store import StoreReader
from models.bookie_cluster.input import Routing
from models.bookie_cluster.results import CopySummary, IdCheck

# So little takes seconds with brokers stopped: another look for it would cost as much.
_SMALL = 16 << 20


def check_ids(task: BookieClusterTask, context: ActivityContext) -> IdCheck:
    """Whether the ids that the target hands out lie above all that are in use (I11); reads only.

    In use are the ids of the source's ledgers, of ledgers that Pulsar's metadata name, and those that the source's
    generator gave out: positions of cursors may name a ledger that is deleted.

    Raises:
        StoreError: one of the stores cannot be read.
    """
    del context
    highest = _highest(task)
    with task.reading(task.ends.target.root) as target:
        generator = read_generator(target)
    # A HOB above the generator's own and above the upper half of every id in use; ids cannot be lowered again.
    cure = 0 if generator.next_id > highest else max(generator.high or 0, highest >> 32) + 1
    return IdCheck(highest=highest, next_id=generator.next_id, cure=cure)


def advance_ids(task: BookieClusterTask, context: ActivityContext) -> IdCheck:
    """Put the target's id generator above all ids in use (I11), and read it back.

    Raises:
        StoreUnsupported: there are no ids above.
        StoreConflict: others keep changing the generator.
        StoreError: one of the stores cannot be read or written.
    """
    task.renew()
    highest = _highest(task)
    with task.id_generator(task.ends.target) as target:
        raise_generator(target, highest)
    return check_ids(task, context)


def build(task: BookieClusterTask, context: ActivityContext) -> CopySummary:
    """BUILD: copy the closed ledgers with their ids, entry ids and custom metadata, and compare each in full.

    What closes meanwhile is copied too, until little is left, and of open ledgers what is confirmed. Can be called
    again and again while brokers serve, so that a cut-over has little left to copy whenever it comes.

    Raises:
        StoreConflict: a newer attempt has taken over.
        StoreError: a store failed, or too many bookies did; the step can be repeated, and goes on.
    """
    with task.registry() as registry, task.broker_store() as store:
        # From here on something is built on the registrations: they outlast the switch.
        registry.claim.renew(registered=())
        progress = SwitchProgress(task, registry)
        # All are tried again: bookies that did not answer may be back.
        progress.forget_failed()
        progress.keep_scope(task.input.ledgers)
        verified = read_known(task, store)
        cutover = read_cutover_ledger_id(store, progress_path(task, task.direction))
        copying = LedgerCopier(task, context, progress, verified)
        look = _look(task, store, verified)
        _set_cutover_ledger_id(task, registry, progress, look.highest, cutover)
        known, before = look.closed - len(look.todo), None
        while look.todo and (before is None or _SMALL < look.todo_bytes < before / 2):
            before = look.todo_bytes
            copying.copy(look.todo)
            context.check()
            look = _look(task, store, verified, failed=copying.failed)
        if task.input.routing is Routing.RESTART:
            copying.copy_open(look.unclosed)
        return copying.summary(
            known=known,
            left_open=len(look.unclosed),
            left_bytes=look.todo_bytes + _confirmed_bytes(task, look.unclosed, verified),
        )


class _Look(NamedTuple):
    """The source at one time: ids up to `highest`, what moves and is closed, and what of it is not verified."""

    highest: int
    closed: int
    todo: list[LedgerRecord]
    unclosed: list[LedgerRecord]

    @property
    def todo_bytes(self) -> int:
        """Sum of the lengths of what is to do."""
        return sum(record.metadata.length for record in self.todo)


def _look(task: BookieClusterTask, store: StoreReader, verified: Verified, *, failed: Collection[int] = ()) -> _Look:
    with task.ledgers(task.ends.source) as source, task.ledgers(task.ends.target) as target:
        everything, standing = scan(source), scan(target)
    named = all_references(store)
    named += compacted(task, everything, named, strict=False)
    chosen = moving(task.input, task.ends.source.name, everything, named)
    closed = [record for record in chosen.values() if record.metadata.closed]
    # What an earlier attempt compared is not read again, as long as neither side's metadata have changed.
    todo = [
        record
        for record in closed
        if record.ledger_id not in failed and not verified.holds(record, standing.get(record.ledger_id))
    ]
    unclosed = [record for record in chosen.values() if not record.metadata.closed]
    return _Look(max(everything, default=-1), len(closed), todo, unclosed)


def _confirmed_bytes(task: BookieClusterTask, unclosed: list[LedgerRecord], verified: Verified) -> int:
    """Bytes of open ledgers that their copies lack; those of bookies that do not answer count as none."""
    total = 0
    if task.input.routing is Routing.ATTRIBUTION or not unclosed:
        return total
    with open_cluster(task.ends.source.root, task.access, task.runtime.bookie_tls, task.pair.read_timeout) as source:
        for record in unclosed:
            with contextlib.suppress(StoreError):
                entries = last_entries(source.bookies, record.ledger_id, record.metadata)
                length = max((read_header(body).length for body in entries), default=0)
                begun = verified.begun.get(record.ledger_id)
                total += max(0, length - (begun.length if begun else 0))
    return total


def _highest(task: BookieClusterTask) -> int:
    with task.reading(task.ends.source.root) as zookeeper:
        # Also ids whose ledgers are deleted: a cursor's position may name one, and order is by id.
        given = read_generator(zookeeper).next_id - 1
    with task.ledgers(task.ends.source) as source, task.broker_store() as store:
        ledgers = source.highest()
        named = max((reference.ledger_id for reference in all_references(store)), default=-1)
    return max(given, ledgers, named)


def _set_cutover_ledger_id(
    task: BookieClusterTask, registry: BookieRegistry, progress: SwitchProgress, highest: int, known: int | None
) -> None:
    """With routing `attribution` brokers go on by themselves: remember what the source has when they are directed."""
    # Set once: drawn again after brokers were directed, the line would cover ledgers that came astray since.
    if task.input.routing is not Routing.ATTRIBUTION or known is not None:
        return
    directive = registry.switch_target()
    if directive is not None and directive[0].target == task.ends.target.name:
        progress.set_cutover_ledger_id(highest)
