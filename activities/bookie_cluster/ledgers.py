"""Ledgers that a bookie cluster migration moves, and those that need no further check."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

from pydantic import ValidationError

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.progress import IdNumbers, read_begun, read_cutover_ledger_id, read_verified
from clients.bookkeeper.cluster import Cluster
from clients.bookkeeper.copy_result import Begun
from clients.bookkeeper.digests import read_data
from clients.bookkeeper.last_entries import last_entries
from clients.bookkeeper.ledger_table import LedgerFacts, LedgerTable
from clients.bookkeeper.ledgers import LedgerDirectory, LedgerRecord
from clients.errors import LedgerUnreadable, StoreConflict, StoreDenied, StoreError, StoreUnsupported
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import COMPACTION_CURSOR, LedgerReference, ReferenceKind, named_in_entry, references
from clients.store import StoreReader, Unreadable
from models.bookie_cluster.input import BookieClusterInput, Direction, LedgerScope, Routing
from models.bookie_registry import BOOTSTRAP, BootstrapMarker, progress_node
from models.lifecycle.failures import NAMED

Ledgers = LedgerTable

#: Components whose references may be inside a cursor's ledger, which a walk of the metadata does not read.
HIDDEN = frozenset(("compacted-ledger",))

# Cursors' ledgers whose metadata are held at a time.
_AT_ONCE = 500

_PROMOTED_KINDS = (ReferenceKind.SCHEMA, ReferenceKind.CURSOR)
# PIP-477 gives no attribution to compacted ledgers and delayed indexes.
_ATTRIBUTED_KINDS = (ReferenceKind.DATA, *_PROMOTED_KINDS)


def scan(
    directory: LedgerDirectory,
    earlier: Mapping[int, LedgerFacts] = MappingProxyType({}),
    members_of: Container[int] | None = None,
) -> Ledgers:
    """Return all ledgers of a cluster by id; those that cannot be decoded are in `undecodable`.

    Args:
        directory: of the cluster.
        earlier: the result of an earlier scan; ledgers that have not changed since are not decoded again.
        members_of: see `LedgerDirectory.facts`.

    Raises:
        StoreError: they cannot be read.
    """
    table = LedgerTable(directory.facts(earlier, members_of))
    table.undecodable = directory.undecodable
    return table


def undecodable_references(source: Ledgers, target: Ledgers, named: ReferenceTable) -> list[str]:
    """Return ledgers that are needed and whose metadata cannot be decoded, each with the reason.

    A ledger is needed if Pulsar's metadata refer to it, or if the source has a ledger of the same id. Others may belong
    to another program, and are left alone.

    Args:
        source: all ledgers of the cluster that they are moved from.
        target: all of the other one.
        named: what Pulsar's metadata refer to, `compacted` included.
    """
    broken = [(number, why) for side in (source, target) for number, why in side.undecodable.items()]
    # Each search costs as much as a walk through all references.
    ids = named.ids if broken else frozenset[int]()
    # mutant: bookie-cluster/any-ledger-that-cannot-be-decoded-stops-all
    return sorted({why for number, why in broken if number in ids or number in source})


def require_decodable(source: Ledgers, target: Ledgers, named: ReferenceTable) -> None:
    """Raise an error if `undecodable_references` finds a ledger: it would count as lost.

    Raises:
        StoreUnsupported: a needed ledger cannot be decoded.
    """
    if broken := undecodable_references(source, target, named):
        some = "; ".join(broken[:NAMED])
        raise StoreUnsupported(f"{len(broken):,} ledgers that are needed cannot be decoded: {some}")


def all_references(store: StoreReader) -> ReferenceTable:
    """Return every reference in Pulsar's metadata to a ledger.

    Raises:
        StoreError: the metadata cannot be read.
    """
    return ReferenceTable(reference for batch in references(store) for reference in batch)


def attributed_references(task: BookieClusterTask, store: StoreReader) -> ReferenceTable:
    """Return every reference, each with the cluster that brokers read its ledger from, where that is known.

    A ledger without a mark belongs to the bootstrap cluster, whichever is ACTIVE (PIP-477, third revision). Where the
    registry names none, as with earlier revisions, its cluster is not known.

    Raises:
        StoreConflict: the marker names no cluster.
        StoreError: the metadata cannot be read.
    """
    return attributed(all_references(store), bootstrap_cluster(task, store))


def attributed(named: ReferenceTable, bootstrap: str | None) -> ReferenceTable:
    """Return references, those without an attribution with the bootstrap cluster; None leaves them without."""
    return (
        ReferenceTable(reference._replace(cluster=reference.cluster or bootstrap) for reference in named)
        if bootstrap
        else named
    )


def misattributed(
    named: Iterable[LedgerReference], bootstrap: str | None, ledgers: Mapping[str, Container[int]]
) -> list[LedgerReference]:
    """Return references without an attribution whose ledger is in another cluster than the bootstrap cluster.

    PIP-477 calls these corrupt: brokers cannot read them. Brokers that do not know attributions make them, see
    `reconcile`.

    Args:
        named: as the metadata have them.
        bootstrap: the bootstrap cluster; None finds nothing.
        ledgers: ids of the ledgers of each cluster that is known, by its name.
    """
    if bootstrap is None:
        return []
    there = ledgers.get(bootstrap, ())
    others = [ids for name, ids in ledgers.items() if name != bootstrap]
    return [
        reference
        for reference in named
        if reference.cluster is None
        and reference.kind in _ATTRIBUTED_KINDS
        and not reference.offloaded
        and reference.ledger_id not in there
        and any(reference.ledger_id in ids for ids in others)
    ]


def bootstrap_cluster(task: BookieClusterTask, store: StoreReader) -> str | None:
    """Return the cluster of ledgers without a mark; None where the registry does not name it, or marks are not read.

    Raises:
        StoreConflict: the marker names no cluster.
        StoreError: it cannot be read.
    """
    if task.input.routing is not Routing.ATTRIBUTION:
        return None
    path = f"{task.input.registry_path}/{BOOTSTRAP}"
    (node,) = store.read([path.encode()])
    if node is None:
        return None
    if isinstance(node, Unreadable):
        raise StoreDenied(node.reason)
    try:
        return BootstrapMarker.model_validate_json(node.value).bootstrapClusterName
    except ValidationError as error:
        raise StoreConflict(
            f'invalid marker {node.value!r} in {path}; expected {{"bootstrapClusterName": "NAME"}}'
        ) from error


def moving(input: BookieClusterInput, source_name: str, ledgers: Ledgers, named: Iterable[LedgerReference]) -> Ledgers:
    """Return the ledgers of a source that the switch moves.

    Args:
        input: the plan, which chooses the ledgers.
        source_name: name of the cluster that they are moved from.
        ledgers: all that the cluster has.
        named: what Pulsar's metadata refer to, `compacted` included.
    """
    # mutant: bookie-cluster/ledgers-of-others-move
    if input.routing is Routing.RESTART and input.ledgers is LedgerScope.ALL:
        return ledgers
    if input.routing is Routing.RESTART:
        return ledgers.only({reference.ledger_id for reference in named})
    # Without an attribution a ledger is still where brokers wrote before the switch.
    here = (None, source_name)
    return ledgers.only(
        # mutant: bookie-cluster/ledgers-of-the-target-move
        {reference.ledger_id for reference in named if reference.kind in _PROMOTED_KINDS and reference.cluster in here}
    )


def compacted(
    task: BookieClusterTask, ledgers: Collection[int], named: Iterable[LedgerReference], *, strict: bool
) -> list[LedgerReference]:
    """Return the ledgers of compacted topics that only cursors' ledgers name.

    A cursor's ledger that no bookie can give is left out: its own copy fails, and is reported.

    Args:
        task: entries are read from its source.
        ledgers: all of the source.
        named: what Pulsar's metadata refer to.
        strict: fail where a bookie does not answer; else its cursors are left out.

    Raises:
        StoreUnreachable: a bookie does not answer.
        StoreError: a cursor's ledger holds something else.
    """
    cursors = [
        reference
        for reference in named
        if reference.kind is ReferenceKind.CURSOR
        and reference.path.endswith(COMPACTION_CURSOR)
        and reference.ledger_id in ledgers
    ]
    if task.input.routing is Routing.ATTRIBUTION or not cursors:
        return []
    with task.bookkeeper(task.ends.source) as source:
        return [
            compacted
            for begin in range(0, len(cursors), _AT_ONCE)
            for compacted in _compacted_by(source, cursors[begin : begin + _AT_ONCE], strict=strict)
        ]


def _compacted_by(source: Cluster, cursors: Sequence[LedgerReference], *, strict: bool) -> Iterator[LedgerReference]:
    for cursor, record in zip(
        cursors, source.directory.read([reference.ledger_id for reference in cursors]), strict=True
    ):
        if record:
            yield from _compacted_ledger(source, cursor, record, strict=strict)


def _compacted_ledger(
    source: Cluster, cursor: LedgerReference, record: LedgerRecord, *, strict: bool
) -> list[LedgerReference]:
    try:
        entries = last_entries(source.bookies, record.ledger_id, record.metadata)
    except StoreError as error:
        if strict and not isinstance(error, LedgerUnreadable):
            raise
        return []
    digest = record.metadata.digest
    return list({ledger for body in entries for ledger in named_in_entry(cursor, read_data(body, digest))})


def dangling(ledgers: Collection[int], named: Iterable[LedgerReference]) -> list[LedgerReference]:
    """Return references whose ledger is absent from a cluster, except for those whose entries are in tiered storage."""
    return [reference for reference in named if reference.ledger_id not in ledgers and not reference.offloaded]


def orphans(
    source: Ledgers,
    target: Ledgers,
    named: ReferenceTable,
    verified: Verified,
) -> list[tuple[int, int]]:
    """Return our copies of ledgers that Pulsar has deleted since, with their versions; not those with references.

    Args:
        source: all ledgers of the one cluster.
        target: those of the other.
        named: what Pulsar's metadata refer to.
        verified: what was copied, open ledgers included.
    """
    begun = ((number, copied.mzxid) for number, copied in verified.begun.items() if number not in verified.copies)
    return [
        (number, copy.version)
        for number, mzxid in chain(verified.copies.items(), begun)
        if number not in source  # mutant: bookie-cluster/copies-of-living-ledgers-are-deleted
        and number not in source.undecodable  # mutant: bookie-cluster/copies-of-undecodable-ledgers-are-deleted
        and number not in named  # mutant: bookie-cluster/copies-that-are-referred-to-are-deleted
        and (copy := target.get(number)) is not None
        # Only the node that was compared; another one belongs to another client.
        and copy.existed_at(mzxid)  # mutant: bookie-cluster/ledgers-of-others-are-deleted
    ]


def still_needed(ledgers: Ledgers, target: Ledgers, named: ReferenceTable, verified: Verified) -> Ledgers:
    """Return the ledgers of a rollback without those that brokers on the source have deleted, and half-made copies.

    Brokers may have run on the source since ledgers were copied, for a while or by mistake: the other cluster still has
    what they deleted, and bookies refuse its ids.

    Args:
        ledgers: those that would be copied back.
        target: all of the cluster that they would be copied to.
        named: what Pulsar's metadata refer to.
        verified: what both clusters had, in either direction.
    """

    def is_needed(ledger: LedgerFacts) -> bool:
        number = ledger.ledger_id
        original, unfinished = target.get(number), verified.unfinished.get(number)
        # It may have no record: its batch ended early. The token shows that no other client has changed it.
        # mutant: bookie-cluster/open-copies-without-a-record-are-copied-back
        is_open_copy = ledger.is_copy and not ledger.closed
        never_left = verified.cutover < 0 or is_open_copy
        if original is not None and not (original.closed or original.is_copy) and never_left:
            # Brokers were never directed away: the source has all of it, also if its copy was closed in the meantime.
            return False  # mutant: bookie-cluster/originals-that-brokers-never-left-are-compared
        if original is not None:
            copied = max(unfinished.through if unfinished else -1, ledger.last_entry)
            # mutant: bookie-cluster/what-the-source-has-in-part-is-left-out
            is_whole = original.closed and (unfinished or is_open_copy) and original.last_entry >= copied
            # A record from before the copy was deleted, with all of its cluster, says nothing of the present one.
            # mutant: bookie-cluster/half-made-copies-are-compared-with-their-originals
            return ledger.existed_at(verified.originals.get(number)) or not is_whole
        was_there = is_open_copy or unfinished is not None or number in verified.copies or number in verified.originals
        # Of an earlier switch: new ids of the target are above (I11).
        # mutant: bookie-cluster/what-an-earlier-switch-left-is-copied-back
        was_there = was_there or number <= verified.cutover
        # mutant: bookie-cluster/what-is-referred-to-is-not-copied-back, bookie-cluster/deleted-ledgers-are-copied-back
        return number in named or not was_there

    return ledgers.where(is_needed)


@dataclass
class Verified:
    """Ledgers of which both sides were compared in full.

    Attributes:
        copies: of this direction, with the zxid of the target's znode then.
        originals: of the other direction, with the zxid that the source's znode of this one had: a ledger that came
            from where it would go to need not be copied back.
        begun: how far open copies of this direction have come.
        unfinished: how far open copies of the other direction have come; some are complete by now.
        cutover: highest id of the other direction's source when brokers were directed away; -1 before that.
    """

    copies: MutableMapping[int, int] = field(default_factory=IdNumbers)
    originals: MutableMapping[int, int] = field(default_factory=IdNumbers)
    begun: dict[int, Begun] = field(default_factory=dict[int, Begun])
    unfinished: Mapping[int, Begun] = field(default_factory=dict[int, Begun])
    cutover: int = -1

    def __contains__(self, ledger_id: object) -> bool:
        """Return whether the target's ledger of this id is a copy, as a whole or in part."""
        # mutant: bookie-cluster/open-copies-are-early-ledgers
        return ledger_id in self.copies or ledger_id in self.begun

    def holds(self, record: LedgerFacts, copy: LedgerFacts | None) -> bool:
        """Return whether a ledger of the source is known to be equal in the target: both are still those compared.

        Autorecovery moves ledgers to other bookies, for hours if one is lost, and each time changes the znode. Entries
        of a closed ledger never change.

        Args:
            record: the ledger in the source.
            copy: the ledger of this id in the target.
        """
        # mutant: bookie-cluster/open-ledgers-count-as-equal, bookie-cluster/other-content-counts-as-equal
        if copy is None or not record.closed or not record.same_content(copy):
            return False
        # mutant: bookie-cluster/a-changed-copy-counts-as-equal
        if copy.existed_at(self.copies.get(record.ledger_id)):
            return True
        # mutant: bookie-cluster/a-changed-original-counts-as-equal
        return record.existed_at(self.originals.get(record.ledger_id))


def read_known(task: BookieClusterTask, store: StoreReader) -> Verified:
    """Return the ledgers that earlier attempts of both directions have compared."""
    # A rollback needs the forward direction's list: ledgers that came from the source need not be copied back.
    back = Direction.FORWARD if task.direction is Direction.BACK else Direction.BACK
    cutover = read_cutover_ledger_id(store, progress_path(task, back))
    return Verified(
        copies=read_verified(store, progress_path(task, task.direction)),
        originals=read_verified(store, progress_path(task, back)),
        begun=read_begun(store, progress_path(task, task.direction)),
        unfinished=read_begun(store, progress_path(task, back)),
        cutover=-1 if cutover is None else cutover,
    )


def progress_path(task: BookieClusterTask, direction: Direction) -> str:
    """Return the node that holds the progress of a direction."""
    return progress_node(task.input.registry_path, task.input.ends(direction).switch_id)
