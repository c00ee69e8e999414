"""The arguments of workflows: what all inputs share, and the state that continue-as-new adds."""

from __future__ import annotations

import json
from abc import abstractmethod
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from models.base import Frozen, refusal, valid_fields
from models.lifecycle.fields import Bool

_KINDS = {"list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null", "bytes": "bytes"}

ClusterName = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")]
"""`clusterName` of brokers, as workflow ids and lists of workflows take it."""


NO_CLEANUP = 'cleanup_at_window_end does nothing with "cleanup": "leave"; set "cleanup": "remove", or leave it out'
"""Why an input is refused that asks to clean up by itself, and to leave everything as it is."""


class WorkflowInput(Frozen):
    """Base of the input of each workflow that an operator starts.

    Attributes:
        cluster: name of the Pulsar cluster that it is about.
    """

    cluster: ClusterName

    @property
    @abstractmethod
    def workflow_id(self) -> str:
        """One id for what must be done only once at a time: the server refuses a second start."""

    @property
    @abstractmethod
    def target_name(self) -> str:
        """Value of the search attribute `MigrationTarget`."""

    @property
    def kind(self) -> str:
        """Return the kind of the workflow; with its mode, `kind/mode`, where defects of servers depend on it."""
        return self.workflow_id.partition("/")[0]

    @property
    @abstractmethod
    def summary(self) -> str:
        """One line for the Web UI."""

    def as_json(self) -> dict[str, Any]:
        """Return the input as it is sent: JSON values, without what equals the defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Accepted(NamedTuple):
    """What an operator accepts.

    Attributes:
        defects: ids of known defects.
        untested_versions: whether releases may be untested, or differ between the brokers of a cluster.
        items: ids of features that need a decision, and unknown items.
    """

    defects: tuple[str, ...] = ()
    untested_versions: bool = False
    items: tuple[str, ...] = ()


class CoveredInput(WorkflowInput):
    """Base of the input of each workflow that checks servers, and what a cluster uses, before it begins.

    Attributes:
        accept_defects: ids of known defects of the servers that can lose data, and are accepted.
        accept: ids of features that need a decision, and unknown items as the blocker `UNKNOWN_FEATURE` names them,
            that are accepted as they are.
        allow_untested_versions: start although brokers have different releases, or one that was not tested.
    """

    accept_defects: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    allow_untested_versions: Bool = False

    @property
    def accepted(self) -> Accepted:
        """Return what is accepted of servers and features."""
        return Accepted(self.accept_defects, self.allow_untested_versions, self.accept)


class MigrationInput(CoveredInput):
    """Base of each migration's input; the cluster's name is part of the workflow id.

    Attributes:
        dry_run: end after the precheck with the plan; nothing is written anywhere.
        hold_before_cutover: copy, and then keep the copy up to date until an operator says `proceed`.
        cutover_at: the cut-over begins no earlier; until then the copy is kept up to date. With its time zone.
    """

    dry_run: Bool = False
    hold_before_cutover: Bool = False
    cutover_at: AwareDatetime | None = None


class SourceCleanup(StrEnum):
    """What `cleanup` does with the source: leave it as it is, or remove the migrated tree."""

    LEAVE = "leave"
    REMOVE = "remove"


class Continued(BaseModel):
    """The argument with which a run continues as the next one.

    One argument, because Temporal decodes arguments by their types only if all are given. As they come, since an
    operator's start may look like this, and only the workflow can tell.

    Attributes:
        input: what the operator typed.
        state: as the run before left it.
    """

    model_config = ConfigDict(extra="forbid")

    input: Any
    state: Any


def start_refusal(fields: type[BaseModel], value: object) -> str:
    """Return why a start with this value, as JSON, is refused: the cause, the cure and the valid fields."""
    if not isinstance(value, dict):
        sent = _KINDS.get(type(value).__name__, "a number")
        return f"the input is not a JSON object, but {sent}. Cure: write a JSON object; {valid_fields(fields)}"
    given = cast("dict[str, Any]", value)
    try:
        fields.model_validate_json(json.dumps(given))
    except ValidationError as error:
        return f"the input is wrong: {refusal(fields, error)}"
    raise ValueError("the input is valid")
