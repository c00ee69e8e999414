"""What all inputs of migrations share."""

from __future__ import annotations

from abc import abstractmethod
from enum import StrEnum

from pydantic import Field

from models.lifecycle.base import Frozen


class MigrationInput(Frozen):
    """Base of each migration's input.

    Attributes:
        cluster: name of the Pulsar cluster that is migrated; part of the workflow id.
        dry_run: end after the precheck with the plan; nothing is written anywhere.
    """

    cluster: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")
    dry_run: bool = False

    @property
    @abstractmethod
    def workflow_id(self) -> str:
        """One id for what must be migrated only once at a time: the server refuses a second start."""

    @property
    @abstractmethod
    def target_name(self) -> str:
        """Value of the search attribute `MigrationTarget`."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """One line for the Web UI."""


class SourceCleanup(StrEnum):
    """What `cleanup` does with the source: leave it as it is, or remove the migrated tree."""

    LEAVE = "leave"
    REMOVE = "remove"
