"""Inputs of workflows: the fields that they share, and the state that continue-as-new adds."""

from __future__ import annotations

import json
from abc import abstractmethod
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.base import Frozen, refusal, valid_fields
from models.field_texts import INTERNAL
from models.lifecycle.auto_throttle import AutoThrottle
from models.lifecycle.change_windows import ALWAYS, ChangeWindows, over_before
from models.lifecycle.fields import Bool, Duration, Time
from models.lifecycle.hook_events import HookName
from models.lifecycle.receipt import Receipt

_KINDS = {"list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null", "bytes": "bytes"}

ClusterName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.-]+$")]
"""`clusterName` of brokers, with the characters that workflow ids and queries allow."""


class WorkflowInput(Frozen):
    """Base of the input of each workflow that an operator starts.

    Attributes:
        cluster: name of the Pulsar cluster.
    """

    cluster: ClusterName

    @property
    @abstractmethod
    def workflow_id(self) -> str:
        """The workflow id, the same for work that must not run twice: the server refuses a second start."""

    @property
    @abstractmethod
    def target_name(self) -> str:
        """Value of the search attribute `MigrationTarget`."""

    @property
    def kind(self) -> str:
        """Kind of the workflow; `kind/mode` where the known defects of servers depend on the mode."""
        return self.workflow_id.partition("/")[0]

    @property
    @abstractmethod
    def summary(self) -> str:
        """One line for the Web UI."""

    def as_json(self) -> dict[str, Any]:
        """Return the input as JSON values, without defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Accepted(NamedTuple):
    """Defects, releases and features that an operator accepts.

    Attributes:
        defects: ids of known defects.
        untested_versions: releases may be untested, or differ between the brokers of a cluster.
        items: ids of features that need a decision, and unknown items.
    """

    defects: tuple[str, ...] = ()
    untested_versions: bool = False
    items: tuple[str, ...] = ()


class CoveredInput(WorkflowInput):
    """Base of the input of each workflow that checks servers and used features before it starts.

    Attributes:
        accept_defects: ids of accepted known defects of servers, which can lose data.
        accept: accepted features that need a decision, by id, and unknown items as the blocker `UNKNOWN_FEATURE` names
            them.
        allow_untested_versions: start although brokers have different or untested releases.
    """

    accept_defects: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    allow_untested_versions: Bool = False

    @property
    def accepted(self) -> Accepted:
        """The accepted defects, releases and features."""
        return Accepted(self.accept_defects, self.allow_untested_versions, self.accept)


OF_START = ("receipt", "receipt_max_age")
"""Fields that only the start of a migration needs; a changed copy of its input is another one than was planned."""


class SourceCleanup(StrEnum):
    """Effect of `cleanup` on the source: leave it as it is, or remove the migrated tree."""

    LEAVE = "leave"
    REMOVE = "remove"


class MigrationInput(CoveredInput):
    """Base of each migration's input; the cluster's name is part of the workflow id.

    Attributes:
        dry_run: end after the precheck with the plan; writes nothing.
        hold_before_cutover: hold before the cut-over until an operator sends `proceed`, with the copy kept up to date.
            Without it, the migration passes its point of no return by itself.
        cutover_at: earliest start of the cut-over, with its time zone; the copy is kept up to date until then.
        change_windows: when the cut-over may begin, and items of waves may start; at any time by default.
        hooks: names of hooks in the worker's settings that get the events of this migration, and may refuse its
            cut-over.
        two_persons: one person asks for a step that costs a copy back or cannot be undone, and another one approves it.
        receipt: of the plan; the precheck refuses the start if the servers differ from it.
        receipt_max_age: oldest receipt that the start may have; any age by default.
    """

    dry_run: Bool = False
    hold_before_cutover: Bool = True
    cutover_at: Time | None = None
    change_windows: ChangeWindows = ALWAYS
    hooks: tuple[HookName, ...] = ()
    two_persons: Bool = False
    receipt: Annotated[Receipt | None, INTERNAL] = None
    receipt_max_age: Duration | None = Field(default=None, gt=timedelta(0))

    @model_validator(mode="after")
    def _receipt_fits(self) -> Self:
        if self.receipt_max_age is not None and self.receipt is None and not self.dry_run:
            raise ValueError("receipt_max_age needs a receipt; start with --receipt FILE, or leave it out")
        if self.receipt is None:
            return self
        for name, planned, own in (
            # Not `kind`: all migrations to scalable topics share one, for the requirements on servers.
            ("kind", self.receipt.kind, self.workflow_id.partition("/")[0]),
            ("cluster", self.receipt.cluster, self.cluster),
        ):
            if planned != own:
                raise ValueError(f"the receipt is of the {name} {planned}, and this is {own}; plan again")
        # Both are read by this version: a default that another version had is not a difference.
        planned = type(self).model_validate(self.receipt.input)
        if differences := self.receipt.input_drift(planned, self):
            raise ValueError(f"the input differs from the receipt: {'; '.join(differences)}; plan again")
        return self

    @model_validator(mode="after")
    def _two_persons_are_asked(self) -> Self:
        if self.two_persons and not self.hold_before_cutover:
            raise ValueError(
                "two_persons needs the hold at which they are asked; set hold_before_cutover, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _cutover_is_inside_the_windows(self) -> Self:
        if why := over_before(self.cutover_at, self.change_windows):
            raise ValueError(why)
        return self

    def changed(self, **fields: Any) -> Self:
        """Return a copy with other values of some fields, checked as a whole, without what only a start needs.

        Raises:
            ValidationError: an input with these values would be refused.
        """
        return type(self).model_validate({**self.model_dump(exclude={*OF_START}), **fields})

    @property
    def longest_cutover(self) -> timedelta:
        """Longest time that the input allows the cut-over to take; zero where it has no limit."""
        return timedelta(0)

    @property
    def last_phase(self) -> str:
        """Last phase of a rehearsal, which the field `until` names; empty for a migration."""
        return getattr(self, "until", None) or ""

    @property
    def deletes_source(self) -> bool:
        """True if a cleanup deletes the old side."""
        return False


OF_PARENT: dict[str, Any] = {
    "hold_before_cutover": False,
    "cutover_at": None,
    "two_persons": False,
    "hooks": (),
    **dict.fromkeys(OF_START),
}
"""Fields of the input of a child workflow, for which its parent has already waited, asked and compared."""


class CleanupInput(MigrationInput):
    """Base of the input of each migration that can clean up its old side after a window.

    Attributes:
        cleanup: what `cleanup`, or the end of the window with `cleanup_at_window_end`, does with the old side.
        cleanup_at_window_end: clean up when the window ends, without a verb.
    """

    cleanup: SourceCleanup = SourceCleanup.LEAVE
    cleanup_at_window_end: Bool = False

    @model_validator(mode="after")
    def _cleanup_fits(self) -> Self:
        if self.cleanup_at_window_end and not self.deletes_source:
            raise ValueError(
                'cleanup_at_window_end does nothing with "cleanup": "leave"; set "cleanup": "remove", or leave it out'
            )
        if self.two_persons and self.cleanup_at_window_end:
            raise ValueError(
                "two_persons: a cleanup at the end of the window does not ask them; leave cleanup_at_window_end out"
            )
        return self

    @property
    def deletes_source(self) -> bool:
        """True if a cleanup deletes the old side."""
        return self.cleanup is SourceCleanup.REMOVE


class ThrottledInput(MigrationInput):
    """Base of the input of each migration whose copies can be throttled by themselves.

    Attributes:
        auto_throttle: sources that stop a copy while they report that the cluster suffers.
    """

    auto_throttle: AutoThrottle | None = None


class Continued(BaseModel):
    """The argument of a run that continues a previous one.

    It is one argument because Temporal decodes arguments by type only if all are given. The fields are not decoded: an
    operator may start a workflow with such an argument, which only the workflow can detect.

    Attributes:
        input: the operator's input.
        state: of the previous run.
    """

    model_config = ConfigDict(extra="forbid")

    input: Any
    state: Any


def start_refusal(fields: type[BaseModel], value: object) -> str:
    """Return why a workflow cannot start with this value: the cause, the cure and the valid fields."""
    if not isinstance(value, dict):
        sent = _KINDS.get(type(value).__name__, "a number")
        return f"the input is not a JSON object, but {sent}. Cure: write a JSON object; {valid_fields(fields)}"
    given = cast("dict[str, Any]", value)
    try:
        fields.model_validate_json(json.dumps(given))
    except ValidationError as error:
        return f"the input is wrong: {refusal(fields, error)}"
    raise ValueError("the input is valid")
