"""The steps of the switch that only touch the registry of bookie clusters (PIP-477, "Cluster Registry")."""

from __future__ import annotations

from datetime import UTC, datetime

from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.context import ActivityContext
from clients.errors import StoreConflict
from clients.pulsar.bookie_registry import origin_of
from models.bookie_cluster.input import Direction
from models.bookie_cluster.results import Directive, Registration
from models.bookie_cluster.updates import Pace
from models.bookie_registry import ClusterStatus, SwitchClaim


def register(task: BookieClusterTask, context: ActivityContext) -> Registration:
    """REGISTER (PIP-477, "Phase 1: Registration"): the source becomes ACTIVE where the registry is empty.

    Raises:
        StoreConflict: an address is in use, another cluster is ACTIVE, or another switch is under way.
    """
    del context
    source, target = task.input.source, task.input.target
    with task.registry() as registry:
        _refuse_open_switch(task, registry.claims())
        added: list[str] = []
        active = registry.active()
        if active is not None and active.cluster.name != source.name:
            raise StoreConflict(
                f"{active.cluster.name} is ACTIVE in {registry.path}, not the source {source.name}; name the ACTIVE "
                "cluster as the source"
            )
        registry.refuse_used_address(target.name, target.metadataServiceUri)
        if registry.register(source.name, source.metadataServiceUri, ClusterStatus.ACTIVE):
            added.append(source.name)
        if registry.register(target.name, target.metadataServiceUri, ClusterStatus.STANDBY):
            added.append(target.name)
        committed = registry.committed(task.ends.switch_id, task.workflow_id, target.name)
        task.claim(registry)
        last = registry.switch_target()
    return Registration(added=tuple(added), epoch=last[0].epoch if last else 0, committed=committed)


def _refuse_open_switch(task: BookieClusterTask, claims: dict[str, SwitchClaim]) -> None:
    others = sorted(name for name, claim in claims.items() if claim.workflow_id != task.workflow_id)
    if others:
        raise StoreConflict(f"another switch is open: {', '.join(others)}; let it end first")


def set_target(task: BookieClusterTask, context: ActivityContext) -> Directive:
    """SWITCH: direct brokers to the target (PIP-477, "Phase 3: Switch Trigger").

    Raises:
        StoreConflict: this run has turned back or ended meanwhile, and this is a late attempt; or somebody else gave a
            directive at the same moment.
    """
    del context
    run = f"{origin_of(task.workflow_id)}{task.run_id}"
    origin = f"{run}/{task.direction}"
    with task.registry() as registry:
        task.require_run(registry)
        last = registry.switch_target()
        if last and task.direction is Direction.FORWARD and last[0].origin == f"{run}/{Direction.BACK}":
            raise StoreConflict("this switch has turned back already; a late attempt does not direct brokers anew")
        directive = registry.set_target(task.ends.target.name, origin)
    return Directive(epoch=directive.epoch, at=datetime.fromtimestamp(directive.ts / 1000, UTC))


def flip_statuses(task: BookieClusterTask, context: ActivityContext) -> None:
    """CLEANUP: the target becomes ACTIVE and the source DEPRECATED (PIP-477, "Phase 6: CLEANUP")."""
    del context
    with task.registry() as registry:
        task.require_run(registry)
        registry.flip(new=task.input.target.name, old=task.input.source.name)


def release(task: BookieClusterTask, context: ActivityContext) -> None:
    """Forget the progress of both directions; the registrations stay."""
    del context
    with task.registry() as registry:
        for direction in Direction:
            registry.release(task.input.ends(direction).switch_id, task.workflow_id)


def set_pace(task: BookieClusterTask, pace: Pace) -> None:
    """Change throttle and concurrency of the copy that runs, whichever way it goes."""
    with task.registry() as registry:
        for direction in Direction:
            switch_id = task.input.ends(direction).switch_id
            registry.set_pace(switch_id, task.workflow_id, throttle=pace.throttle, concurrency=pace.concurrency)
