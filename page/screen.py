"""What the page shows of one migration: sentences, bars and lists, ready for the template."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from models.lifecycle.failures import failed_lines
from models.lifecycle.status import Outcome, PhaseEntry, Progress, Status, Undo, Waiting, WaitKind
from models.lifecycle.units import Described, Quantity, Unit, format_value
from models.lifecycle.verbs import VERB_HELP, Verb
from models.text import one_line, printable_json
from page.guide import BATCH, BreakGlass, Guide, Step, guide_of
from page.sides import FELT, Fact, Known, Sides, known_of, old_side, sides_of, verdict
from views.migration import View
from views.values import described
from worker.catalog import KINDS

TIMELINE = 40
"""Most events that are shown without unfolding."""

SQUARES = 1_200
"""Most squares of a fleet; with more items, a square stands for several."""

_TIME = Unit(Quantity.TIME)
_DATED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)Z (.*)", re.DOTALL)
_PERIODIC = frozenset((WaitKind.ITEMS, WaitKind.WINDOW, WaitKind.THROTTLE))


class Tone(StrEnum):
    """What a state means for the operator; the page shows it as a word, a sign and a colour."""

    RUNS = "runs"
    WAITS = "waits"
    ASKS = "waits for you"
    DANGER = "failed"
    BACK = "rolling back"
    DONE = "done"
    SILENT = "no answer"


class Headline(NamedTuple):
    """The large sentence.

    Attributes:
        tone: what it means for the operator.
        text: the sentence.
        spoken: the same without numbers that change all the time, for screen readers.
    """

    tone: Tone
    text: str
    spoken: str


class PhaseBox(NamedTuple):
    """A phase in the bar.

    Attributes:
        name: of the phase.
        state: `done`, `running`, `failed`, `skipped` or `to come`.
        undo: how it is undone.
        time: how long it took, or has taken.
        line: the point of no return is before this phase.
        blocked: clients wait while it runs.
        share: share that is done, from 0 to 1; None if it is not known.
        note: of the phase.
    """

    name: str
    state: str
    undo: str
    time: str
    line: bool
    blocked: bool
    share: float | None
    note: str


class Command(NamedTuple):
    """A command that is legal now.

    Attributes:
        verb: its verb.
        line: to copy.
        effect: what it does.
    """

    verb: str
    line: str
    effect: str


class Event(NamedTuple):
    """An event of the timeline; `kind` is `phase`, `alarm`, `refused` or `note`."""

    at: datetime | None
    text: str
    kind: str


class Square(NamedTuple):
    """Items of a fleet in one state.

    Attributes:
        state: `done`, `failed`, `running` or `waiting`.
        title: names and reasons, as far as they are known.
        link: workflow id of the part that runs; empty for none.
    """

    state: str
    title: str
    link: str


class Part(NamedTuple):
    """A running part of a fleet: a batch of namespaces, or a topic."""

    workflow_id: str
    name: str
    phase: str
    state: str


class Fleet(NamedTuple):
    """Items that move in waves.

    Attributes:
        unit: what they are.
        squares: one for each item, or for several.
        each: how many items a square stands for.
        text: counts in words.
        parts: running parts, and what each waits for.
        more: number of running parts that are not listed.
    """

    unit: str
    squares: list[Square]
    each: int
    text: str
    parts: list[Part]
    more: int


class Back(NamedTuple):
    """Whether a rollback is possible, at what cost, and until when."""

    possible: bool
    undo: Undo
    answer: str
    cost: str
    until: str


class Screen(NamedTuple):
    """Everything that the page shows of one migration."""

    workflow_id: str
    kind: str
    cluster: str
    target: str
    started: datetime
    closed: datetime | None
    ended: bool
    headline: Headline
    alarms: list[str]
    silence: str
    phases: list[PhaseBox]
    line_each: str
    blocks: str
    back: Back | None
    guide: Guide | None
    sides: Sides | None
    verdict: str
    old_side: list[Fact]
    waiting: Waiting | None
    progress: Progress | None
    steps: list[str]
    commands: list[Command]
    deadlines: list[tuple[str, datetime]]
    fleet: Fleet | None
    felt: list[Described]
    blocked_for: str
    events: list[Event]
    figures: list[Described]
    certificate: list[Described]
    failed: list[str]
    features: list[str]
    glass: BreakGlass | None
    glass_steps: tuple[Step, ...]
    file: str
    digest: str
    now: datetime


def screen_of(view: View, now: datetime) -> Screen:
    """Return what the page shows of a migration.

    Args:
        view: of the migration.
        now: time of the page.
    """
    status, report = view.status, view.report
    guide = guide_of(status) if status else None
    known = known_of(view)
    kind = status.kind if status else report.kind if report else ""
    name = BATCH if guide and "LOAD" in guide.phases and kind == "blue-green" else kind
    history = status.history if status else report.history if report else []
    outcome = report.outcome if report else status.outcome if status else None
    models = KINDS[kind].models if kind in KINDS and name != BATCH else {}
    figures = described(known.figures, models.get("figure"), zeros=False)
    file = printable_json((report or view).model_dump_json(indent=2)) if view.ended else ""
    glass = guide.steps_in(known.phase) if guide and not view.ended else None
    return Screen(
        workflow_id=view.workflow_id,
        kind=name,
        cluster=status.cluster if status else report.cluster if report else "",
        target=status.target if status else "",
        started=min([view.started, *(entry.started for entry in history[:1])]),
        closed=view.closed,
        ended=view.ended,
        headline=headline(view, guide, known, now),
        alarms=status.alarms if status else [],
        silence=view.silence,
        phases=_phases(history, known, guide, now),
        line_each=guide.line_each if guide else "",
        blocks=guide.blocks if guide else "",
        back=_back(status, now) if status and not view.ended else None,
        guide=guide,
        sides=sides_of(name, known),
        verdict=verdict(guide, known, outcome) if guide and view.ended else "",
        old_side=old_side(name, known),
        waiting=status.waiting if status and not view.ended else None,
        progress=known.progress,
        steps=[] if view.ended else [_step(step.name, step.attempt, step.last_failure) for step in view.steps],
        commands=_commands(view),
        deadlines=sorted(status.deadlines.items(), key=lambda item: item[1]) if status and not view.ended else [],
        fleet=_fleet(view, name, known),
        felt=[figure for figure in figures if figure.name in FELT],
        blocked_for=_blocked_for(history, guide, now),
        events=_events(history, status.notes if status else report.notes if report else []),
        figures=[figure for figure in figures if figure.name not in FELT],
        certificate=described(known.certificate, models.get("certificate")) if known.certificate else [],
        failed=failed_lines(report.failed_items if report else status.failed_items if status else []),
        features=[f"{use.feature}: {'accepted' if use.accepted else use.outcome}" for use in report.features]
        if report
        else [],
        glass=glass,
        glass_steps=glass.of(shlex.quote(view.workflow_id)) if glass else (),
        file=file,
        digest=sha256(file.encode()).hexdigest() if file else "",
        now=now,
    )


def headline(view: View, guide: Guide | None, known: Known, now: datetime) -> Headline:
    """Return the large sentence and what it means."""
    status, phase = view.status, known.phase
    if view.failure:
        return _plain(Tone.DANGER, f"Failed: {view.failure.message}")
    if view.report:
        return _plain(*_end(view.report.outcome, view.report.summary))
    if view.ended:
        return _plain(Tone.DANGER, f"Ended from outside: {view.execution.lower()}.")
    if status is None:
        return _plain(Tone.SILENT, f"No worker answers. The last known phase is {phase or 'unknown'}.")
    back = guide is not None and phase in guide.rollback
    waiting = status.waiting
    if waiting and waiting.action:
        return _plain(Tone.ASKS, f"{phase} waits for you: {waiting.action.rstrip('.')}.")
    if waiting and waiting.kind not in _PERIODIC:
        return _plain(Tone.WAITS, f"{phase} waits for {waiting.why.rstrip('.')}.")
    tone = Tone.BACK if back else Tone.RUNS
    progress = _progress(known.progress)
    if progress:
        return Headline(tone, f"{phase}: {progress}.", f"{phase} runs.")
    if waiting and waiting.kind is WaitKind.WINDOW:
        return _window(phase, waiting, now)
    doing = "is rolling back" if back else "runs"
    entry = status.history[-1] if status.history else None
    since = f" since {_TIME.format(round(entry.seconds(now)))}" if entry and entry.ended is None else ""
    blocked = f"; {guide.blocks}" if guide and phase in guide.blocked else ""
    return Headline(tone, f"{phase} {doing}{since}{blocked}.", f"{phase} {doing}{blocked}.")


def _plain(tone: Tone, text: str) -> Headline:
    text = one_line(text)
    return Headline(tone, text, text)


def _window(phase: str, waiting: Waiting, now: datetime) -> Headline:
    text = f"{phase}: {waiting.why}"
    if waiting.until is None:
        return _plain(Tone.WAITS, f"{text}.")
    seconds = round((waiting.until - now).total_seconds())
    left = f", {_TIME.format(seconds)} left" if seconds > 0 else ", ends now"
    return Headline(Tone.WAITS, f"{text}{left}.", f"{text} until {format_value(waiting.until)}.")


def _end(outcome: Outcome, summary: str) -> tuple[Tone, str]:
    """Return the tone and the sentence of a migration that ended with a report."""
    text = f"{summary[:1].upper()}{summary[1:]}".rstrip(".")
    match outcome:
        case Outcome.DONE:
            return Tone.DONE, f"Done. {text}."
        case Outcome.DONE_WITH_FAILURES:
            return Tone.DANGER, f"Done with failures. {text}."
        case Outcome.ROLLED_BACK:
            return Tone.BACK, f"Rolled back. {text}."
        case Outcome.PLANNED:
            return Tone.DONE, f"Dry run. {text}."
        case _:
            return Tone.DANGER, f"{text}."


def _progress(progress: Progress | None) -> str:
    """Return the progress in a few words; empty if nothing can be said."""
    if progress is None or not progress.total:
        return ""
    share = f"{100 * progress.done / progress.total:.0f} % of {progress.total:,} {progress.unit} {progress.task}"
    if progress.unit == "bytes":
        size = Unit(Quantity.SIZE).format(progress.total)
        share = f"{100 * progress.done / progress.total:.0f} % of {size} {progress.task}"
    left = f", {_TIME.format(round(progress.eta_seconds))} left" if progress.eta_seconds is not None else ""
    return f"{share}{left}"


def _phases(history: Sequence[PhaseEntry], known: Known, guide: Guide | None, now: datetime) -> list[PhaseBox]:
    last = {entry.phase: entry for entry in history}
    names = [*guide.phases] if guide else [*last]
    names += [phase for phase in last if phase not in names]
    reached = max((names.index(phase) for phase in last if guide is None or phase in guide.phases), default=-1)
    undone = guide is not None and any(phase in last for phase in guide.rollback)
    boxes: list[PhaseBox] = []
    for index, name in enumerate(names):
        entry = last.get(name)
        undo = entry.undo if entry else guide.undo.get(name, Undo.NONE) if guide else Undo.NONE
        boxes.append(
            PhaseBox(
                name=name,
                state=_state(entry, passed=index < reached or undone),
                undo=undo.value,
                time=_TIME.format(_whole(entry.seconds(now))) if entry else "",
                line=guide is not None and name == guide.line,
                blocked=guide is not None and name in guide.blocked,
                share=_share(known.progress) if name == known.phase else None,
                note=entry.note if entry else "",
            )
        )
    return boxes


def _whole(seconds: float) -> float:
    return seconds if seconds < 10 else round(seconds)


def _state(entry: PhaseEntry | None, *, passed: bool) -> str:
    if entry is None:
        return "skipped" if passed else "to come"
    match entry.outcome:
        case Outcome.RUNNING:
            return "running"
        case Outcome.FAILED:
            return "failed"
        case Outcome.ROLLED_BACK:
            return "rolled back"
        case _:
            return "done"


def _share(progress: Progress | None) -> float | None:
    return min(1.0, progress.done / progress.total) if progress and progress.total else None


def _back(status: Status, now: datetime) -> Back:
    possible = Verb.ROLLBACK in status.legal_verbs
    window = status.deadlines.get("window")
    until = ""
    if possible and window:
        seconds = round((window - now).total_seconds())
        until = f"until {format_value(window)}" + (f", in {_TIME.format(seconds)}" if seconds > 0 else "")
    answers = {
        Undo.FREE: "Yes, it costs nothing.",
        Undo.METADATA: "Yes, metadata are changed back.",
        Undo.COPY_BACK: "Yes, new data are copied back.",
        Undo.NONE: "Yes, but not everything comes back.",
    }
    return Back(possible, status.undo, answers[status.undo] if possible else "Not now.", status.undo_cost, until)


def _commands(view: View) -> list[Command]:
    status = view.status
    if status is None or view.ended:
        return []
    quoted = shlex.quote(view.workflow_id)
    enders = [verb for verb in status.legal_verbs if status.waiting and verb in status.waiting.ends_on]
    verbs = [*enders, *(verb for verb in status.legal_verbs if verb not in enders)]
    commands = [
        Command(verb.value, f"pulsar-migrate {verb} {quoted} --reason 'WHY'", _effect(verb, status)) for verb in verbs
    ]
    if "window" in status.deadlines:
        commands.append(Command("window", f"pulsar-migrate window {quoted} 2h", "Move the end of the window."))
    return commands


def _effect(verb: Verb, status: Status) -> str:
    return status.undo_cost if verb is Verb.ROLLBACK else VERB_HELP[verb]


def _step(name: str, attempt: int, failure: str) -> str:
    last = f"; the last attempt failed: {failure}" if failure else ""
    return f"{name}, attempt {attempt}{last}"


def _fleet(view: View, kind: str, known: Known) -> Fleet | None:
    """Return the squares of items that move in waves; None where there are none."""
    if kind not in {"blue-green", "scalable-namespace"}:
        return None
    sides = sides_of(kind, known)
    if sides is None or (known.progress is None and not view.ended and not sides.new):
        return None
    failures = view.report.failed_items if view.report else view.status.failed_items if view.status else []
    names = [str(item) for failed in failures for item in failed.items]
    failed = sum(each.count for each in failures)
    parts = [_part(child, view.workflow_id) for child in view.children]
    running = min(view.children_count, sides.total)
    done = min(sides.new, sides.total)
    counts = {"done": done, "failed": failed, "running": running}
    counts["waiting"] = max(0, sides.total - sum(counts.values()))
    each = max(1, -(-sides.total // SQUARES))
    squares: list[Square] = []
    for state, count in counts.items():
        squares += [_square(state, index, names, parts) for index in range(-(-count // each))]
    words = [f"{count:,} {state}" for state, count in counts.items() if count]
    return Fleet(sides.unit, squares, each, ", ".join(words), parts, view.children_count - len(parts))


def _square(state: str, index: int, failed: Sequence[str], parts: Sequence[Part]) -> Square:
    if state == "failed" and index < len(failed):
        return Square(state, failed[index], "")
    if state == "running" and index < len(parts):
        part = parts[index]
        return Square(state, f"{part.name}: {part.phase}, {part.state}", part.workflow_id)
    return Square(state, state, "")


def _part(child: View, parent: str) -> Part:
    status = child.status
    state = child.silence or child.execution.lower()
    if status:
        state = f"waits for {status.waiting.why}" if status.waiting else "runs"
        state = str(status.progress) if status.progress and not status.waiting else state
    name = child.workflow_id.removeprefix(f"{parent}/")
    return Part(child.workflow_id, name, status.phase if status else child.phase, state)


def _blocked_for(history: Sequence[PhaseEntry], guide: Guide | None, now: datetime) -> str:
    """Return how long clients have waited until now; empty if they do not wait."""
    if guide is None or not history or history[-1].ended or history[-1].phase not in guide.blocked:
        return ""
    first = next(entry for entry in history if entry.phase in guide.blocked)
    return f"{guide.blocks} since {_TIME.format(round((now - first.started).total_seconds()))}"


def _events(history: Sequence[PhaseEntry], notes: Sequence[str]) -> list[Event]:
    """Return phases and notes, the newest first."""
    events = [Event(entry.started, f"{entry.phase} started", "phase") for entry in history]
    events += [
        Event(entry.ended, f"{entry.phase}: {entry.outcome}" + (f". {entry.note}" if entry.note else ""), "phase")
        for entry in history
        if entry.ended
    ]
    events += map(_note, notes)
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(events, key=lambda event: event.at or oldest)[::-1]


def _note(note: str) -> Event:
    dated = _DATED.fullmatch(note)
    at = datetime.strptime(dated[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if dated else None
    text = dated[2] if dated else note
    kind = "alarm" if text.startswith("🔴") else "refused" if " refused" in text else "note"
    return Event(at, text, kind)
