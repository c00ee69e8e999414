"""The list while no worker answers: the time that it takes, with Temporal's answers replaced."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from math import ceil
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client

from page.html import LISTED, SCRIPT
from views import listing
from views.listing import QUERY_LIMIT, list_migrations
from views.migration import View


class Temporal:
    """A namespace with many running migrations."""

    async def list_workflows(self, *_: Any, **__: Any) -> AsyncIterator[SimpleNamespace]:
        """List them."""
        for number in range(2 * LISTED):
            yield SimpleNamespace(
                id=f"metadata-store/c{number}",
                run_id="r",
                parent_id=None,
                close_time=None,
                workflow_type="MetadataStoreMigration",
                search_attributes={},
            )


async def test_a_list_without_workers_is_read_before_browsers_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that waits for longer says that the page's own process does not answer, which is another cause."""
    asked: set[str] = set()
    most, children_asked = 0, set[int]()

    async def silent(_: Client, workflow_id: str, *, children: int, **__: Any) -> View:
        nonlocal most
        asked.add(workflow_id)
        most = max(most, len(asked))
        children_asked.add(children)
        await asyncio.sleep(0)
        asked.remove(workflow_id)
        return View(
            workflow_id=workflow_id, run_id="r", execution="RUNNING", started=datetime.now(UTC), closed=None, phase="",
            status=None, silence="no worker", steps=[], report=None, failure=None,
        )  # fmt: skip

    monkeypatch.setattr(listing, "read_view", silent)
    listed = await list_migrations(cast("Client", Temporal()), ended=True, limit=LISTED + 1)
    assert len(listed) == LISTED + 1
    # Children are queried after their parent, and the list does not show them.
    assert children_asked == {0}
    page_limit = re.search(r"const LIMIT = (\d+);", SCRIPT)
    assert page_limit is not None
    assert ceil(len(listed) / most) * QUERY_LIMIT < timedelta(milliseconds=int(page_limit[1])) - timedelta(seconds=3)
