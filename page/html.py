"""The page as HTML: whole documents, and the parts that a browser replaces while it shows one.

All text passes `printable` and then the template engine's escaping. Style and script are inside the document, and its
policy allows these two only: a document needs no other file, and loads none.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from models.lifecycle.units import Quantity, Unit, format_value
from models.text import printable
from page.reading import Problem
from page.screen import TIMELINE, Screen, screen_of
from views.listing import Listed
from views.migration import View

FOLDER = Path(__file__).parent
STYLE = (FOLDER / "assets" / "page.css").read_text("utf-8")
SCRIPT = (FOLDER / "assets" / "page.js").read_text("utf-8")
# All are read at once: an update of the files must not mix two versions in a process that runs.
TEMPLATES = {
    file.relative_to(FOLDER / "templates").as_posix(): file.read_text("utf-8")
    for file in sorted((FOLDER / "templates").rglob("*.html"))
}

_TIME = Unit(Quantity.TIME)
LISTED = 50
"""Most migrations in the list; one more tells that there are others."""

_LIST_STATE = 300
_LONGEST_WORD = 44
_START = 110


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


_DOCUMENT = (
    f"default-src 'none'; style-src {_source(STYLE)}; script-src {_source(SCRIPT)}; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)

POLICY = f"{_DOCUMENT}; connect-src 'self'; frame-ancestors 'none'"
"""Content security policy of the live page; a file has a stricter one, which lets it load nothing."""


def migration_document(view: View, now: datetime) -> str:
    """Return the live page of a migration."""
    screen = screen_of(view, now)
    path = quote(view.workflow_id)
    return _render("migration.html", screen=screen, parts=_migration_parts(screen, live=True), live=f"/parts/{path}")


def migration_changes(view: View, now: datetime) -> dict[str, Any]:
    """Return what a browser replaces: parts by the ids of their elements, the title, and what a screen reader says."""
    screen = screen_of(view, now)
    title = printable(f"{screen.headline.tone} · {screen.workflow_id}")
    return {"parts": _migration_parts(screen, live=True), "title": title, "spoken": printable(screen.headline.spoken)}


def report_document(view: View, now: datetime) -> str:
    """Return a migration as one file, which loads nothing."""
    screen = screen_of(view, now)
    return _render("migration.html", screen=screen, parts=_migration_parts(screen, live=False), live="", alone=True)


def list_document(migrations: Sequence[Listed], now: datetime, namespace: str) -> str:
    """Return the live list of migrations."""
    return _render("list.html", parts=list_parts(migrations, now), namespace=namespace, live="/parts")


def list_parts(migrations: Sequence[Listed], now: datetime) -> dict[str, str]:
    """Return the parts of the list, by the ids of their elements."""
    more = len(migrations) > LISTED
    return {"migrations": _render("parts/migrations.html", migrations=migrations[:LISTED], more=more, now=now)}


def problem_document(problem: Problem, *, again: bool = False) -> str:
    """Return the page for a request that has no other answer; `again` loads it again after some seconds."""
    return _render("problem.html", problem=problem, again=again, live="")


_PARTS = ("top", "phases", "back", "sides", "who", "wait", "fleet", "felt", "timeline", "glass", "proof")


def _migration_parts(screen: Screen, *, live: bool) -> dict[str, str]:
    return {name: _render(f"parts/{name}.html", screen=screen, live=live, shown=TIMELINE) for name in _PARTS}


def _render(template: str, *, alone: bool = False, **values: Any) -> str:
    """Return a template with its values; `alone` marks a file, which may not connect to anything."""
    return _environment().get_template(template).render(alone=alone, **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=DictLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Style and script are our own files.
    names: dict[str, Any] = {"style": Markup(STYLE), "script": Markup(SCRIPT), "file_policy": _DOCUMENT}  # noqa: S704
    filters: dict[str, Any] = {
        "clock": _clock,
        "ticks": _ticks,
        "sentence": _sentence,
        "start": _start,
        "command": _command,
        "seconds": _seconds,
        "number": _number,
        "markup": Markup,
        "path": quote,
        "data": _data,
        "state": _state,
    }
    # The engine's own annotations allow its own names only.
    cast("dict[str, Any]", environment.globals).update(names)
    cast("dict[str, Any]", environment.filters).update(filters)
    return environment


def _finalize(value: object) -> object:
    """Make each text harmless before it is escaped; markup is our own."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _seconds(seconds: float) -> str:
    return _TIME.format(round(seconds))


def _number(number: int, noun: str = "") -> str:
    return Unit(Quantity.NUMBER, noun).format(number)


def _clock(at: datetime | None, now: datetime) -> Markup:
    """Return a time, without its date if it is of today."""
    if at is None:
        return Markup("")
    at = at.astimezone(UTC)
    text = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), format_value(at), text)


def _sentence(text: str) -> str:
    """Return a text that starts with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def _start(text: str) -> str:
    """Return the first words of a long text."""
    return f"{text[:_START].rsplit(' ', 1)[0]} …"


def _ticks(text: str) -> Markup:
    """Return a text whose words in backticks are code."""
    words = printable(text).split("`")
    if len(words) % 2 == 0:
        return escape(printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(word) if index % 2 else escape(word) for index, word in enumerate(words)
    )


def _command(line: str) -> Markup:
    """Return a command that breaks between its words only, unless one is long."""
    words = printable(line).split(" ")
    spans = (Markup("<span>{}</span>").format(word) if len(word) <= _LONGEST_WORD else escape(word) for word in words)
    return Markup(" ").join(spans)


def _data(text: str) -> Markup:
    """Return an address that holds a JSON file itself."""
    return Markup("data:application/json;base64,{}").format(base64.b64encode(text.encode()).decode())


def _state(migration: Listed) -> str:
    """Return what a migration of the list does, in one sentence."""
    if migration.silence:
        text = f"no answer: {migration.silence}"
    elif migration.waiting:
        text = f"{migration.waiting.action}; waits for {migration.waiting.why}".removeprefix("; ")
    elif migration.progress and not migration.closed:
        text = str(migration.progress)
    elif migration.failure:
        text = f"failed: {migration.failure}"
    else:
        text = str(migration.outcome or migration.execution.lower())
    return text if len(text) <= _LIST_STATE else f"{text[: _LIST_STATE - 1]}…"
