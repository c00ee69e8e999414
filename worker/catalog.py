"""The one list of migrations: what each is called and where its parts are.

Command line, workers, demos and docs use it. Commands need names and inputs only; workflows and activities, which
import Spark, are imported where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel

from models.blue_green import phases as blue_green_phases
from models.blue_green.input import KIND as BLUE_GREEN
from models.blue_green.input import BlueGreenInput
from models.blue_green.state import BlueGreenState
from models.bookie_cluster import phases as bookie_cluster_phases
from models.bookie_cluster.input import KIND as BOOKIE_CLUSTER
from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.state import BookieClusterState
from models.lifecycle.input import MigrationInput, WorkflowInput
from models.lifecycle.outlook import Leg
from models.lifecycle.state import MigrationState
from models.metadata_store import phases as metadata_store_phases
from models.metadata_store.input import KIND as METADATA_STORE
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.state import MetadataStoreState
from models.scalable_topic import phases as scalable_topic_phases
from models.scalable_topic.input import KIND as SCALABLE_TOPIC
from models.scalable_topic.input import ScalableTopicInput
from models.scalable_topic.namespace_input import KIND as SCALABLE_NAMESPACE
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from models.scalable_topic.operation_input import KIND as SCALABLE_OPERATION
from models.scalable_topic.operation_input import ScalableOperationInput
from models.scalable_topic.operation_state import OperationState
from models.scalable_topic.state import NamespaceState, TopicState
from models.topic_controller.input import KIND as TOPIC_CONTROLLER
from models.topic_controller.input import ControllerInput
from models.verification.input import KIND as VERIFICATION_KIND
from models.verification.input import VerificationInput

if TYPE_CHECKING:
    from activities.lifecycle.runtime import Runtime
    from activities.lifecycle.step import AnyStep

InputT = TypeVar("InputT", bound=MigrationInput)


@dataclass(frozen=True)
class Registered:
    """Workflows that a worker registers for one purpose, with their activities.

    Attributes:
        package: its package or module in every layer.
        name: its value of the search attribute `MigrationKind`.
        workflow: type of the workflow that is started.
        input: input of that workflow.
        workflows: `module:class` of each workflow that a worker registers for it.
    """

    package: str
    name: str
    workflow: str
    input: type[WorkflowInput]
    workflows: tuple[str, ...]


@dataclass(frozen=True)
class Kind(Registered, Generic[InputT]):
    """One kind of migration.

    The kinds of one package share their commands (`cli.<package>`) and demo (`demos.<package>`). Each kind has its own
    page, `docs/<package>.md` by default.

    Attributes:
        name: its name on the command line, in workflow ids and in the search attribute `MigrationKind`.
        state: state of its workflow; it has the models of its facts, figures and certificate.
        phases: phases of its workflow.
        legs: the same in their order, with stops.
        docs: name of its page, where the package has more than one kind.
    """

    input: type[InputT]
    state: type[MigrationState[Any, Any, Any]]
    phases: type[StrEnum]
    legs: tuple[Leg, ...]
    docs: str = ""

    @property
    def models(self) -> dict[str, type[BaseModel]]:
        """Models of its facts, figures and certificate, by `fact`, `figure` and `certificate`."""
        fields = self.state.model_fields
        named = {"fact": "facts", "figure": "figures", "certificate": "certificate"}
        return {name: cast("type[BaseModel]", fields[field].annotation) for name, field in named.items()}

    @property
    def page(self) -> str:
        """Its page for operators, relative to the root of the repository."""
        return f"docs/{self.docs or self.package}.md"

    @property
    def demo(self) -> str:
        """Module with its demo."""
        return f"demos.{self.package}"


@dataclass(frozen=True)
class Entity(Registered):
    """A workflow that is not a migration, and runs as long as its subject exists; `cli.<package>` has its commands."""


_ALL: tuple[Kind[Any], ...] = (
    Kind(
        package="metadata_store",
        name=METADATA_STORE,
        workflow="MetadataStoreMigration",
        input=MetadataStoreInput,
        workflows=("workflows.metadata_store.workflow:MetadataStoreMigration",),
        state=MetadataStoreState,
        phases=metadata_store_phases.Phase,
        legs=metadata_store_phases.LEGS,
    ),
    Kind(
        package="bookie_cluster",
        name=BOOKIE_CLUSTER,
        workflow="BookieClusterMigration",
        input=BookieClusterInput,
        workflows=("workflows.bookie_cluster.workflow:BookieClusterMigration",),
        state=BookieClusterState,
        phases=bookie_cluster_phases.Phase,
        legs=bookie_cluster_phases.LEGS,
    ),
    Kind(
        package="blue_green",
        name=BLUE_GREEN,
        workflow="BlueGreenMigration",
        input=BlueGreenInput,
        workflows=(
            "workflows.blue_green.workflow:BlueGreenMigration",
            "workflows.blue_green.batch:BlueGreenBatch",
        ),
        state=BlueGreenState,
        phases=blue_green_phases.Phase,
        legs=blue_green_phases.LEGS,
    ),
    Kind(
        package="scalable_topic",
        name=SCALABLE_TOPIC,
        workflow="ScalableTopicMigration",
        input=ScalableTopicInput,
        workflows=("workflows.scalable_topic.workflow:ScalableTopicMigration",),
        state=TopicState,
        phases=scalable_topic_phases.Phase,
        legs=scalable_topic_phases.LEGS,
    ),
    Kind(
        package="scalable_topic",
        name=SCALABLE_NAMESPACE,
        workflow="ScalableNamespaceMigration",
        input=ScalableNamespaceInput,
        workflows=("workflows.scalable_topic.namespace_workflow:ScalableNamespaceMigration",),
        state=NamespaceState,
        phases=scalable_topic_phases.NamespacePhase,
        legs=scalable_topic_phases.NAMESPACE_LEGS,
        docs="scalable_namespace",
    ),
    Kind(
        package="scalable_topic",
        name=SCALABLE_OPERATION,
        workflow="ScalableOperation",
        input=ScalableOperationInput,
        workflows=("workflows.scalable_topic.operation_workflow:ScalableOperation",),
        state=OperationState,
        phases=scalable_topic_phases.OperationPhase,
        legs=scalable_topic_phases.OPERATION_LEGS,
        docs="scalable_operation",
    ),
)


KINDS: dict[str, Kind[Any]] = {kind.name: kind for kind in _ALL}
"""All migrations, by name."""

ENTITIES = {
    TOPIC_CONTROLLER: Entity(
        package="topic_controller",
        name=TOPIC_CONTROLLER,
        workflow="TopicController",
        input=ControllerInput,
        workflows=("workflows.topic_controller.workflow:TopicController",),
    ),
}
"""Workflows that run as long as their subject exists, and are not migrations; by name."""

VERIFICATION = Registered(
    package="verification",
    name=VERIFICATION_KIND,
    workflow="Verification",
    input=VerificationInput,
    workflows=("workflows.verification.workflow:Verification",),
)
"""The workflow that compares both sides of a migration by request; `pulsar-migrate verify` starts it."""

ALL: dict[str, Registered] = {**KINDS, **ENTITIES}
"""Everything that operators describe by an input, by name."""


def workflows() -> list[type]:
    """Return all workflow classes, with the one that fails workflows of unknown types."""
    named = [workflow for kind in (*ALL.values(), VERIFICATION) for workflow in kind.workflows]
    return [resolve_name(workflow) for workflow in [*named, "worker.unknown_workflow:UnknownWorkflow"]]


def activities(runtime: Runtime) -> list[Callable[..., Any]]:
    """Return the steps of each package, bound to the process's runtime, and what each workflow calls."""
    # Heavy imports, needed by workers only.
    from activities.hooks.activities import HookActivities
    from activities.lifecycle.change_windows import read_change_windows

    settings = runtime.settings
    hooks = HookActivities(settings.hooks, settings.command_environment)
    return [*(step.bind(runtime) for step in _steps()), *hooks.all, read_change_windows]


def observers(activities: Sequence[Callable[..., Any]]) -> list[Callable[..., Any]]:
    """Return the activities that have a task queue of their own."""
    names = {step.name for step in _steps() if step.options.observes}
    return [activity for activity in activities if getattr(activity, "__temporal_activity_definition").name in names]


def _steps() -> list[AnyStep[..., Any]]:
    # Heavy imports, needed by workers only.
    from activities.lifecycle.step import steps_of

    packages = dict.fromkeys(kind.package for kind in (*ALL.values(), VERIFICATION))
    return [step for package in packages for step in steps_of(f"activities.{package}")]
