"""Events of migrations as CloudEvents 1.0, in the JSON format.

No library: this format is one JSON object, and the one of CloudEvents' own package would add nothing but its types.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from models.lifecycle.hook_events import EventSource, HookEvent

PREFIX = "pulsar-migrate."
"""Of each type."""


def cloud_event(source: EventSource, event: HookEvent) -> dict[str, Any]:
    """Return an event as the JSON object of a CloudEvent.

    Args:
        source: the migration.
        event: of it.
    """
    data = event.model_dump(mode="json", exclude={"id", "type", "at"}, exclude_none=True)
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "source": f"/temporal/{quote(source.namespace, safe='')}/{quote(source.workflow_id)}",
        "type": f"{PREFIX}{event.type}",
        "time": event.at.isoformat(),
        # An extension of CloudEvents; compared as text.
        "sequence": f"{event.number:010}",
        "datacontenttype": "application/json",
        "data": {**source.model_dump(mode="json"), **data},
    }
    # An attribute must not be empty.
    return attributes | ({"subject": event.phase} if event.phase else {})


def encoded(source: EventSource, event: HookEvent) -> bytes:
    """Return an event as bytes, the same in each attempt; arguments as of `cloud_event`."""
    return json.dumps(cloud_event(source, event), separators=(",", ":")).encode()
