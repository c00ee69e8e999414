"""The migrations that this process knows: their plans, workflows and activities.

Commands need names and plans only; workflows and activities, with Spark behind them, are imported where they run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from models.bookie_cluster.input import KIND as BOOKIE_CLUSTER
from models.bookie_cluster.input import BookieClusterInput
from models.lifecycle.input import MigrationInput
from models.metadata_store.input import KIND as METADATA_STORE
from models.metadata_store.input import MetadataStoreInput

if TYPE_CHECKING:
    from activities.lifecycle.runtime import Runtime

InputT = TypeVar("InputT", bound=MigrationInput)


@dataclass(frozen=True)
class Kind(Generic[InputT]):
    """One kind of migration.

    Attributes:
        name: as the command line and the search attribute `MigrationKind` call it.
        workflow: the workflow's type.
        plan: its input.
        workflow_id: one id for what must be migrated only once at a time.
        target: value of the search attribute `MigrationTarget`.
        summary: one line for the Web UI.
    """

    name: str
    workflow: str
    input: type[InputT]
    workflow_id: Callable[[InputT], str]
    target: Callable[[InputT], str]
    summary: Callable[[InputT], str]


KINDS: dict[str, Kind[Any]] = {
    METADATA_STORE: Kind(
        name=METADATA_STORE,
        workflow="MetadataStoreMigration",
        input=MetadataStoreInput,
        workflow_id=lambda input: input.workflow_id,
        target=lambda input: input.target,
        summary=lambda input: (
            f"{input.cluster}: {input.source} → {input.target}{' (dry run)' if input.dry_run else ''}"
        ),
    ),
    BOOKIE_CLUSTER: Kind(
        name=BOOKIE_CLUSTER,
        workflow="BookieClusterSwitch",
        input=BookieClusterInput,
        workflow_id=lambda input: input.workflow_id,
        target=lambda input: input.target.name,
        summary=lambda input: (
            f"{input.cluster}: {input.source.name} → {input.target.name}, {input.routing}"
            f"{' (dry run)' if input.dry_run else ''}"
        ),
    ),
}


def workflows() -> list[type]:
    """All workflows."""
    from workflows.bookie_cluster.workflow import BookieClusterSwitch
    from workflows.metadata_store.workflow import MetadataStoreMigration

    return [MetadataStoreMigration, BookieClusterSwitch]


def activities(runtime: Runtime) -> list[Callable[..., Any]]:
    """All activities, bound to the process's runtime."""
    from activities.bookie_cluster.activities import BookieClusterActivities
    from activities.metadata_store.activities import MetadataStoreActivities

    steps = (MetadataStoreActivities(runtime), BookieClusterActivities(runtime))
    return [activity for one in steps for activity in activities_of(one)]


def activities_of(steps: object) -> list[Callable[..., Any]]:
    """The methods of an object that are marked as activities."""
    methods = [getattr(steps, name) for name in dir(steps) if not name.startswith("_")]
    return [method for method in methods if hasattr(method, "__temporal_activity_definition")]
