"""Log lines of the process: plain text or JSON, on standard error, with the fields of their migration."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, cast

from structlog.contextvars import merge_contextvars
from structlog.processors import JSONRenderer
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger

from models.redaction import redacted, redacted_json
from models.text import printable
from process.exit_codes import CommandFailed, ExitCode

VARIABLE = "PULSAR_MIGRATE_LOG"
CORE_LOGGER = "temporalio.core"
"""Where the SDK's native part logs to."""

CONTEXT = ("migration", "run", "phase", "step", "attempt")
"""Fields that name the work that a line is about; `bound_contextvars` sets them for all lines of a step."""

_OF_SDK = {
    "temporal_workflow": {"workflow_id": "migration", "update_name": "update"},
    "temporal_activity": {"workflow_id": "migration", "activity_type": "step", "attempt": "attempt"},
}
"""Fields of the SDK's loggers, by our names; the rest of them is left out."""


def _own_names(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Replace what the SDK's loggers add by our fields."""
    for extra, names in _OF_SDK.items():
        details = cast("dict[str, Any]", line.pop(extra, None) or {})
        for name, own in names.items():
            if name in details:
                line.setdefault(own, details[name])
    return line


def _json_line(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Add time, level and logger, and write the traceback as one field."""
    record: logging.LogRecord = line.pop("_record")
    line.pop("_from_structlog")
    head: EventDict = {
        "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname,
        "logger": record.name,
        "event": line.pop("event"),
    }
    raised = line.pop("exc_info", None)
    return {**head, **line, **({"error": logging.Formatter().formatException(raised)} if raised else {})}


def _without_secrets(line: Any, **options: Any) -> str:
    text = json.dumps(line, ensure_ascii=False, **options)
    return redacted_json(text.encode(errors="backslashreplace"), sentences_only=False).decode()


_logger = logging.getLogger(__name__)
_FIELDS = (merge_contextvars, ExtraAdder(), _own_names)


class JsonLines(ProcessorFormatter):
    """One JSON object for each record: `ts`, `level`, `logger`, `event`, its fields, and `error`."""

    def __init__(self) -> None:
        render = JSONRenderer(serializer=_without_secrets, default=str)
        super().__init__(foreign_pre_chain=_FIELDS, processors=[_json_line, render], use_get_message=True)


class TextLines(logging.Formatter):
    """One line for each record, and indented lines for a traceback: no text from outside looks like a record."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Write the record without secrets."""
        return redacted(super().format(record))  # mutant: shared/secrets-in-the-log

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Write the message and the fields of its migration as one line."""
        line: EventDict = {"_record": record}
        for processor in _FIELDS:
            line = processor(_logger, "", line)
        fields = [f"{name}={line[name]}" for name in CONTEXT if line.get(name)]
        record.message = printable(" ".join([record.message, *fields])).replace("\n", "\\n")
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        """Write the traceback as indented lines."""
        return "\n".join(f"  {line}" for line in printable(super().formatException(ei)).split("\n"))


def configure_logs() -> None:
    """Set up logging for a process that serves as `PULSAR_MIGRATE_LOG` says: `text` (default) or `json`.

    Raises:
        CommandFailed: it says something else.
    """
    form = os.environ.get(VARIABLE, "text")
    if form not in {"text", "json"}:
        raise CommandFailed(ExitCode.USAGE, f"{VARIABLE}={form} is unknown.", f"set {VARIABLE} to text or json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # These clients report every message that they exchange.
    for noisy in ("py4j", "kazoo", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
