"""Facts of each kind that hold for every migration: names of both sides, points of no return, and break-glass steps."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from models.blue_green.phases import BatchPhase
from models.bookie_cluster.input import Routing
from models.lifecycle.policy import PhasePolicy
from models.lifecycle.status import Undo
from worker.catalog import KINDS
from workflows.blue_green.policy import BATCH_POLICIES
from workflows.blue_green.policy import POLICIES as BLUE_GREEN
from workflows.bookie_cluster.policy import POLICIES as BOOKIE_CLUSTER
from workflows.metadata_store.policy import POLICIES as METADATA_STORE
from workflows.scalable_topic.policy import NAMESPACE_POLICIES, OPERATION_POLICIES
from workflows.scalable_topic.policy import POLICIES as SCALABLE_TOPIC

BATCH = "blue-green-batch"
"""Name of the part of a blue-green migration that moves some namespaces."""


class Step(NamedTuple):
    """A step for an operator who has no Temporal and no worker.

    Attributes:
        text: what to do.
        commands: to type; names in capitals are to be replaced.
    """

    text: str
    commands: tuple[str, ...]


class BreakGlass(NamedTuple):
    """Steps for some phases.

    Attributes:
        phases: for which they are.
        state: state of the cluster in these phases, as far as it is known.
        steps: in their order.
    """

    phases: tuple[str, ...]
    state: str
    steps: tuple[Step, ...]

    def of(self, workflow_id: str) -> tuple[Step, ...]:
        """Return the steps for one migration."""
        return tuple(
            Step(step.text, tuple(command.replace("{id}", workflow_id) for command in step.commands))
            for step in self.steps
        )


class Guide(NamedTuple):
    """Facts of one kind of migration.

    Attributes:
        phases: of the way forward, in their order.
        rollback: phases of the rollback.
        old, new: names of both sides.
        line: the point of no return is before this phase.
        line_each: which items have each their own point of no return, in that phase; empty where there is one.
        blocked: phases in which clients wait.
        blocks: for what.
        blocked_since: fact with the time since when they wait; empty where it is the start of the phase.
        break_glass: for groups of phases.
        undo: how each phase is undone.
    """

    phases: tuple[str, ...]
    rollback: tuple[str, ...]
    old: str
    new: str
    line: str
    line_each: str
    blocked: tuple[str, ...]
    blocks: str
    blocked_since: str
    break_glass: tuple[BreakGlass, ...]
    undo: Mapping[str, Undo]

    def steps_in(self, phase: str) -> BreakGlass | None:
        """Return what to do in a phase if Temporal and all workers are lost."""
        return next((steps for steps in self.break_glass if phase in steps.phases), None)


_PHASES: dict[str, type[StrEnum]] = {**{kind.name: kind.phases for kind in KINDS.values()}, BATCH: BatchPhase}
_POLICIES: dict[str, Mapping[Any, PhasePolicy]] = {
    "metadata-store": METADATA_STORE,
    "bookie-cluster": BOOKIE_CLUSTER[Routing.RESTART],
    "blue-green": BLUE_GREEN,
    BATCH: BATCH_POLICIES,
    "scalable-topic": SCALABLE_TOPIC,
    "scalable-namespace": NAMESPACE_POLICIES,
    "scalable-operation": OPERATION_POLICIES,
}


@cache
def guides() -> Mapping[str, Guide]:
    """Return all guides, by kind."""
    data: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {name: _guide(name, data) for name in data}


def guide_of(kind: str, phases: Collection[str]) -> Guide | None:
    """Return the guide of a migration; None for a kind of another version.

    Args:
        kind: of the migration.
        phases: that it has entered.
    """
    return guides().get(BATCH if kind == "blue-green" and _are_of_batch(phases) else kind)


def _are_of_batch(phases: Collection[str]) -> bool:
    # Both kinds of workflows have a FLIP, and each starts with a phase of its own.
    return BatchPhase.LOAD in phases


def _guide(name: str, data: Mapping[str, dict[str, Any]]) -> Guide:
    row = data[name]
    rollback = tuple(row["rollback"])
    others: list[Any] = data[row["same_as"]]["break_glass"] if "same_as" in row else []
    return Guide(
        phases=tuple(str(phase) for phase in _PHASES[name] if phase not in rollback),
        rollback=rollback,
        old=row["old"],
        new=row["new"],
        line=row["line"],
        line_each=row.get("line_each", ""),
        blocked=tuple(row["blocked"]),
        blocks=row["blocks"],
        blocked_since=row.get("blocked_since", ""),
        break_glass=tuple(_break_glass(entry) for entry in [*row["break_glass"], *others]),
        undo={str(phase): policy.undo for phase, policy in _POLICIES[name].items()},
    )


def _break_glass(entry: Mapping[str, Any]) -> BreakGlass:
    steps = tuple(Step(step[0], tuple(step[1:])) for step in entry["steps"])
    return BreakGlass(tuple(entry["phases"]), entry["state"], steps)
