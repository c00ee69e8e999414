"""Metrics of migrations on a real Temporal server, with a small migration in place of the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from models.lifecycle.failures import FailureKind
from models.lifecycle.names import TASK_QUEUE
from page.access import Viewers
from page.app import build_app
from page.settings import PageSettings
from tests.workflows.cli.test_cli import LIMIT, PLAN, Shell, shell, small_worker

__all__ = ["shell"]


class Scraper:
    """Scrapes the metrics of a namespace from a new page each time, which has no older snapshot."""

    def __init__(self, shell: Shell) -> None:
        self._client = shell.client

    async def answer(self, only: str = "") -> httpx.Response:
        """Return the answer of the page."""
        app = build_app(self._client, PageSettings(), Viewers(None), only)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get("/metrics", timeout=LIMIT)

    async def samples(self) -> list[Sample]:
        """Return all samples."""
        answer = await self.answer()
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/plain")
        return [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]

    async def until(self, wanted: Callable[[list[Sample]], object]) -> list[Sample]:
        """Return the samples once they are as wanted, as visibility lags."""
        async with asyncio.timeout(LIMIT):
            while True:
                samples = await self.samples()
                if wanted(samples):
                    return samples
                await asyncio.sleep(0.2)


def values(samples: list[Sample], name: str, **labels: str) -> list[float]:
    """Return the values of all samples with a name and labels."""
    return [
        sample.value
        for sample in samples
        if sample.name == f"pulsar_migrate_{name}" and labels.items() <= sample.labels.items()
    ]


async def test_a_series_lives_as_long_as_its_run(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration has its series while it runs, also without a worker; at its end only the outcome is left."""
    scraper = Scraper(shell)
    assert (await scraper.answer("metadata-store/measured")).status_code == 404
    async with small_worker(shell.client):
        workflow_id = await shell.begin_with_worker("measured")
        run_id = (await shell.client.get_workflow_handle(workflow_id).describe()).run_id
        own = {"workflow_id": workflow_id, "run_id": run_id, "kind": "metadata-store", "cluster": "measured"}
        samples = await scraper.until(lambda samples: values(samples, "waiting_since_timestamp_seconds", **own))
        assert values(samples, "phase", phase="WORK", **own) == [1]
        assert values(samples, "waiting_since_timestamp_seconds", wait="window", operator="false", **own)
        assert values(samples, "deadline_timestamp_seconds", **own)
        assert values(samples, "answers", **own) == [1]
        assert values(samples, "collector_up") == [1]
        assert min(values(samples, "task_queue_pollers", task_queue=TASK_QUEUE)) >= 1
    # Temporal lists a worker for minutes after its last poll.
    monkeypatch.setattr("temporal.pollers.POLLS_WITHIN", timedelta(seconds=1))
    silent = await scraper.until(
        lambda samples: (
            values(samples, "answers", **own) == [0]
            and values(samples, "task_queue_pollers", task_queue=TASK_QUEUE) == [0, 0]
        )
    )
    assert values(silent, "phase", phase="WORK", **own) == [1]
    assert values(silent, "unanswered", kind="metadata-store") == [1]
    assert values(silent, "paused", **own) == []

    async with small_worker(shell.client):
        # Temporal gives the new worker tasks a little later.
        await shell.status_with(workflow_id, lambda view: view["status"]["waiting"])
        assert (await shell("proceed", workflow_id)).code == 0
        ended = await scraper.until(lambda samples: values(samples, "outcome", outcome="done", **own))
        names = {sample.name for sample in ended if own.items() <= sample.labels.items()}
        assert names == {"pulsar_migrate_outcome", "pulsar_migrate_ended_timestamp_seconds"}


async def test_failures(shell: Shell) -> None:
    """A step that fails repeatedly and a migration that failed are series with the type of the failure."""
    scraper = Scraper(shell)
    async with small_worker(shell.client):
        flaky = await shell.begin_with_worker("flaky")
        await scraper.until(
            lambda samples: [attempt for attempt in values(samples, "step_attempt", workflow_id=flaky) if attempt > 1]
        )
        await shell("start", "metadata-store", "--cluster", f"fails-{FailureKind.CONFLICT}", *PLAN, "--wait")
        await scraper.until(lambda samples: values(samples, "outcome", outcome="failed", failure="Conflict") == [1])
        await shell.client.get_workflow_handle(flaky).terminate()
        await scraper.until(lambda samples: values(samples, "outcome", outcome="terminated", workflow_id=flaky))
