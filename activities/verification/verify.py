"""Step of a verification: compare both sides of a migration again."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime

from temporalio import activity

from activities.lifecycle.step import step
from activities.verification import ledgers, stores
from activities.verification.context import Comparison, MigrationGate, VerificationTask, phase_of
from clients.verification.bookie_entries import BookieEntries
from clients.verification.kazoo_records import KazooRecords
from clients.verification.ledger_records import LedgerRecords
from clients.verification.oxia_records import OxiaRecords
from clients.verification.records import RecordReader, StoredRecord
from models.bookie_cluster.input import BookieClusterInput
from models.lifecycle.claim import CLAIM
from models.lifecycle.status import ProgressUnit
from models.metadata_store.claims import SourceClaim
from models.metadata_store.input import KIND as METADATA_STORE
from models.metadata_store.input import MetadataStoreInput
from models.migration_flag import FLAG, Flag, FlagPhase
from models.store_url import StoreUrl
from models.verification.results import VerificationCertificate


@step(VerificationTask, reads_only=True)
def compare(task: VerificationTask) -> VerificationCertificate:
    """Compare both sides of a migration, without the code that copies.

    Raises:
        StoreError: a store or a bookie failed; another attempt continues after what was compared.
        ApplicationError: `Refused`: the migration does not have two sides any more.
    """
    gate = MigrationGate(
        phase_of(task.runtime, task.input.migration, task.input.migration_run), task.input.migration_kind, task.context
    )
    gate.check()
    with ExitStack() as stack:
        if task.input.migration_kind == METADATA_STORE:
            return _compare_stores(task, gate, stack)
        return _compare_ledgers(task, gate, stack)


def _compare_stores(task: VerificationTask, gate: MigrationGate, stack: ExitStack) -> VerificationCertificate:
    plan = MetadataStoreInput.model_validate(task.input.migration_input)
    source = _records(task, plan.source_url, plan.store_credentials[plan.source_url], stack)
    target = _records(task, plan.target_url, plan.store_credentials[plan.target_url], stack)
    comparison = Comparison(task.context, task.input, gate, ProgressUnit.RECORDS)
    rules = stores.StoreRules(plan.source_url, plan.target_url, lambda: _commit_ms(source))
    stores.StoreComparison(comparison, rules, source, target, task.input.paths or ("",)).run()
    return _certificate(task, comparison, str(plan.source_url), str(plan.target_url), stores.METHOD)


def _compare_ledgers(task: VerificationTask, gate: MigrationGate, stack: ExitStack) -> VerificationCertificate:
    plan = BookieClusterInput.model_validate(task.input.migration_input)
    timeout = plan.old_ledger_read_timeout.total_seconds()
    sides: list[ledgers.LedgerSide] = []
    for cluster in (plan.source, plan.target):
        access = task.runtime.stores_of(plan.store_credentials[cluster.root]).to(cluster.root)
        records = stack.enter_context(LedgerRecords(cluster.root, access=access.zookeeper, timeout=access.timeout))
        entries = stack.enter_context(BookieEntries(records.bookies, access=access.bookies, timeout=timeout))
        sides.append(ledgers.LedgerSide(records, entries))
    comparison = Comparison(task.context, task.input, gate, ProgressUnit.LEDGERS)
    source, target = sides
    ledgers.LedgerComparison(comparison, source, target, task.input.ledger_range, plan.routing).run()
    names = plan.source.metadataServiceUri, plan.target.metadataServiceUri
    return _certificate(task, comparison, *names, ledgers.METHOD)


def _commit_ms(source: RecordReader) -> int:
    """Return when services left the source, by its own clock; 0 if it does not say so."""
    claim, flag = source.read([CLAIM, FLAG])
    if not isinstance(flag, StoredRecord) or Flag.model_validate_json(flag.value).phase is not FlagPhase.COMPLETED:
        return 0
    # The flag is set again after the commit, for services that were not connected.
    moved = SourceClaim.model_validate_json(claim.value).moved_ms if isinstance(claim, StoredRecord) else 0
    return moved or flag.changed_ms


def _records(task: VerificationTask, url: StoreUrl, credentials: str, stack: ExitStack) -> RecordReader:
    access = task.runtime.stores_of(credentials).to(url)
    if url.scheme == "zk":
        return stack.enter_context(KazooRecords(url, access=access.zookeeper, timeout=access.timeout))
    return stack.enter_context(OxiaRecords(url, access=access.oxia, timeout=access.timeout))


def _certificate(
    task: VerificationTask, comparison: Comparison, source: str, target: str, method: str
) -> VerificationCertificate:
    tally = comparison.tally
    return VerificationCertificate(
        migration=task.input.migration,
        migration_run=task.input.migration_run,
        scope=task.input.scope,
        source=source,
        target=target,
        committed=comparison.committed,
        compared=tally.equal + tally.differing.count,
        equal=tally.equal,
        equal_bytes=tally.equal_bytes,
        differing=tally.differing,
        unreadable=tally.unreadable,
        excluded=tally.excluded,
        sha256=tally.digest,
        method=method,
        started=activity.info().scheduled_time,
        ended=datetime.now(UTC),
        attempts=activity.info().attempt,
    )
