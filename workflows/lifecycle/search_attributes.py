"""Search attributes of a run, which it sets only where the namespace has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from models.lifecycle.names import ATTRIBUTES_MISSING

KIND_KEY = SearchAttributeKey.for_keyword("MigrationKind")
TARGET_KEY = SearchAttributeKey.for_keyword("MigrationTarget")
PHASE_KEY = SearchAttributeKey.for_keyword("MigrationPhase")

_MARKER = "search-attributes-missing"
"""Name of the marker in histories of runs without search attributes."""


class SearchAttributes:
    """Sets the search attributes of one run.

    A task that sets an attribute which the namespace lacks is retried indefinitely. Only the worker knows what the
    namespace has, and another worker, with other knowledge, may replay the run. So a run decides once, and a marker in
    its history says that it sets none.
    """

    def __init__(self) -> None:
        self._missing: bool | None = None

    def set(self, *updates: SearchAttributeUpdate[str]) -> None:
        """Set search attributes; do nothing if the namespace lacks them."""
        if self._missing is None:
            # In a replay, `patched` returns whether the marker is there. Otherwise it records the marker.
            self._missing = (workflow.unsafe.is_replaying() or _worker_misses_them()) and workflow.patched(_MARKER)
        if not self._missing:
            workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation


def _worker_misses_them() -> bool:
    functions = cast("Mapping[str, Callable[[], bool]]", workflow.extern_functions())  # pyright: ignore[reportUnknownMemberType] - the SDK's own annotation
    ask = functions.get(ATTRIBUTES_MISSING)
    return ask is not None and ask()
