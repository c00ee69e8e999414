"""A worker of a newer build: its activities return fields that other builds do not know, or a changed format.

`python -m … --ready-file FILE`, with what it serves and how it answers in the variables below.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, cast

import temporalio.client
import temporalio.worker
from pydantic import BaseModel, TypeAdapter
from temporalio import activity
from temporalio.client import Client
from temporalio.runtime import Runtime

from models.settings import Settings
from pulsar_devstack.servers import processes
from tests.support.lifecycle.worker import WorkerProcess
from worker import process

ADDED = "added_by_a_newer_build"

_ACTIVITIES_ONLY = "NEWER_WORKER_ACTIVITIES_ONLY"
_CHANGED = "NEWER_WORKER_CHANGED"


class NewerWorkerProcess(WorkerProcess):
    """A worker whose activities' answers have grown.

    Args:
        temporal_address: `host:port`.
        folder: for the log and the ready file.
        activities_only: whether it leaves workflows to others.
        changed: name of an activity that answers in another form; none by default.
        settings: the worker's settings besides, `PULSAR_MIGRATE_…` to text.
    """

    def __init__(
        self,
        temporal_address: str,
        folder: Path,
        *,
        activities_only: bool = False,
        changed: str = "",
        **settings: str,
    ) -> None:
        super().__init__(temporal_address, folder)
        ours = {_ACTIVITIES_ONLY: "yes" if activities_only else "", _CHANGED: changed}
        self._environment.update(settings | ours)

    def launch(self) -> None:
        """Start the process and return at once."""
        self._ready_file.unlink(missing_ok=True)
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        program = [sys.executable, "-m", "tests.support.lifecycle.newer_worker", "--ready-file", str(self._ready_file)]
        self._child = processes.spawn(["/usr/bin/env", *variables, *program], cwd=self._cwd, log=self.log, detach=False)
        self._sessions.append(self._child.pid)


class _Newer(temporalio.client.Interceptor, temporalio.worker.Interceptor):
    """An interceptor of the client counts for its workers as well."""

    def intercept_activity(
        self,
        next: temporalio.worker.ActivityInboundInterceptor,  # noqa: A002 - the SDK's own name
    ) -> temporalio.worker.ActivityInboundInterceptor:
        return _NewerActivity(next)


class _NewerActivity(temporalio.worker.ActivityInboundInterceptor):
    async def execute_activity(self, input: temporalio.worker.ExecuteActivityInput) -> Any:
        answer = await super().execute_activity(input)
        if activity.info().activity_type == os.environ[_CHANGED]:
            return {ADDED: "and nothing of what was there before"}
        return grown(answer)


def grown(value: Any) -> Any:
    """Return a value as JSON, with one more field in each of our models in it."""
    if isinstance(value, BaseModel):
        fields = value.model_dump(mode="json")
        nested = {name: grown(getattr(value, name)) for name in type(value).model_fields if name in fields}
        return {**fields, **nested, ADDED: True}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [grown(element) for element in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {str(key): grown(element) for key, element in cast("dict[Any, Any]", value).items()}
    return TypeAdapter[Any](Any).dump_python(value, mode="json")


def main() -> None:
    """Run the worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    connect = process.connect

    async def connect_newer(runtime: Runtime | None = None, *, traced_as: str = "") -> Client:
        config = (await connect(runtime, traced_as=traced_as)).config()
        config["interceptors"] = [*config["interceptors"], _Newer()]
        return Client(**config)

    process.connect = connect_newer
    if os.environ[_ACTIVITIES_ONLY]:
        process.migrations.workflows = list[type]
    process.run_worker(Settings(), ready_file=options.ready_file)


if __name__ == "__main__":
    main()
