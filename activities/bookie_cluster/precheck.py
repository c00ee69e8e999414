"""PRECHECK of the bookie cluster migration: all blockers in one answer, each with its cure; reads only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from activities.bookie_cluster.build import check_ids
from activities.bookie_cluster.cluster_inspection import (
    ClusterInspection,
    check_pair,
    check_space,
    inspect,
    resolve_hosts,
)
from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.deleted_ids import refused_ids
from activities.bookie_cluster.ledgers import (
    Ledgers,
    all_references,
    attributed,
    bootstrap_cluster,
    compacted,
    dangling,
    misattributed,
    moving,
    undecodable_references,
)
from activities.bookie_cluster.precheck_brokers import check_brokers
from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.coverage import covered
from activities.pulsar.credentials_check import unusable_credentials
from activities.pulsar.exclusion import (
    another_cluster,
    bookies_on_the_move,
    claimed,
    metadata_on_the_move,
    other_holder,
)
from activities.pulsar.feature_census import FeatureCensus
from clients.bookkeeper.idgen import high_path
from clients.cas.claims import read_claim
from clients.cas.store import CasReader
from clients.errors import StoreConflict
from clients.pulsar.attribution import ATTRIBUTION
from clients.pulsar.records.bookie_registry import BookieRegistryReader
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference, ReferenceKind
from models.bookie_cluster.input import KIND, BookieClusterInput, BrokerControl, Direction, LedgerScope, Routing
from models.bookie_cluster.results import IdCheck, LedgerSurvey, SwitchPrecheck
from models.bookie_registry import BOOTSTRAP, SwitchClaim
from models.lifecycle.failures import NAMED, Blocker
from models.lifecycle.input import SourceCleanup

# Measured with two bookies on one machine, limited by its two cores: the time of a copy and its comparison.
_BYTES_PER_SECOND, _LEDGERS_PER_SECOND = 20e6, 700.0
# Two jobs of Spark, the claim, and the steps of a workflow.
_PAUSE_SECONDS, _RECOVERY_SECONDS = 2.0, 0.1
# An ACL needs a request: it is read of this many ledgers, or up to twice as many.
_ACLS = 1_000
# Both clusters are read twice.
_INSPECTIONS = 2
_STOPPERS = {
    BrokerControl.MANUAL: "you stop all brokers when the status asks for it",
    BrokerControl.COMMAND: "the command of the settings stops all brokers",
    BrokerControl.WEBHOOK: "the webhook of the settings has all brokers stopped",
}


@step(BookieClusterTask, reads_only=True)
def precheck(task: BookieClusterTask) -> SwitchPrecheck:
    """Return all blockers, each with its cure."""
    run, input = SwitchPrecheckRun(task), task.input
    ends = (("SOURCE", input.source_credentials), ("TARGET", input.target_credentials))
    if unusable := unusable_credentials(task.runtime, (("", input.credentials), *ends)):
        return run.without_servers(unusable)
    result = task.with_throttle_warnings(run.run(), input.auto_throttle, input.credentials)
    census, store = FeatureCensus(task.input.cluster), task.input.store
    return covered(result, task.input, census, task.survey, store=store, access=task.access)


class SwitchPrecheckRun:
    """One precheck."""

    def __init__(self, task: BookieClusterTask) -> None:
        self._task = task
        self._findings = Findings()
        self._brokers: tuple[str, ...] = ()
        self._named = ReferenceTable()
        self._bootstrap: str | None = None
        self._ids: IdCheck | None = None
        self._committed = False

    def without_servers(self, blockers: Iterable[Blocker]) -> SwitchPrecheck:
        """Return a result with these blockers, for which no server was asked."""
        self._findings.blockers.extend(blockers)
        return self._result(None, None, None, 0.0)

    def run(self) -> SwitchPrecheck:
        """Check everything that can be checked, whatever else fails."""
        task, findings = self._task, self._findings
        findings.check("the registry of bookie clusters", self._check_registry)
        begun = time.monotonic()
        source, target = inspect(task, task.input.source, findings), inspect(task, task.input.target, findings)
        named = findings.check("the brokers' metadata", self._read_references)
        seconds = time.monotonic() - begun
        writable = len(target.free) if target else None
        findings.check("the brokers' metadata store", lambda: self._ask_brokers(writable))
        if source and target:
            check_pair(source, target, resolve_hosts(source.addresses | target.addresses), findings)
            if named:
                self._check_attributions(source, target)
                findings.check("the id generators", partial(self._check_ids, target))
        self._named = attributed(self._named, self._bootstrap)
        if source and named:
            self._named = self._named.plus(compacted(task, source.ledgers, self._named, strict=False))
        if source and target and named:
            self._check_decodable(source, target)
        chosen = moving(task.input, task.input.source.name, source.ledgers, self._named) if source and named else None
        if target and chosen is not None:
            findings.check("the list of deleted ledgers", partial(self._warn_of_deleted, target, chosen))
        if source and chosen is not None:
            findings.check("the ACLs of ledgers", partial(self._warn_of_access_lists, source, chosen))
        survey = self._survey(source, chosen) if source and chosen is not None else None
        return self._result(target, chosen, survey, seconds)

    def _result(
        self, target: ClusterInspection | None, chosen: Ledgers | None, survey: LedgerSurvey | None, seconds: float
    ) -> SwitchPrecheck:
        needed, guess = 0, _UNKNOWN
        if target and chosen is not None and survey:
            needed = check_space(target, chosen, survey.largest_ensemble, self._findings)
            remaining = chosen.where(lambda ledger: ledger.ledger_id not in target.ledgers)
            guess = estimate(
                self._task.input,
                survey,
                remaining=len(remaining),
                left_bytes=sum(ledger.length for ledger in remaining.values()),
                inspection_seconds=seconds,
            )
        return SwitchPrecheck(
            blockers=tuple(self._findings.blockers),
            warnings=tuple(self._findings.warnings),
            steps=plan_preview(self._task.input, survey, self._ids) if survey else (),
            survey=survey,
            ids=self._ids,
            brokers=self._brokers,
            bookies=tuple(sorted(target.free)) if target else (),
            fingerprint={f"target bookie {bookie}": "writable" for bookie in (target.free if target else ())},
            free_bytes=sum(target.free.values()) if target else 0,
            needed_bytes=needed,
            estimated_copy_seconds=guess.copy_seconds,
            estimated_pause_seconds=guess.pause_seconds,
            estimate_basis=guess.basis,
        )

    def _check_registry(self) -> None:
        input, findings = self._task.input, self._findings
        with self._task.reading_store() as store:
            self._check_exclusion(store)
            registry = BookieRegistryReader(store, input.registry_path)
            try:
                for cluster in (input.source, input.target):
                    registry.refuse_used_address(cluster.name, cluster.metadataServiceUri)
                    registry.refuse_other_address(cluster.name, cluster.metadataServiceUri)
            except StoreConflict as error:
                findings.block("ADDRESS_IN_USE", str(error), "name clusters as they are registered")
            try:
                active = registry.active()
            except StoreConflict as error:
                findings.block("ANOTHER_ACTIVE", str(error), "set the status of each registered cluster right")
                active = None
        if active is not None and active.cluster.name != input.source.name:
            findings.block(
                "ANOTHER_ACTIVE",
                f"{active.cluster.name} is ACTIVE in {input.registry_path}, not the source {input.source.name}",
                "name the ACTIVE cluster as the source",
            )

    def _check_exclusion(self, store: CasReader) -> None:
        input, mine = self._task.input, self._task.workflow_id
        if holder := other_holder(store, mine):
            code = "SWITCH_OPEN" if holder.workflow_id.startswith(f"{KIND}/") else "CLUSTER_CLAIMED"
            self._findings.blockers.append(claimed(store, holder, code=code))
        elif held := read_claim(store, SwitchClaim):
            # An earlier run of this switch was terminated after its commit: then brokers must be on the target.
            self._committed = held.claim.directed == input.target.name
        self._findings.blockers += filter(
            None,
            (
                metadata_on_the_move(store),
                bookies_on_the_move(store, mine, input.registry_path),
                another_cluster(store, input.cluster),
            ),
        )

    def _read_references(self) -> None:
        with self._task.broker_store() as store:
            self._named = all_references(store)
            self._bootstrap = bootstrap_cluster(self._task, store)

    def _ask_brokers(self, writable: int | None) -> None:
        self._brokers = check_brokers(self._task, self._findings, writable, committed=self._committed)

    def _check_attributions(self, source: ClusterInspection, target: ClusterInspection) -> None:
        ledgers = {side.cluster.name: side.ledgers for side in (source, target)}
        if not (misplaced := misattributed(self._named, self._bootstrap, ledgers)):
            return
        marker = f"{self._task.input.registry_path}/{BOOTSTRAP}"
        some = ", ".join(
            f"{reference.kind} ledger {reference.ledger_id} of {reference.path}" for reference in misplaced[:NAMED]
        )
        self._findings.block(
            "UNATTRIBUTED_LEDGERS",
            f"{len(misplaced):,} references without an attribution name ledgers that are not in {self._bootstrap}, "
            f"where {marker} says that they are, so that brokers with the plugin cannot read them: {some}",
            f"set the property {ATTRIBUTION} of each to the cluster that has its ledger; brokers without the plugin "
            "drop it from all versions of a schema with the next one",
        )

    def _check_decodable(self, source: ClusterInspection, target: ClusterInspection) -> None:
        broken = undecodable_references(source.ledgers, target.ledgers, self._named)
        if broken:
            self._findings.block(
                "UNDECODABLE_LEDGERS",
                f"{len(broken):,} ledgers that are needed cannot be decoded: {'; '.join(broken[:NAMED])}",
                "have the BookKeeper that wrote them write them again in format version 3, restore them from a backup, "
                "or delete the topics or schemas that refer to them",
            )
        for side in (source, target):
            if others := sorted(set(side.ledgers.undecodable.values()).difference(broken)):
                self._findings.warn(
                    f"{len(others):,} ledgers of {side.cluster.name} cannot be decoded, and nothing refers to them; "
                    f"they are left alone: {'; '.join(others[:NAMED])}"
                )

    def _check_ids(self, target: ClusterInspection) -> None:
        input, findings = self._task.input, self._findings
        ids = self._ids = check_ids(self._task, Direction.FORWARD)
        if ids.safe:
            return
        too_low = (
            f"new ids of {input.target.name} begin at {ids.next_id:,}, and ids up to {ids.highest:,} are in use: "
            "topics whose ledgers' ids do not grow lose messages (I11)"
        )
        node = f"{input.target.root.root}{high_path(ids.cure)}"
        if input.advance_ids:
            self._warn_of_cached_ids(target)
        elif input.skip_idgen_precheck:
            findings.warn(f"LAB ONLY: {too_low}")
        else:
            findings.block(
                "TARGET_IDS_TOO_LOW", too_low, f'set "advance_ids": true, and the switch creates {node}; or create that'
            )

    def _warn_of_cached_ids(self, target: ClusterInspection) -> None:
        ids, name, input = self._named.ids, target.cluster.name, self._task.input
        others = sum(
            ledger.pulsars for ledger in target.ledgers.where(lambda ledger: ledger.ledger_id not in ids).values()
        )
        if not others and input.routing is Routing.RESTART:
            return
        used = f" ({others:,} of Pulsar's ledgers there are not referred to by {input.metadata_url})" if others else ""
        self._findings.warn(
            f"clients that have created ledgers in {name} already{used}, with BookKeeper's own driver "
            "(zk+hierarchical), do not notice that its id generator jumps; restart those, all brokers of a Pulsar "
            "cluster at once"
        )

    def _survey(self, source: ClusterInspection, chosen: Ledgers) -> LedgerSurvey:
        lost = self._lost(source)
        self._warn_of_ledgers(source, lost)
        records = chosen.values()
        return LedgerSurvey(
            ledgers=len(chosen),
            unsealed=sum(not record.closed for record in records),
            entry_bytes=sum(record.length for record in records),
            kinds=dict(Counter(record.component or "other" for record in records).most_common()),
            references=len(self._named),
            dangling=tuple(
                f"{reference.path}: {reference.kind} ledger {reference.ledger_id}" for reference in lost[:NAMED]
            ),
            dangling_count=len(lost),
            largest_ensemble=max((record.ensemble_size for record in records), default=0),
        )

    def _lost(self, source: ClusterInspection) -> list[LedgerReference]:
        """Return references to ledgers that do not exist, and were not created after all were listed."""
        lost = dangling(source.ledgers, self._named)
        ids = sorted({reference.ledger_id for reference in lost})
        with self._task.ledgers(source.cluster) as directory:
            made = directory.existing(ids)
        return [reference for reference in lost if reference.ledger_id not in made]

    def _warn_of_deleted(self, target: ClusterInspection, chosen: Ledgers) -> None:
        task, name = self._task, target.cluster.name
        with task.broker_store() as store:
            lacking = (number for number in chosen if number not in target.ledgers)
            refused = refused_ids(task, store, target.cluster, lacking)
        if refused:
            self._findings.warn(
                f"{len(refused):,} ledgers that move were deleted from {name} days ago, and its bookies may refuse "
                f"their ids until a restart: BUILD says when it is time to restart the bookies of {name} one after the "
                "other, not before it has begun"
            )

    def _warn_of_access_lists(self, source: ClusterInspection, chosen: Ledgers) -> None:
        ids = list(chosen)
        sample = ids[:: max(1, len(ids) // _ACLS)]
        with self._task.ledgers(source.cluster) as directory:
            protected = directory.protected(sample)
        if protected:
            name, root = self._task.input.target.name, self._task.input.target.root.root
            self._findings.warn(
                f"of {len(sample):,} ledgers of {source.cluster.name} whose ACL was read, {len(protected):,} do not "
                f"give everyone all permissions (ledger {protected[0]} for example). Their copies do: protect {name} "
                f"by its network, and set the ACL there when brokers use it: zkCli.sh setAcl -R {root} ACL"
            )

    def _warn_of_unreferenced(self, source: ClusterInspection) -> None:
        """Warn of ledgers without a reference; not a blocker, since brokers create a ledger before they refer to it."""
        ids = self._named.ids
        others = source.ledgers.where(lambda ledger: ledger.ledger_id not in ids)
        pulsars = others.where(lambda ledger: ledger.pulsars)
        still_open = sum(not pulsar.closed for pulsar in pulsars.values())
        input = self._task.input
        cause = (
            f"{len(others):,} ledgers of {source.cluster.name} are not referred to by {input.metadata_url} "
            f"({len(pulsars):,} are Pulsar's, {still_open:,} of these open)"
        )
        if not input.exclusive and others:
            self._findings.warn(f"{cause}: another Pulsar cluster, or programs, may use them, and they are left alone")
        elif input.ledgers is LedgerScope.ALL and others:
            self._findings.warn(
                f"{cause}: with `exclusive` they are fenced and moved, and can be deleted in the end; if another "
                "cluster or program uses them, leave `ledgers` and `exclusive` out"
            )

    def _warn_of_ledgers(self, source: ClusterInspection, lost: list[LedgerReference]) -> None:
        input, findings = self._task.input, self._findings
        if lost:
            findings.warn(f"{len(lost):,} references name ledgers that {source.cluster.name} does not have either")
        if input.routing is Routing.RESTART:
            self._warn_of_unreferenced(source)
        unstamped = {
            reference.ledger_id
            for reference in self._named
            if reference.kind is ReferenceKind.DATA and reference.cluster is None
        }
        if unstamped and input.routing is Routing.ATTRIBUTION:
            findings.warn(
                # Before the third revision of PIP-477 brokers read such ledgers from the ACTIVE cluster, which changes
                # after the flip.
                f"{len(unstamped):,} data ledgers carry no attribution, and brokers with the plugin look for such in "
                f"the ACTIVE cluster: let them age out before CLEANUP, which makes {input.target.name} ACTIVE"
            )


class Estimate(NamedTuple):
    """Estimated time of the copy, and of the brokers' pause in addition to their own stop and start."""

    copy_seconds: float
    pause_seconds: float
    basis: str


_UNKNOWN = Estimate(0.0, 0.0, "none, because not everything could be read")


def estimate(
    input: BookieClusterInput, survey: LedgerSurvey, *, remaining: int, left_bytes: int, inspection_seconds: float
) -> Estimate:
    """Estimate the time of the copy and of the pause.

    Args:
        input: the plan, with its throttle.
        survey: the ledgers that move.
        remaining: closed ledgers that the target lacks.
        left_bytes: bytes of their entries.
        inspection_seconds: time that reading both clusters' metadata took just now.
    """
    rate = min(_BYTES_PER_SECOND, input.throttle * 1e6) if input.throttle else _BYTES_PER_SECOND
    copy = left_bytes / rate + remaining / _LEDGERS_PER_SECOND
    pause = _PAUSE_SECONDS + _INSPECTIONS * inspection_seconds + survey.unsealed * _RECOVERY_SECONDS
    if input.full_verify:
        pause += survey.entry_bytes / _BYTES_PER_SECOND + survey.ledgers / _LEDGERS_PER_SECOND
    return Estimate(
        round(copy, 1),
        round(pause, 1) if input.routing is Routing.RESTART else 0.0,
        f"{rate / 1e6:g} MB/s and {_LEDGERS_PER_SECOND:,.0f} ledgers a second, as two bookies on one machine take them "
        f"(the status shows the real rate); both clusters' metadata were read in {inspection_seconds:.1f} s just now",
    )


def plan_preview(input: BookieClusterInput, survey: LedgerSurvey, ids: IdCheck | None) -> tuple[str, ...]:
    """Return one sentence for each phase, in order.

    Args:
        input: the switch.
        survey: what moves.
        ids: of the target's generator; None if not known.
    """
    middle = _restart(input, survey) if input.routing is Routing.RESTART else _attribution(input, survey)
    return (
        (
            f"REGISTER: {input.source.name} is ACTIVE and {input.target.name} STANDBY in {input.registry_path}, unless "
            "they are registered already"
        ),
        *_ids(input, ids),
        *middle,
        f"ROLLBACK_WINDOW: for {input.rollback_window} `rollback` leads back to {input.source.name}",
        _cleanup(input),
    )


def _ids(input: BookieClusterInput, ids: IdCheck | None) -> tuple[str, ...]:
    if ids is None or ids.safe:
        return ()
    if input.advance_ids:
        return (
            (
                f"BUILD: create {input.target.root.root}{high_path(ids.cure)}, so that ids of {input.target.name} "
                f"begin at {ids.cure << 32:,}, above {ids.highest:,}; it cannot be lowered again"
            ),
        )
    if input.skip_idgen_precheck:
        return (
            (
                f"LAB ONLY: ids of {input.target.name} begin at {ids.next_id:,}, not above {ids.highest:,}; messages "
                "can be lost"
            ),
        )
    return ()


def _restart(input: BookieClusterInput, survey: LedgerSurvey) -> tuple[str, ...]:
    source, target = input.source.name, input.target.name
    again = ", compare every entry again" if input.full_verify else ""
    return (
        (
            f"BUILD: while brokers serve, copy {survey.ledgers - survey.unsealed:,} closed ledgers with "
            f"{survey.entry_bytes / 1e6:,.1f} MB of entries to {target} under their ids, and compare each in full"
        ),
        (
            f"SWITCH: {_STOPPERS[input.broker_control]}; when none is registered, recover the open ledgers "
            f"({survey.unsealed:,} now), copy them and the rest{again}, compare all metadata of both clusters, and see "
            f"that each of {survey.references:,} references has its ledger in {target}; after {input.pause_deadline} "
            f"without a commit brokers start on {source} again"
        ),
        f"SWITCH: commit by setting switch-target to {target}",
        (
            f"PROMOTE: brokers start with bookkeeperMetadataServiceUri={input.target.metadataServiceUri}; each must "
            "prove that it writes there"
        ),
    )


def _attribution(input: BookieClusterInput, survey: LedgerSurvey) -> tuple[str, ...]:
    target = input.target.name
    return (
        (
            f"BUILD: copy {survey.ledgers - survey.unsealed:,} closed schema and cursor ledgers with "
            f"{survey.entry_bytes / 1e6:,.1f} MB of entries to {target} under their ids, and compare each in full"
        ),
        f"SWITCH: set switch-target to {target}; brokers create new ledgers there from now on",
        (
            f"PROMOTE: attribute what was copied to {target}, schemas by compare-and-set and cursors through their "
            f"owners; open cursor ledgers ({survey.unsealed:,} now) and topics' data stay in {input.source.name}"
        ),
    )


def _cleanup(input: BookieClusterInput) -> str:
    source, target = input.source.name, input.target.name
    when = "at the window's end" if input.cleanup_at_window_end else "by `cleanup`"
    if input.cleanup is SourceCleanup.LEAVE:
        return f"CLEANUP: {target} becomes ACTIVE and {source} DEPRECATED; the ledgers of {source} stay as they are"
    limit = f"at most {input.max_deletions:,} of " if input.max_deletions is not None else ""
    return (
        f"CLEANUP: {target} becomes ACTIVE and {source} DEPRECATED; {when} {limit}the ledgers of {source} are deleted "
        "that were verified and that nothing needs"
    )
