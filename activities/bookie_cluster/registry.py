"""The steps of the switch that only touch the registry of bookie clusters (PIP-477, "Cluster Registry")."""

from __future__ import annotations

from collections.abc import Sequence

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.precheck_brokers import ask_brokers
from activities.bookie_cluster.progress import COPIES, REPORTED
from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.able_brokers import AbleBrokers
from activities.pulsar.coverage import require_covered
from activities.pulsar.exclusion import bookies_on_the_move, metadata_on_the_move
from activities.pulsar.registrations import Service, brokers, none_since
from clients.errors import StoreConflict
from clients.pulsar.records.bookie_registry import BookieRegistry, origin_of
from clients.store import StoreReader
from models.bookie_cluster.input import Direction, Routing
from models.bookie_cluster.results import Directive, Registration
from models.bookie_cluster.updates import Pace
from models.bookie_registry import ClusterStatus, RegisteredCluster

# Brokers serve during this wait, so it costs nothing.
_ANSWER_SECONDS = 60.0


@step(BookieClusterTask)
def register(task: BookieClusterTask) -> Registration:
    """Register both clusters (PIP-477, "Phase 1: Registration"): the source becomes ACTIVE where the registry is empty.

    It claims the brokers' metadata store for the switch. What it adds to the registry is noted in the claim, so that
    `release` can remove it if PRECHECK ends the switch.

    Raises:
        ClaimHeld: another migration is under way on this metadata store.
        StoreConflict: an address is in use, another cluster is ACTIVE, or the metadata have been moved elsewhere.
    """
    input = task.input
    with task.registry() as registry:
        # All checks come before the first write: a refused start leaves nothing.
        _refuse_other_migrations(task, registry)
        _refuse_wrong_clusters(task, registry)
        _refuse_forgotten_commit(task, registry)
        claim = registry.claim.take(throttle=input.throttle, concurrency=input.migration_concurrency)
        ends = (input.source, ClusterStatus.ACTIVE), (input.target, ClusterStatus.STANDBY)
        added = registry.register(
            *(
                RegisteredCluster(name=cluster.name, metadataServiceUri=cluster.metadataServiceUri, status=status)
                for cluster, status in ends
            )
        )
        last = registry.switch_target()
        flipped = _flipped_before(task, registry)
    committed = claim.directed == input.target.name
    return Registration(added=added, epoch=last[0].epoch if last else 0, committed=committed, flipped=flipped)


def _refuse_other_migrations(task: BookieClusterTask, registry: BookieRegistry) -> None:
    if registry.store.get("/") is None:
        # A write here would create the chroot of a cluster that does not exist.
        raise StoreConflict(f"{task.input.metadata_url} does not exist; check the address and the chroot")
    in_the_way = metadata_on_the_move(registry.store) or bookies_on_the_move(
        registry.store, task.workflow_id, task.input.registry_path
    )
    if in_the_way:
        raise StoreConflict(str(in_the_way))


def _refuse_wrong_clusters(task: BookieClusterTask, registry: BookieRegistry) -> None:
    source, target = task.input.source, task.input.target
    active = registry.active()
    if active is not None and active.cluster.name != source.name and not _flipped_before(task, registry):
        raise StoreConflict(
            f"{active.cluster.name} is ACTIVE in {registry.path}, not the source {source.name}; name the ACTIVE "
            "cluster as the source"
        )
    for cluster in (source, target):
        registry.refuse_used_address(cluster.name, cluster.metadataServiceUri)
        registry.refuse_other_address(cluster.name, cluster.metadataServiceUri)


def _flipped_before(task: BookieClusterTask, registry: BookieRegistry) -> bool:
    """Return whether an earlier run of this switch was terminated after it had made the target ACTIVE."""
    target, held, active = task.input.target.name, registry.claim.read(), registry.active()
    if held is None or held.claim.workflow_id != task.workflow_id or active is None:
        return False
    return active.cluster.name == target == held.claim.directed


def _refuse_forgotten_commit(task: BookieClusterTask, registry: BookieRegistry) -> None:
    """Refuse a plan with another target than an earlier run that was terminated after its commit."""
    held = registry.claim.read()
    if held is None or held.claim.workflow_id != task.workflow_id:
        return
    directed = held.claim.directed
    if directed not in ("", task.input.source.name, task.input.target.name):
        raise StoreConflict(
            f"an earlier run of {task.workflow_id} has directed brokers to {directed}, and was terminated; "
            f"start it again with {directed} as the target, and complete it or roll it back first"
        )


def _committed_before(task: BookieClusterTask, registry: BookieRegistry, directed: str) -> bool:
    """Return whether an earlier run directed brokers to the target, and this one has not directed them yet."""
    last = registry.switch_target()
    mine = f"{origin_of(task.workflow_id)}{task.run_id}/"
    return directed == task.input.target.name and not (last and last[0].origin.startswith(mine))


@step(BookieClusterTask)
def set_target(task: BookieClusterTask, direction: Direction, mark: int | None = None) -> Directive:
    """Direct brokers to the target (PIP-477, "Phase 3: Switch Trigger").

    Args:
        task: the step.
        direction: of the switch.
        mark: of the moment since which no broker may have registered; None if brokers run. Checked before and after the
            directive: decisions take time, and a broker that starts now has read its configuration before.

    With routing `attribution` brokers run, and are asked again what PRECHECK asked; one that comes at the moment of the
    directive is asked after it. With routing `restart` they are asked when they start on the target.

    Raises:
        ApplicationError: `ParticipantsNotReady` where a broker cannot follow the directive.
        StoreConflict: this attempt is late, since its run was rolled back or has ended; or another client set a
            directive at the same time.
    """
    task = task.toward(direction)
    run = f"{origin_of(task.workflow_id)}{task.run_id}"
    # Names run and direction: a repeated attempt finds its own directive and sets no second one.
    origin = f"{run}/{task.direction}"
    with task.registry() as registry, task.broker_store() as store:
        directed = registry.claim.renew().directed  # mutant: bookie-cluster/a-directive-of-a-late-attempt
        last = registry.switch_target()
        able = _able_brokers(task, store, committed=directed == task.input.target.name)
        if able:
            if directed != task.input.target.name:
                require_metadata_here(registry)  # mutant: bookie-cluster/a-directive-though-the-metadata-moved
                require_covered(task.input, task.survey)
            able.require()  # mutant: bookie-cluster/a-directive-to-brokers-with-other-settings
        if mark is not None and not none_since(store, mark):  # mutant: bookie-cluster/a-directive-though-a-broker-came
            return Directive(epoch=last[0].epoch if last else 0, at=task.context.server_time, alone=False)
        turned_back = f"{run}/{Direction.BACK}" if task.direction is Direction.FORWARD else ""
        # mutant: bookie-cluster/a-directive-forward-after-the-one-back
        given = registry.set_target(task.ends.target.name, origin, unless=turned_back)
        alone = mark is None or none_since(store, mark)  # mutant: bookie-cluster/a-broker-that-comes-with-the-directive
        if able:  # mutant: bookie-cluster/brokers-that-come-with-the-directive-are-not-asked
            able.require()
    return Directive(epoch=given.epoch, at=task.context.server_time, alone=alone)


def require_metadata_here(registry: BookieRegistry) -> None:
    """Require that the brokers' metadata are in this store: Pulsar's own command, which reads no claim, may move them.

    Raises:
        StoreConflict: they are being moved to another store, or were.
    """
    if moved := metadata_on_the_move(registry.store):
        raise StoreConflict(str(moved))


def _able_brokers(task: BookieClusterTask, store: StoreReader, *, committed: bool) -> AbleBrokers | None:
    """Return the check of brokers before and after a directive; None if none run, or in a rollback."""
    if task.input.routing is not Routing.ATTRIBUTION or task.direction is not Direction.FORWARD:
        return None

    def ask(services: Sequence[Service], findings: Findings) -> None:
        ask_brokers(task, services, findings, None, committed=committed)

    return AbleBrokers(task.context, lambda: brokers(store), ask, _ANSWER_SECONDS)


@step(BookieClusterTask)
def flip_statuses(task: BookieClusterTask) -> None:
    """Make the target ACTIVE and the source DEPRECATED (PIP-477, "Phase 6: CLEANUP")."""
    with task.registry() as registry:
        registry.claim.renew()
        registry.flip(new=task.input.target.name, old=task.input.source.name)


@step(BookieClusterTask)
def release(task: BookieClusterTask) -> None:
    """End the switch: forget the progress of both directions, and release the brokers' metadata store.

    Lists of failures that the report refers to stay, and after a rollback the lists of copies: the copies stay too, and
    the next start continues with them, or removes those whose originals are gone. All stays where an earlier run has
    directed brokers to the target, and this one ends before it has begun: the next start continues there.
    Registrations stay, except those of a switch that ends before BUILD: these are removed. Does nothing if this run
    does not hold the claim.

    Raises:
        StoreConflict: a newer attempt has begun.
    """
    with task.registry() as registry:
        held = registry.claim.read()
        # mutant: bookie-cluster/the-claim-of-a-later-run-is-released
        if held is None or not held.claim.is_of(task.attempt):
            return
        claim = registry.claim.renew()
        active = registry.active()
        moved = active is not None and active.cluster.name == task.input.target.name
        if not moved and _committed_before(task, registry, claim.directed):
            # A rollback, or a cancellation, while this run began: the next one must know where brokers are.
            return
        for direction in Direction:
            keep = REPORTED if moved or direction is Direction.BACK else (*REPORTED, *COPIES)
            # Each removal is one transaction with the claim, so the claim goes last.
            registry.forget_progress(task.input.ends(direction).switch_id, keep=keep)
        registry.unregister(claim.registered)
        registry.claim.release()


@step(BookieClusterTask)
def set_pace(task: BookieClusterTask, pace: Pace) -> None:
    """Change throttle and concurrency of the copy that runs, whichever way it goes."""
    with task.registry() as registry:
        # Not renewed: the attempt that copies must stay the holder.
        registry.claim.change(throttle=pace.throttle, concurrency=pace.concurrency)
