"""The worker that watches the source."""

from __future__ import annotations

from datetime import timedelta

from models.metadata_store.state import MetadataStoreState
from workflows.lifecycle.activity_calls import Call


def on_watcher(state: MetadataStoreState, summary: str, *, total: timedelta | None = None) -> Call:
    """Return a call of the worker that watches the source, which knows what changed.

    Any other worker would scan the whole source, with writes blocked.
    """
    # mutant: metadata-store/blocked-steps-go-to-any-worker
    return Call(summary, queue=state.pre.worker_queue if state.pre else None, total=total)
