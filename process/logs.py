"""Log lines of the process: plain text or JSON, on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

from models.redaction import redacted, redacted_json
from models.text import printable
from process.exit_codes import CommandFailed, ExitCode

VARIABLE = "PULSAR_MIGRATE_LOG"
CORE_LOGGER = "temporalio.core"
"""Where the SDK's native part logs to."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object for each record: `ts`, `level`, `logger`, `event`, what was given as `extra`, and `error`."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record as one line."""
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        text = json.dumps(line, default=str, ensure_ascii=False)
        return redacted_json(text.encode(errors="backslashreplace"), sentences_only=False).decode()


class TextLines(logging.Formatter):
    """One line for each record, and indented lines for a traceback: no text from outside looks like a record."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Write the record without secrets."""
        return redacted(super().format(record))  # mutant: shared/secrets-in-the-log

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Write the message as one line."""
        record.message = printable(record.message).replace("\n", "\\n")
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        """Write the traceback as indented lines."""
        return "\n".join(f"  {line}" for line in printable(super().formatException(ei)).split("\n"))


def configure_logs() -> None:
    """Set up logging for a worker's process as `PULSAR_MIGRATE_LOG` says: `text` (default) or `json`.

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
