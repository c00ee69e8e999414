"""Which ledgers may be deleted: judged from what both clusters and Pulsar's metadata say, without asking a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import islice
from typing import NamedTuple

from activities.bookie_cluster.ledgers import HIDDEN, Ledgers
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.metadata import LedgerState
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference
from models.bookie_cluster.input import BookieClusterInput, Routing
from models.bookie_cluster.results import CleanupTargets

_EXAMPLES = 20


class Facts(NamedTuple):
    """What the judgement rests on.

    Attributes:
        input: the switch.
        source: the ledgers of the cluster that it left.
        target: the ledgers of the cluster that it went to.
        named: what Pulsar's metadata refer to.
        copies: ledgers that were compared in full after their copy, with the zxid of the target's znode then.
        cutover_ledger_id: highest id of the source when brokers were directed away; None before that.
        users: brokers that use the source, or may use it, each with a reason.
        failed: ledgers that could not be copied, or whose id another ledger has in the target.
        lacking: why copies in the target may lack replicas; empty if nothing says so.
    """

    input: BookieClusterInput
    source: Ledgers
    target: Ledgers
    named: ReferenceTable
    copies: Mapping[int, int]
    cutover_ledger_id: int | None
    users: tuple[str, ...]
    failed: Collection[int] = ()
    lacking: tuple[str, ...] = ()


class Judgement(NamedTuple):
    """Ledgers to delete, ascending by id, and how many are kept for which reason."""

    delete: Ledgers
    kept: Counter[str]

    def listed(self, cluster: str) -> CleanupTargets:
        """As the operator gets it."""
        return CleanupTargets(
            cluster=cluster,
            ledgers=len(self.delete),
            entry_bytes=sum(one.length for one in self.delete.values()),
            examples=tuple(islice(self.delete, _EXAMPLES)),
            kept=self.kept.total(),
            reasons=tuple(f"{count:,} {why}" for why, count in self.kept.most_common()),
        )


def judge_source(facts: Facts, *, force: bool) -> Judgement:
    """The ledgers of the source that a cleanup may delete.

    Args:
        facts: how things stand.
        force: see `CleanupOrder`.
    """
    restart = facts.input.routing is Routing.RESTART
    kept: Counter[str] = Counter()

    def may_go(record: LedgerFacts) -> bool:
        mentioned = facts.named.of(record.ledger_id)
        why = _restart_reason(facts, record, mentioned) if restart else _attribution_reason(facts, record, mentioned)
        if not why and not _compared(facts, record):
            why = _never_copied(facts, record, force=force)
        # `force` overrides this, and never that a referenced ledger is not verified.
        if not why and restart and facts.users and not force:
            why = f"while brokers use {facts.input.source.name} or may do so: {'; '.join(facts.users)}"
        if why:
            kept[why] += 1
        return not why

    return Judgement(facts.source.where(may_go), kept)


def judge_copies(facts: Facts) -> Judgement:
    """The ledgers of the target that this switch put there, and that a rollback may delete."""
    kept: Counter[str] = Counter()

    def may_go(standing: LedgerFacts) -> bool:
        record = facts.source.get(standing.ledger_id)
        mentioned = facts.named.of(standing.ledger_id)
        why = ""
        if not _is_copy(facts, standing, record):
            why = "are not copies of this switch"
        elif any(one.cluster == facts.input.target.name for one in mentioned):
            why = f"are attributed to {facts.input.target.name}"
        elif mentioned and (record is None or not _same_or_unfinished(standing, record)):
            why = f"are referred to, and {facts.input.source.name} does not hold them"
        if why:
            kept[why] += 1
        return not why

    return Judgement(facts.target.where(may_go), kept)


def misrouted_ledgers(facts: Facts) -> Ledgers:
    """Ledgers that the source got after brokers were directed away from it."""
    if facts.cutover_ledger_id is None:
        return Ledgers()
    # Ids grow (I11): a larger one came later.
    highest = facts.cutover_ledger_id
    return facts.source.where(
        lambda one: one.ledger_id > highest and one.ledger_id not in facts.copies and _is_ours(facts, one)
    )


def target_only(facts: Facts) -> Ledgers:
    """Ledgers that the target alone has, copies left out."""
    return facts.target.where(
        lambda one: one.ledger_id not in facts.source and one.ledger_id not in facts.copies and _is_ours(facts, one)
    )


def _is_ours(facts: Facts, one: LedgerFacts) -> bool:
    """Whether it is none that others may have created meanwhile."""
    return facts.input.exclusive or one.ledger_id in facts.named


def _restart_reason(facts: Facts, record: LedgerFacts, mentioned: list[LedgerReference]) -> str:
    """Brokers read the target alone, so that what is referred to must be there."""
    if mentioned and not _stands(facts, record):
        return f"are referred to, and are not verified in {facts.input.target.name}"
    return ""


def _attribution_reason(facts: Facts, record: LedgerFacts, mentioned: list[LedgerReference]) -> str:
    source, target = facts.input.source.name, facts.input.target.name
    # Also without attribution: nothing says that the target serves it, and after a wrong delete nobody does.
    if any(one.cluster in (None, source) for one in mentioned):
        return f"are referred to as ledgers of {source}"
    if mentioned and not _stands(facts, record):
        return f"are attributed to {target}, and are not verified there"
    if record.component in HIDDEN:
        return "may be referred to by a cursor's ledger (compacted topics)"
    return ""


def _never_copied(facts: Facts, record: LedgerFacts, *, force: bool) -> str:
    """Why a ledger that nothing refers to, and that was never compared with a copy, is kept."""
    source = facts.input.source.name
    # Even with `force`: an open ledger may have a writer that this store does not know, and a compacted one a cursor
    # whose ledger names it.
    if not record.closed:
        return "are open: somebody may write to them"
    if record.component in HIDDEN:
        return "may be referred to by a cursor's ledger (compacted topics)"
    if not facts.input.exclusive:
        return f"are not known to be this cluster's: others may use {source} too"
    if force:
        return ""
    if facts.cutover_ledger_id is not None and record.ledger_id > facts.cutover_ledger_id:
        return f"were created in {source} after brokers were directed away from it"
    return "were never copied, although nothing refers to them"


def _compared(facts: Facts, record: LedgerFacts) -> bool:
    # The last comparison has the last word, whatever an earlier one found.
    return record.ledger_id in facts.copies and record.ledger_id not in facts.failed


def _stands(facts: Facts, record: LedgerFacts) -> bool:
    """Whether the ledger was compared in full, and the target still has it; its replicas may have moved since."""
    standing = facts.target.get(record.ledger_id)
    return _compared(facts, record) and standing is not None and record.same_content(standing)


def _is_copy(facts: Facts, standing: LedgerFacts, record: LedgerFacts | None) -> bool:
    if facts.copies.get(standing.ledger_id) == standing.mzxid:
        return True
    # The same metadata may belong to another ledger, which the comparison of the entries has shown.
    if standing.ledger_id in facts.failed:
        return False
    # Autorecovery rewrites a copy's node, and with it the zxid; the content still tells that it is one.
    return record is not None and _same_or_unfinished(standing, record)


def _same_or_unfinished(standing: LedgerFacts, record: LedgerFacts) -> bool:
    """Whether a ledger of the target has the source's content, or is a copy that was not finished."""
    if standing.closed:
        return standing.same_content(record)
    # An interrupted copy stands OPEN and without length; what it was begun from shows in the rest.
    return standing.origin == record.origin and standing.state is LedgerState.OPEN
