"""How much of the texts that clients send a workflow keeps: Temporal refuses states above 2 MB."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from models.lifecycle.audit import MOST_ENTRIES, Audit, fault_of
from models.lifecycle.hook_events import MOST_EVENTS, EventType, HookEvent, Outbox
from models.lifecycle.status import Undo, dated_note
from models.lifecycle.verbs import MAX_REASON
from workflows.lifecycle.status import MOST_NOTES

AT = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "漢" * MAX_REASON
MOST_BYTES = 1_600_000
"""Leaves room for the rest of the state."""


def test_long_texts_fit_into_a_state() -> None:
    """A full audit trail, a full outbox and all notes, with the longest texts of clients, three bytes each."""
    audit, outbox = Audit(), Outbox()
    outbox.register(("pager",))
    for number in range(1, max(MOST_ENTRIES, MOST_EVENTS) + 2):
        audit = audit.with_entry(AT, LONG, LONG, reason=LONG, accepted=False, result=LONG)
        texts: dict[str, Any] = {"text": LONG, "request": LONG, "by": LONG, "reason": LONG}
        kind = EventType.REQUEST_REFUSED
        outbox.add(HookEvent(id="run-1", number=number, type=kind, at=AT, undo=Undo.FREE, **texts))
    assert (len(audit.entries), len(outbox.events)) == (MOST_ENTRIES, MOST_EVENTS)
    assert fault_of(audit.entries) == ""
    notes = "".join([dated_note(AT, LONG)] * MOST_NOTES)
    size = len((audit.model_dump_json() + outbox.model_dump_json() + notes).encode())
    assert size < MOST_BYTES
