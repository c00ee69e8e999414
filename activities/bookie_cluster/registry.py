"""The steps of the switch that only touch the registry of bookie clusters (PIP-477, "Cluster Registry")."""

from __future__ import annotations

from datetime import UTC, datetime

from activities.bookie_cluster.context import BookieClusterTask
from activities.bookie_cluster.progress import REPORTED
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.exclusion import bookies_on_the_move, metadata_on_the_move
from clients.errors import StoreConflict
from clients.pulsar.bookie_registry import BookieRegistry, origin_of
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import Directive, Registration
from models.bookie_cluster.updates import Pace
from models.bookie_registry import ClusterStatus


def register(task: BookieClusterTask, context: ActivityContext) -> Registration:
    """REGISTER (PIP-477, "Phase 1: Registration"): the source becomes ACTIVE where the registry is empty.

    It claims the brokers' metadata store for the switch. What it adds to the registry is noted in the claim, so that
    `release` can take it back where PRECHECK ends the switch.

    Raises:
        ClaimHeld: another migration is under way on this metadata store.
        StoreConflict: an address is in use, another cluster is ACTIVE, or the metadata have been moved elsewhere.
    """
    del context
    input = task.input
    with task.registry() as registry:
        # Everything that refuses stands before the first write: a refused start leaves nothing behind.
        _refuse_other_migrations(task, registry)
        _refuse_wrong_clusters(task, registry)
        claim = registry.claim.take(throttle=input.throttle, concurrency=input.migration_concurrency)
        ends = (input.source, ClusterStatus.ACTIVE), (input.target, ClusterStatus.STANDBY)
        missing = {cluster.name for cluster, _ in ends} - registry.clusters().keys()
        # Noted before they are added: an attempt that dies in between leaves nothing that `release` does not know.
        registry.claim.renew(registered=tuple(sorted(missing.union(claim.registered))))
        added = [
            cluster.name
            for cluster, status in ends
            if registry.register(cluster.name, cluster.metadataServiceUri, status)
        ]
        last = registry.switch_target()
    committed = claim.directed == input.target.name
    return Registration(added=tuple(added), epoch=last[0].epoch if last else 0, committed=committed)


def _refuse_other_migrations(task: BookieClusterTask, registry: BookieRegistry) -> None:
    if registry.store.get("/") is None:
        # Whatever is written here would create the chroot of a cluster that does not exist.
        raise StoreConflict(f"{task.input.metadata_url} does not exist; check the address and the chroot")
    in_the_way = metadata_on_the_move(registry.store) or bookies_on_the_move(
        registry.store, task.workflow_id, task.input.registry_path
    )
    if in_the_way:
        raise StoreConflict(str(in_the_way))


def _refuse_wrong_clusters(task: BookieClusterTask, registry: BookieRegistry) -> None:
    source, target = task.input.source, task.input.target
    active = registry.active()
    if active is not None and active.cluster.name != source.name:
        raise StoreConflict(
            f"{active.cluster.name} is ACTIVE in {registry.path}, not the source {source.name}; name the ACTIVE "
            "cluster as the source"
        )
    for cluster in (source, target):
        registry.refuse_used_address(cluster.name, cluster.metadataServiceUri)
        registry.refuse_other_address(cluster.name, cluster.metadataServiceUri)


def set_target(task: BookieClusterTask, context: ActivityContext) -> Directive:
    """SWITCH: direct brokers to the target (PIP-477, "Phase 3: Switch Trigger").

    Raises:
        StoreConflict: this run has turned back or ended meanwhile, and this is a late attempt; or somebody else gave a
            directive at the same moment.
    """
    del context
    run = f"{origin_of(task.workflow_id)}{task.run_id}"
    # Names run and direction: a repeated attempt finds its own directive and gives no second one.
    origin = f"{run}/{task.direction}"
    with task.registry() as registry:
        registry.claim.renew()
        last = registry.switch_target()
        if last and task.direction is Direction.FORWARD and last[0].origin == f"{run}/{Direction.BACK}":
            raise StoreConflict("this switch has turned back already; a late attempt does not direct brokers anew")
        directive = registry.set_target(task.ends.target.name, origin)
    return Directive(epoch=directive.epoch, at=datetime.fromtimestamp(directive.ts / 1000, UTC))


def flip_statuses(task: BookieClusterTask, context: ActivityContext) -> None:
    """CLEANUP: the target becomes ACTIVE and the source DEPRECATED (PIP-477, "Phase 6: CLEANUP")."""
    del context
    with task.registry() as registry:
        registry.claim.renew()
        registry.flip(new=task.input.target.name, old=task.input.source.name)


def release(task: BookieClusterTask, context: ActivityContext) -> None:
    """End the switch: forget the progress of both directions, and release the brokers' metadata store.

    Lists of failures that the report refers to stay.
    Registrations stay, save for those that were added for nothing: before BUILD begins they are taken back. Does
    nothing where this run does not hold the claim.

    Raises:
        StoreConflict: a newer attempt has begun.
    """
    del context
    with task.registry() as registry:
        held = registry.claim.read()
        if held is None or not held.claim.is_of(task.attempt):
            return
        claim = registry.claim.renew()
        for direction in Direction:
            # Each removal is one transaction with the claim, so the claim goes last.
            registry.forget_progress(task.input.ends(direction).switch_id, keep=REPORTED)
        if claim.registered:
            registry.unregister(claim.registered)
        registry.claim.release()


def set_pace(task: BookieClusterTask, pace: Pace) -> None:
    """Change throttle and concurrency of the copy that runs, whichever way it goes."""
    with task.registry() as registry:
        # Not renewed: the attempt that copies must stay the holder.
        registry.claim.change(throttle=pace.throttle, concurrency=pace.concurrency)
