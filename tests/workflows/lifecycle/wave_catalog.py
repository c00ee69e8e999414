"""Catalogs of items in memory, and the activities that list and migrate them."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.lifecycle.step import StepTask, async_step
from models.base import Frozen, Result
from models.lifecycle.execution import Execution
from models.lifecycle.failures import FailedItem
from models.lifecycle.input import MigrationInput
from models.lifecycle.waves import Page, WaveItem, WavePolicy, WaveStatus

SHOWN: dict[str, WaveStatus] = {}
"""What waves last showed, by workflow id.

Tests look here: the test server forgets a query that meets the end of a run, and skips no time any more.
"""


class Begun(Frozen):
    """Items of a child that begins, and when it began."""

    catalog: str
    items: tuple[str, ...]
    at: datetime
    attempt: int


class Behaviour(Result):
    """How a child is to end."""

    failed: tuple[str, ...] = ()
    crash: str = ""
    crash_for_good: bool = True
    stopped: timedelta = timedelta(0)
    sleep: timedelta = timedelta(0)
    hang: bool = False
    deaf: bool = False
    undo: timedelta = timedelta(0)
    answer: Any = None


class ManyTopicsInput(MigrationInput):
    """Input of `ManyTopics`."""

    policy: WavePolicy

    @property
    def workflow_id(self) -> str:
        """One for each cluster."""
        return f"many-topics/{self.cluster}"

    @property
    def target_name(self) -> str:
        """Of no meaning here."""
        return "target"

    @property
    def summary(self) -> str:
        """One line."""
        return f"topics of {self.cluster}"


@dataclass
class Catalog:
    """Items and what happened to them.

    Attributes:
        items: by name, in order; how each behaves.
        begun: item, time of its child's begin and attempt, in the order of the begins.
        runs: ids of the runs of the parent, in their order.
        hold: what the source says.
        cleaned: items whose child was terminated, after their clean-up.
        may_clean: set while a clean-up may end.
        failures: file with the failed items, a line of JSON each.
    """

    name: str
    items: dict[str, Behaviour]
    failures: Path
    begun: list[tuple[str, datetime, int]] = field(default_factory=list[tuple[str, datetime, int]])
    runs: list[str] = field(default_factory=list[str])
    hold: str = ""
    cleaned: list[str] = field(default_factory=list[str])
    may_clean: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.names = sorted(self.items)
        self.may_clean.set()

    @property
    def recorded(self) -> list[str]:
        """Names of the failed items in the file."""
        lines = self.failures.read_text().splitlines() if self.failures.exists() else []
        return [json.loads(line)["path"] for line in lines]


class Catalogs:
    """The activities, over all catalogs of a test session."""

    def __init__(self, folder: Path) -> None:
        self.catalogs: dict[str, Catalog] = {}
        self._folder = folder

    def add(self, name: str, items: dict[str, Behaviour]) -> Catalog:
        """Add a catalog, and return it."""
        self.catalogs[name] = Catalog(name, items, self._folder / f"{name}.jsonl")
        return self.catalogs[name]

    @activity.defn
    async def list_items(self, catalog: str, cursor: str, limit: int) -> Page:
        """Return the items after a cursor."""
        source, run = self.catalogs[catalog], activity.info().workflow_run_id
        if run and run not in source.runs:
            source.runs.append(run)
        begin = bisect_right(source.names, cursor.removeprefix("after "))
        items = [WaveItem(name=name, cursor=f"after {name}") for name in source.names[begin : begin + limit]]
        return Page(items=tuple(items), total=len(source.names), hold=source.hold)

    @activity.defn
    async def append_failures(self, catalog: str, failures: list[FailedItem], offset: int) -> str:
        """Write the list of failed items from an offset on."""
        path = self.catalogs[catalog].failures
        lines = path.read_text().splitlines() if path.exists() else []
        lines[offset:] = [failure.model_dump_json() for failure in failures]
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    @activity.defn
    async def begin_items(self, begun: Begun) -> Behaviour:
        """Record that items begin; the behaviour of a batch is that of its first item, with all its bad ones."""
        source = self.catalogs[begun.catalog]
        source.begun += [(item, begun.at, begun.attempt) for item in begun.items]
        failed = tuple(item for item in begun.items if source.items[item].failed)
        return source.items[begun.items[0]].model_copy(update={"failed": failed})


class ManyTopicsTask(StepTask[ManyTopicsInput]):
    """One attempt at a step of `ManyTopics`."""

    kind = "many-topics"
    input_type = ManyTopicsInput


@async_step(ManyTopicsTask)
async def list_topics(catalogs: Any, execution: Execution[ManyTopicsInput], cursor: str, limit: int) -> Page:
    """List topics as `list_items` does, for a migration: its cluster is the catalog."""
    return await catalogs.list_items(execution.input.cluster, cursor, limit)


@async_step(ManyTopicsTask)
async def append_failed_topics(
    catalogs: Any, execution: Execution[ManyTopicsInput], failures: list[FailedItem], offset: int
) -> str:
    """Append failed topics as `append_failures` does, for a migration."""
    return await catalogs.append_failures(execution.input.cluster, failures, offset)


@async_step(ManyTopicsTask)
async def clean_topics(catalogs: Any, execution: Execution[ManyTopicsInput], items: list[str]) -> None:
    """Clean up after topics whose child was terminated, once the catalog lets it end."""
    catalog: Catalog = catalogs.catalogs[execution.input.cluster]
    await catalog.may_clean.wait()
    catalog.cleaned += items
