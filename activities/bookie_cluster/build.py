"""The steps of the switch that check ids and copy ledgers (PIP-477, "Phase 2: BUILD", I8 and I11)."""

from __future__ import annotations

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.ledger_copier import LedgerCopier
from activities.bookie_cluster.ledgers import all_references, moving, needs_references, progress_path, read_known, scan
from activities.bookie_cluster.progress import SwitchProgress, read_cutover_ledger_id
from activities.lifecycle.context import ActivityContext
from clients.bookkeeper.idgen import raise_generator, read_generator
from clients.pulsar.bookie_registry import BookieRegistry
from models.bookie_cluster.input import Routing
from models.bookie_cluster.results import CopySummary, IdCheck


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
        verified = read_known(task, store)
        with task.ledgers(task.ends.source) as source, task.ledgers(task.ends.target) as target:
            everything, standing = scan(source), scan(target)
        known = read_cutover_ledger_id(store, progress_path(task, task.direction))
        _set_cutover_ledger_id(task, registry, progress, max(everything, default=-1), known)
        named = all_references(store) if needs_references(task.input) else []
        chosen = moving(task.input, task.ends.source.name, everything, named)
        closed = [record for record in chosen.values() if record.metadata.closed]
        # What an earlier attempt compared is not read again, as long as neither side's metadata have changed.
        todo = [record for record in closed if not verified.holds(record, standing.get(record.ledger_id))]
        copying = LedgerCopier(task, context, progress, verified)
        copying.copy(todo)
        return copying.summary(known=len(closed) - len(todo), left_open=len(chosen) - len(closed))


def _highest(task: BookieClusterTask) -> int:
    with task.reading(task.ends.source.root) as zookeeper:
        # Also ids whose ledgers are deleted: a cursor's position may name one, and order is by id.
        given = read_generator(zookeeper).next_id - 1
    with task.ledgers(task.ends.source) as source, task.broker_store() as store:
        ledgers = max(scan(source), default=-1)
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
