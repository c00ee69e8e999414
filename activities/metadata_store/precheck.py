"""PRECHECK of the metadata store migration: all blockers in one answer, each with its cure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.metadata_store.brokers import ask_brokers, ledgers_elsewhere
from activities.metadata_store.context import MetadataStoreTask
from activities.metadata_store.flag import FlagState, read_state
from activities.metadata_store.indexed import check_indexed
from activities.metadata_store.occupied import (
    foreign_record,
    irreplaceable,
    is_bookkeepers,
    not_empty,
    used_by_others,
)
from activities.metadata_store.rollback import release
from activities.pulsar.coverage import covered
from activities.pulsar.credentials_check import unusable_credentials
from activities.pulsar.exclusion import (
    CLUSTERS,
    another_cluster,
    bookies_on_the_move,
    claimed,
    no_brokers,
    other_holder,
)
from activities.pulsar.feature_census import FeatureCensus
from activities.pulsar.registrations import (
    becomes_true,
    brokers,
    participants,
    persistent_registration,
    registered,
    still_in_use,
)
from clients.cas.claims import held_by
from clients.cas.store import CasReader
from clients.errors import StoreUnsupported
from clients.oxia.probe import probe_target, speaks_v1
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.records.migration_flag import foreign_flag, moved_to, read_flag
from clients.pulsar.roots import is_pulsars
from clients.store import StoreReader
from clients.stores import Access, open_cas_reader, open_reader
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import summarize
from models.metadata_store.claims import TARGET, TargetClaim
from models.metadata_store.input import MetadataStoreInput, Mode
from models.metadata_store.results import Precheck, Survey
from models.migration_flag import BLOCKING_PHASES, FLAG, Flag, FlagPhase
from models.store_url import StoreUrl, parse_store_url
from spark.engine import SparkEngine
from spark.fence import claim_in
from spark.metadata_store import jobs
from spark.metadata_store.spec import Pair, PathSample, Surveyed

# A cutover without participants takes about this long: some transactions and four steps of a workflow.
_CUTOVER_SECONDS = 2.0
# Brokers recreate their ephemerals side by side; seen with two brokers and a bookie.
_PREPARATION_SECONDS = 2.0
# Names in one blocker.
_SHOWN = 10
# BookKeeper's setup may have made `/ledgers` in a store that no bookie uses; ids are given only where ledgers are.
_ID_GENERATORS = (b"/ledgers/idgen", b"/ledgers/idgen-long")
# The auditor of autorecovery with Pulsar's own driver, while one runs.
_AUDITOR = b"/ledgers/underreplication/leader"
# A copy reads once and writes once; writing dominates.
_COPY_PER_READ = 4.0


@step(MetadataStoreTask)
def precheck(task: MetadataStoreTask) -> Precheck:
    """Return all blockers, each with its cure; a dry run writes nothing.

    Writes that an earlier run left blocked are unblocked first.
    """
    names = (("", task.input.credentials), ("TARGET", task.input.target_credentials))
    if unusable := unusable_credentials(task.runtime, names):
        return Precheck(
            blockers=tuple(unusable),
            survey=None,
            participants=(),
            flag=FlagPhase.NOT_STARTED,
            estimated_copy_seconds=0.0,
            estimated_blocked_seconds=0.0,
            estimate_basis="nothing was read",
        )
    check = PrecheckRun(task.input, task.workflow_id, task.access, task.admin, partial(release, task))
    result = check.run(task.engine, task.pair, tag=task.tag())
    result = task.with_throttle_warnings(result, task.input.auto_throttle, task.input.credentials)
    return covered(
        result,
        task.input,
        FeatureCensus(task.input.cluster),
        task.survey,
        store=task.input.source_url,
        access=task.access,
    )


class PrecheckRun:
    """One precheck.

    Args:
        input: of the operator.
        workflow_id: this migration; what its earlier runs left is not a blocker.
        access: credentials and timeout.
        admin: access to brokers.
        unblock: unblocks writes that an earlier run of this migration left blocked; not called in a dry run.
    """

    def __init__(
        self,
        input: MetadataStoreInput,
        workflow_id: str,
        access: Access,
        admin: AdminAccess,
        unblock: Callable[[], object],
    ) -> None:
        self._input = input
        self._me = workflow_id
        self._access = access
        self._admin = admin
        self._unblock = unblock
        self._findings = Findings()
        self._participants: tuple[str, ...] = ()
        self._flag = FlagPhase.NOT_STARTED
        self._left_blocked = False
        #: The target of the attempt that left the flag; empty where it shows none.
        self._earlier_target = ""
        #: Sessions that take part; None if not checked.
        self._known: set[int] | None = None

    def run(self, engine: SparkEngine, pair: Pair, *, tag: str) -> Precheck:
        """Check everything, then count the source."""
        source_ok = self._findings.check("the source", self._check_source, of="SOURCE")
        # After a COMPLETED migration the target is the live store: do not suggest to replace it.
        if self._flag is not FlagPhase.COMPLETED:
            self._findings.check("the target", self._check_target, of="TARGET")
        survey: Survey | None = None
        seconds = 0.0
        if source_ok:
            begun = time.monotonic()
            # Also with blockers: an operator wants to see all of them at once, including those of the scan.
            survey = self._surveyed(jobs.survey(engine, pair, tag=tag))
            seconds = time.monotonic() - begun
        return Precheck(
            blockers=tuple(self._findings.blockers),
            warnings=tuple(self._findings.warnings),
            survey=survey,
            participants=self._participants,
            flag=self._flag,
            fingerprint={
                "migration flag": self._flag,
                **dict.fromkeys((f"participant {name}" for name in self._participants), "ready"),
            },
            estimated_copy_seconds=round(seconds * _COPY_PER_READ, 1),
            estimated_blocked_seconds=self._blocked_seconds(seconds),
            estimate_basis=f"the source was read in {seconds:.1f} s just now",
        )

    def _blocked_seconds(self, read_seconds: float) -> float:
        if self._input.mode is Mode.OFFLINE:
            return 0.0
        waits = _CUTOVER_SECONDS + (_PREPARATION_SECONDS if self._participants else 0.0)
        return round(waits + (2 * read_seconds if self._input.full_verify else 0.0), 1)

    # The source -----------------------------------------------------------------------------------------------------

    def _check_source(self) -> None:
        with open_cas_reader(self._input.source_url, self._access) as store:
            self._check_exclusion(store)
        if self._flag is FlagPhase.COMPLETED:
            return
        check = self._check_participants if self._input.mode is Mode.LIVE else self._check_stopped
        with open_reader(self._input.source_url, self._access) as reader:
            check(reader)
            self._check_roots(reader)
            self._check_other_clusters(reader)
            check_indexed(self._input, reader, self._findings)
            running = brokers(reader)
        ask_brokers(self._input, running, self._access, self._admin, self._findings)

    def _check_exclusion(self, store: CasReader) -> None:
        holder = other_holder(store, self._me)
        if self._input.source_url.scheme == "zk":
            self._check_flag(read_state(store), claimed_by_another=holder is not None)
            if switch := bookies_on_the_move(store, self._me):
                self._findings.blockers.append(switch)
        if holder:
            self._findings.blockers.append(claimed(store, holder, code="SOURCE_CLAIMED"))
        if wrong := another_cluster(store, self._input.cluster):
            self._findings.blockers.append(wrong)

    def _check_flag(self, state: FlagState, *, claimed_by_another: bool) -> None:
        self._flag = state.flag.phase
        self._earlier_target = state.flag.targetUrl or ""
        if state.flag.phase is FlagPhase.COMPLETED:
            # Offline too: an operator who forgets to swap source and target for a failback would replace the live
            # store.
            self._findings.block(
                "ALREADY_COMPLETED", moved_to(state.flag), "name the store that they use now as the source"
            )
        elif state.flag.phase in BLOCKING_PHASES:
            if claimed_by_another and state.claim:
                self._findings.block(
                    "FLAG_HELD",
                    f"the migration flag is {state.flag.phase}: {state.claim.workflow_id!r} blocks metadata writes",
                    "wait until it has ended; if it was terminated, start it again, which unblocks writes. Do not "
                    "delete its claim before: without it the owner of the flag is unknown",
                )
            elif state.owned_by(self._me):
                self._left_blocked = True
                if self._input.dry_run:
                    self._findings.warn(
                        "an earlier run was ended while writes were blocked; the next start unblocks them first"
                    )
                    return
                # Before all other checks: a blocker of this start must not keep writes blocked.
                self._unblock()
                self._flag = FlagPhase.FAILED
                self._findings.warn("an earlier run was ended while writes were blocked; they are unblocked now")
            else:
                self._findings.block(
                    "FLAG_HELD",
                    foreign_flag(state.flag),
                    "wait until that migration has ended"
                    if state.claim
                    else f"no migration of ours holds this store. If none of Pulsar's own runs either, set {FLAG} to "
                    f"{Flag(phase=FlagPhase.FAILED, targetUrl=state.flag.targetUrl).encode().decode()} with zkCli.sh: "
                    "brokers write to this store again, and a migration can start",
                )

    def _check_participants(self, reader: StoreReader) -> None:
        services, sessions = registered(reader), participants(reader)
        self._known = sessions | {service.owner for service in services}
        self._participants = tuple(service.name for service in services if service.owner in sessions)
        missing = [service.name for service in services if service.owner not in sessions]
        self._check_persistent(reader)
        if self._input.source_url.root:
            self._findings.warn(
                f"below the chroot {self._input.source_url.root} participants never unregister; "
                "that they are ready is shown by their ephemerals in the target alone"
            )
        if not self._running(reader):
            if is_bookkeepers(reader):
                # Brokers with a driver of BookKeeper would not follow, and none is known here that could be asked.
                self._findings.block(
                    "LEDGERS_ONLY",
                    f"{self._input.source} holds ledgers and no cluster: the brokers that use these ledgers are "
                    "registered in another store, and nothing proves that they would follow",
                    'migrate it with "mode": "offline", with all bookies and brokers stopped, and start the brokers '
                    "with bookkeeperMetadataServiceUri naming the target",
                )
            if not self._input.allow_no_brokers:
                self._findings.blockers.append(no_brokers(self._input.source))
            self._findings.warn(f"no broker is registered in {self._input.source}")
        self._check_configuration_store(reader, sessions - {service.owner for service in services})
        self._warn_of_autorecovery(reader)
        if self._left_blocked or self._flag is FlagPhase.FAILED:
            self._check_earlier_attempt(missing)
        elif missing:
            self._findings.block(
                # Such a service does not read the flag: after the commit it would continue in the source, alone.
                "NOT_PARTICIPATING",
                f"{len(missing)} of {len(services)} services would not follow the migration: {', '.join(missing)}",
                "run them on Pulsar 4.2 or newer; bookies need metadataServiceUri=metadata-store:zk:… with the drivers "
                "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver and PulsarMetadataClientDriver",
            )

    def _check_configuration_store(self, reader: StoreReader, unregistered: set[int]) -> None:
        """Refuse a store of tenants and policies whose brokers are registered elsewhere.

        Where bookies are registered it is a cluster's own store, whose brokers may be away: `allow_no_brokers` says so.
        """
        # mutant: metadata-store/a-store-with-bookies-counts-as-a-configuration-store
        if not unregistered or registered(reader):
            return
        # mutant: metadata-store/brokers-of-a-configuration-store-are-unseen
        if reader.children(CLUSTERS.encode()) and not self._running(reader):
            self._findings.block(
                "CONFIGURATION_STORE",
                f"{len(unregistered)} services use {self._input.source}, and no broker is registered there: it seems "
                "to be the configuration store of brokers that are registered in another store, perhaps of several "
                "clusters, and nothing shows who they are and that all of them would follow",
                'stop the services of all clusters that use it, and use "mode": "offline"; if the brokers of this '
                "store are just down, start them",
            )

    def _warn_of_autorecovery(self, reader: StoreReader) -> None:
        """Warn that autorecovery ends: its auditors and workers exit when PREPARATION makes them lose their session."""
        if any(reader.read([_AUDITOR])):
            self._findings.warn(
                "autorecovery ends in all bookies, and in daemons, when metadata writes are blocked, and runs again "
                "only after their restart, also after a rollback (5.0.1): until then nothing replicates the ledgers of "
                "a bookie that is lost"
            )

    def _check_earlier_attempt(self, missing: Sequence[str]) -> None:
        """Add findings for services after a failed attempt.

        They keep the client of that attempt's target until they restart, and do not register as participants again
        (5.0.1). Only PREPARATION shows whether each takes part. A registration in the target does not prove it, and a
        bookie lost its own when Oxia did not answer for a session timeout (seen on 5.0.1).
        """
        # mutant: metadata-store/services-follow-an-older-target
        if self._earlier_target and not _is_store(self._earlier_target, self._input.target_url):
            self._findings.block(
                "OTHER_TARGET",
                f"an attempt with the target {self._earlier_target} failed, and services keep that target until they "
                f"restart: they would not follow this migration to {self._input.target}",
                f"migrate to {self._earlier_target}; or restart all services that use {self._input.source}, also "
                f"proxies, function workers and autorecovery, and then delete {FLAG} with zkCli.sh",
            )
        elif missing:
            self._findings.warn(
                "after a failed attempt services do not register as participants again; PREPARATION will show that "
                f"these are ready, and blocks writes for up to preparation_timeout if one is not: {_some(missing)}. A "
                "service that has restarted since registers, and is checked here"
            )

    def _running(self, reader: StoreReader) -> bool:
        """Return whether a broker is registered; one that lost its session registers again a moment later."""

        def registered() -> bool:
            return bool(brokers(reader))

        return registered() if self._input.allow_no_brokers else becomes_true(registered)

    def _check_persistent(self, reader: StoreReader) -> None:
        if blocker := persistent_registration(reader):
            self._findings.blockers.append(blocker)

    def _check_stopped(self, reader: StoreReader) -> None:
        self._check_persistent(reader)
        source = self._input.source
        if is_bookkeepers(reader):
            self._findings.warn(
                f"{source} holds ledgers and no cluster: the brokers that use these ledgers are registered in another "
                "store, and nothing here shows whether they are stopped"
            )
        elif reader.children(b"/managed-ledgers") and not any(reader.read(_ID_GENERATORS)):
            elsewhere = f"{source} holds topics, and has given no id to a ledger"
            if self._input.leave_ledgers:
                self._findings.warn(f"{elsewhere}; the metadata of ledgers stay in the store where they are")
            else:
                self._findings.blockers.append(ledgers_elsewhere(elsewhere))
        # Other sessions with ephemerals belong to clients that have not stopped.
        self._known = {service.owner for service in registered(reader)} | participants(reader)
        if running := still_in_use(reader):
            self._findings.block(
                "SERVICES_RUNNING",
                f"an offline migration needs all services stopped; registered are {_some(running)}",
                "stop them, also autorecovery daemons, function workers and proxies, and wait until their sessions "
                "have expired",
            )

    def _check_other_clusters(self, reader: StoreReader) -> None:
        """Refuse a source that may be the configuration store of other clusters too; their brokers are not seen."""
        # Setup of older releases makes `global`, which is not a cluster.
        own = {f"{CLUSTERS}/{name}".encode() for name in (self._input.cluster, "global")}
        others = [_text(path).rpartition("/")[2] for path in reader.children(CLUSTERS.encode()) if path not in own]
        if not others:
            return
        cause = (
            f"{self._input.source} knows other clusters ({_some(others)}), and nothing shows whether their brokers use "
            "it as their configuration store"
        )
        if self._input.ignore_other_clusters:  # mutant: metadata-store/other-clusters-share-nothing
            self._findings.warn(f"{cause}; they do not, as the input says")
        else:
            self._findings.block(
                "CONFIGURATION_SHARED",
                f"{cause}; they would stay on the source",
                'if they have configuration stores of their own, set "ignore_other_clusters": true; if they use this '
                'one, also use "mode": "offline", stop the services of all these clusters, and start them with the '
                "target's address",
            )

    def _check_roots(self, reader: StoreReader) -> None:
        others = [path for path in reader.children(b"/") if not is_pulsars(path)]
        if others and self._input.deletes_source:
            self._findings.warn(
                f"{_some(map(_text, others))} in the source are not Pulsar's: they are copied, and the cleanup leaves "
                "them there"
            )

    def _surveyed(self, surveyed: Surveyed) -> Survey:
        survey = Survey(
            records=surveyed.records,
            value_bytes=surveyed.value_bytes,
            ephemerals=surveyed.ephemerals,
            largest_path=_text(surveyed.largest[1]),
            largest_bytes=surveyed.largest[0],
            unreadable=tuple(_text(path) for path in surveyed.unreadable.paths),
            unreadable_count=surveyed.unreadable.total,
        )
        if not surveyed.records:
            self._findings.block(
                "SOURCE_EMPTY", f"{self._input.source} holds no metadata", "check the address and the chroot"
            )
        if survey.unreadable_count:
            self._findings.block(
                "UNREADABLE",
                f"{_named('znodes', surveyed.unreadable)} cannot be read because of their ACL",
                "give the worker credentials in PULSAR_MIGRATE_ZOOKEEPER_AUTH, or change the ACL",
            )
        if surveyed.misplaced.total:
            self._findings.block(
                "PARTITION_KEYS",
                f"the partition keys of {_named('records', surveyed.misplaced)} cannot be read",
                "they belong to scalable topics; delete those, or keep this store",
            )
        if surveyed.too_high.total:
            self._findings.block(
                "VERSION_TOO_HIGH",
                "ZooKeeper can only count up to a version or sequence number, which takes too long for "
                f"{_named('records', surveyed.too_high)}",
                "migrate to Oxia, which takes any version",
            )
        if surveyed.no_version.total:
            self._findings.block(
                "VERSION_MINUS_ONE",
                f"Oxia takes version -1 for a record that does not exist, and {_named('znodes', surveyed.no_version)} "
                "have it: their version overflowed",
                "set the data of each once, to what it is: zkCli.sh set PATH DATA",
            )
        if surveyed.no_znode.total:
            self._findings.block(
                "NO_ZNODE_NAME",
                f"ZooKeeper cannot have znodes with the names of {_named('records', surveyed.no_znode)}",
                "Pulsar has no such records; move them to another namespace of Oxia, with the application that wrote "
                "them, or delete them",
            )
        if surveyed.nested.total:
            self._findings.block(
                "NESTED_STORE",
                f"{_named('records', surveyed.nested)} show that another store has its root within this one, such as "
                "bookies with metadataServiceUri=metadata-store:zk:host:port/ledgers, where /ledgers is a chroot; it "
                "would be copied as if it were a part of this store, and the cleanup would remove it",
                "move that store to a chroot which Pulsar does not use in this one; if nothing uses it, delete it",
            )
        if surveyed.protected.total:
            self._findings.block(
                "ACL_LOST",
                f"of the znodes whose ACL was read, {_named('znodes', surveyed.protected)} do not give everyone all "
                "permissions; the target would not have these ACLs, so that any client that reaches it may read and "
                "change these records",
                "protect the target by other means, such as its network, and then open each of these znodes in the "
                "source: zkCli.sh setAcl PATH world:anyone:cdrwa",
            )
        self._check_sessions(surveyed.sessions)
        return survey

    def _check_sessions(self, sessions: Mapping[int, bytes]) -> None:
        """Add findings for clients that do not recreate their ephemerals, for which PREPARATION would wait."""
        if self._known is None or sessions.keys() <= self._known:
            return
        # A service may have come while the source was read.
        with open_reader(self._input.source_url, self._access) as reader:
            self._known |= participants(reader) | {service.owner for service in registered(reader)}
        foreign = {owner: path for owner, path in sessions.items() if owner not in self._known}
        if not foreign:
            return
        named = [f"session 0x{owner:x} with {_text(path)}" for owner, path in sorted(foreign.items())]
        if self._input.mode is Mode.OFFLINE:
            self._findings.block(
                "FOREIGN_EPHEMERALS",
                f"an offline migration needs an unused source, and {len(named):,} clients have ephemerals there: "
                f"{_some(named)}",
                "stop these clients, and wait until their sessions have expired; if they belong to something else "
                "that shares the ZooKeeper, give each its own chroot",
            )
            return
        cause = f"{len(named):,} clients that do not take part in the migration have ephemerals: {_some(named)}"
        # After a failed attempt participants do not register again, and helpers of theirs have sessions of their own.
        if self._left_blocked or self._flag is FlagPhase.FAILED:
            self._findings.warn(f"{cause}; PREPARATION will show whether they recreate them")
            return
        self._findings.block(
            "FOREIGN_EPHEMERALS",
            cause,
            "stop these clients, and wait until their sessions have expired: their ephemerals would not be "
            "recreated in the target, and PREPARATION would wait for them with metadata writes blocked",
        )

    # The target -----------------------------------------------------------------------------------------------------

    def _check_target(self) -> None:
        url = self._input.target_url
        with open_reader(url, self._access) as reader:
            self._check_free(reader)
        if url.scheme != "oxia":
            self._check_old_flag()
            return
        own = self._access.to(url)
        # The probe writes, so it runs only without blockers. Only it proves that versions are kept: Oxia 0.14 accepts
        # the override fields and ignores them.
        if not self._input.dry_run and not self._findings.blockers:
            probe_target(url, access=own.oxia, timeout=own.timeout)
        elif not speaks_v1(url, access=own.oxia, timeout=own.timeout):
            raise StoreUnsupported(
                f"Oxia at {url.hosts[0]} is too old to keep versions; a migration needs Oxia 0.16 or newer"
            )

    def _check_free(self, reader: StoreReader) -> None:
        claim = claim_in(reader, CLAIM, TargetClaim)
        if claim and claim.workflow_id != self._me:
            self._findings.block("TARGET_CLAIMED", held_by(claim, reader.url), "let it end, or choose another target")
            return
        # Also with an earlier attempt's claim: a run that ended right after its commit leaves a live store with one.
        if used := used_by_others(reader, self._services_of_source):
            self._findings.blockers.append(used)
            return
        if claim and claim.side == TARGET and claim.ours and claim.source == str(self._input.source_url):
            self._findings.warn("the target holds what an earlier attempt of this migration left; it is used")
            return
        first = foreign_record(reader)
        if not first:
            return
        if not self._input.replace_target:
            self._findings.blockers.append(not_empty(first))
            return
        with open_reader(self._input.source_url, self._access) as source:
            lost = irreplaceable(source, reader, self._access)
        if lost:
            self._findings.blockers.append(lost)
        else:
            self._findings.warn(f"the target is not empty (it has {first}); its records will be lost")

    def _services_of_source(self) -> set[str]:
        if self._input.mode is Mode.OFFLINE:
            return set()
        with open_reader(self._input.source_url, self._access) as reader:
            return {service.name for service in registered(reader)}

    def _check_old_flag(self) -> None:
        """Check the flag of an earlier migration in the target, which would send services away after the commit."""
        with open_cas_reader(self._input.target_url, self._access) as store:
            flag = read_flag(store).flag
        if flag.phase in BLOCKING_PHASES:
            self._findings.block(
                "TARGET_IN_USE", f"in the target {foreign_flag(flag)}", "let that end, or choose another target"
            )
        elif flag.phase is FlagPhase.COMPLETED:
            self._findings.warn(f"in the target {moved_to(flag)}; the commit removes that flag")


def _is_store(text: str, url: StoreUrl) -> bool:
    """Return whether an address names the same tree, of some of the same servers."""
    try:
        other = parse_store_url(text)
        return other.root == url.root and other.overlaps(url)
    except ValueError:
        return False


def _text(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


def _named(what: str, sample: PathSample) -> str:
    """Return the number of paths, and some of them."""
    return f"{sample.total:,} {what} ({_some(map(_text, sample.paths), sample.total)})"


def _some(names: Iterable[str], count: int = 0) -> str:
    """Name a few; `count` is how many there are where the list does not hold all."""
    return summarize(list(names), shown=_SHOWN, total=count)
