"""Names that all migrations share: search attributes, task queue."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

from models.text import one_line, within_bytes

SEARCH_ATTRIBUTES = ("MigrationKind", "MigrationPhase", "MigrationTarget")
"""Keyword search attributes that every migration sets; the worker registers them at its start, if it may."""

ATTRIBUTES_MISSING = "pulsar_migrate_search_attributes_missing"
"""Function of a worker that its workflows call: whether the namespace lacks search attributes."""

CALLER_HEADER = "pulsar-migrate-caller"
"""Header of signals and updates with the name of their sender."""

MAX_ID_BYTES = 900
"""Most bytes of workflow ids: Temporal refuses more than 1,000."""

MAX_KEYWORD_BYTES = 255
"""Most bytes of values of search attributes: Temporal's SQL databases store 255 characters, and others 2,048 bytes."""

MAX_SUMMARY_BYTES = 200
"""Most bytes of a summary: Temporal refuses 400, and encryption adds some."""

MAX_FILE_BYTES = 200
"""Most bytes of names of folders: file systems allow 255, and a folder that is not complete has a longer name."""

_DIGITS = 16


def bounded_id(text: str) -> str:
    """Return a workflow id; a long one is cut, and ends with a hash of the whole, so that it stays unique."""
    return _with_hash(text, MAX_ID_BYTES)


def file_name(workflow_id: str) -> str:
    """Return the name of a workflow's folder: its id, quoted, and cut if it is long; it does not start with a dot."""
    name = quote(workflow_id, safe="")
    return _with_hash(f"%2E{name[1:]}" if name.startswith(".") else name, MAX_FILE_BYTES)


def keyword(text: str) -> str:
    """Return the value of a search attribute; a long one is cut as ids are."""
    return _with_hash(text, MAX_KEYWORD_BYTES)


def summary_line(text: str) -> str:
    """Return a text as a summary for the Web UI: one line, cut if it is long."""
    return within_bytes(one_line(text), MAX_SUMMARY_BYTES)  # mutant: shared/long-summaries-are-not-cut


def _with_hash(text: str, limit: int) -> str:
    if len(text.encode()) <= limit:  # mutant: shared/long-names-are-not-cut
        return text
    digest = sha256(text.encode()).hexdigest()[:_DIGITS]
    return f"{within_bytes(text, limit - _DIGITS)}{digest}"


TASK_QUEUE = "pulsar-migrate"
"""The task queue that workers serve unless their settings say otherwise."""


def observers_queue(task_queue: str) -> str:
    """Return the queue of steps that wait for changes; each worker of a task queue also serves it."""
    return f"{task_queue}-observers"
