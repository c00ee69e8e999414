"""What a shell offers when somebody types: the ids of running migrations."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from process.exit_codes import CommandFailed

LIMIT = timedelta(seconds=2)
"""Longest time that a shell may hang at a tabulator."""

MOST = 50


def running_ids(incomplete: str) -> list[str]:
    """Ids of running migrations that begin as typed; none if Temporal does not answer at once."""
    # Only here: the shell's own start-up asks for this module too.
    from cli.listing import running_query
    from temporal.client import connect, quiet_runtime

    async def ids(client: Client) -> list[str]:
        return [one.id async for one in client.list_workflows(running_query(), limit=MOST)]

    async def work() -> list[str]:
        async with asyncio.timeout(LIMIT.total_seconds()):
            return await ids(await connect(quiet_runtime()))

    try:
        found = asyncio.run(work())
    except (CommandFailed, RPCError, TimeoutError):
        return []
    return [one for one in found if one.startswith(incomplete)]
