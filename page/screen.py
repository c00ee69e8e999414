"""Contents of the page of one migration: sentences, bars and lists, ready for the template."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from models.lifecycle.audit import AuditEntry, fault_of
from models.lifecycle.failures import failed_lines
from models.lifecycle.outlook import Outlook
from models.lifecycle.status import Outcome, PhaseEntry, Progress, Status, Undo, Waiting, WaitKind
from models.lifecycle.units import Described, Quantity, Unit, format_value
from models.lifecycle.verbs import VERB_HELP, ApprovalRequest, Verb
from models.lifecycle.waves import CHANGE_NOTE
from models.text import one_line, printable_json
from page.events import Event, event_of, events_of, whole_seconds
from page.guide import BATCH, BreakGlass, Guide, Step, guide_of, guides
from page.sides import FELT, Fact, MigrationData, Sides, data_of, estimate_of, old_side, sides_of, verdict
from views.migration import View
from views.values import described
from worker.catalog import KINDS

TIMELINE = 25
"""Most events that are shown without unfolding."""

SQUARES = 1_200
"""Most squares of a fleet; with more items, a square counts several."""

_TIME = Unit(Quantity.TIME)
_ESTIMATES = ("estimated_blocked_seconds", "estimated_pause_seconds")
_PROCEED = {
    WaitKind.HOLD: "Start the cut-over.",
    WaitKind.VETO: "Start it against the veto.",
    WaitKind.WINDOW: "End the window, and keep what remains of the old side.",
    WaitKind.GATE: "Start the next wave.",
    WaitKind.ERROR_BUDGET: "Accept these failures, and start more items.",
    WaitKind.DECISION: "Continue without what the finding names.",
    WaitKind.RETRY: "Try the failed step again now.",
}
"""Effect of `proceed`, by what is waited for."""

_PERIODIC = frozenset((WaitKind.ITEMS, WaitKind.WINDOW, WaitKind.THROTTLE))


class Tone(StrEnum):
    """Meaning of a state for the operator; the page shows it as a word, a sign and a colour."""

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
        share: share that is done, from 0 to 1; None if it is unknown.
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


class Square(NamedTuple):
    """Items of a fleet in one state.

    Attributes:
        state: `done`, `failed`, `running` or `waiting`.
        title: names and reasons, where they are known.
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
        each: number of items of a square.
        text: counts in words.
        parts: running parts, and what each waits for.
        more: number of running parts that are not listed.
        stopped: why the stop switch lets no item start; empty if it does not.
        change: the last change of the waves while they ran; None if there was none.
    """

    unit: str
    squares: list[Square]
    each: int
    text: str
    parts: list[Part]
    more: int
    stopped: str
    change: Event | None


class Back(NamedTuple):
    """Answer to the question whether a rollback is possible, at what cost, and until when."""

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
    started_by: str
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
    request: ApprovalRequest | None
    progress: Progress | None
    outlook: Outlook | None
    steps: list[str]
    commands: list[Command]
    deadlines: list[tuple[str, datetime]]
    fleet: Fleet | None
    felt: list[Described]
    blocked_for: str
    events: list[Event]
    audit: list[AuditEntry]
    audit_fault: str
    figures: list[Described]
    certificate: list[Described]
    failed: list[str]
    features: list[str]
    evidence: str
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
    kind = status.kind if status else report.kind if report else ""
    history = status.history if status else report.history if report else []
    phase = status.phase if status else view.phase
    guide = guide_of(kind, {phase, *(entry.phase for entry in history)})
    data = data_of(view, guide)
    name = BATCH if guide is not None and guide is guides().get(BATCH) else kind
    progress = None if _is_still(status) else data.progress
    models = KINDS[kind].models if kind in KINDS and name != BATCH else {}
    figures = described(data.figures, models.get("figure"), zeros=False)
    file = printable_json((report or view).model_dump_json(indent=2)) if view.ended else ""
    glass = guide.steps_in(data.phase) if guide and not view.ended else None
    return Screen(
        workflow_id=view.workflow_id,
        kind=name,
        cluster=status.cluster if status else report.cluster if report else "",
        target=status.target if status else "",
        started_by=status.started_by if status else report.started_by if report else "",
        started=min([view.started, *(entry.started for entry in history[:1])]),
        closed=view.closed,
        ended=view.ended,
        headline=headline(view, guide, data, now),
        alarms=status.alarms if status else [],
        silence=view.silence,
        phases=_phases(history, data._replace(progress=progress), guide, now, ended=view.ended),
        line_each=guide.line_each if guide else "",
        blocks=guide.blocks if guide else "",
        back=_back(status, guide.rollback if guide else (), now) if status and not view.ended else None,
        guide=guide,
        sides=sides_of(name, data),
        verdict=verdict(data),
        old_side=old_side(name, data),
        waiting=status.waiting if status and not view.ended else None,
        request=status.request if status and not view.ended else None,
        progress=progress,
        outlook=None if view.ended else view.outlook,
        steps=[] if view.ended else [_step(step.name, step.attempt, step.last_failure) for step in view.steps],
        commands=_commands(view),
        deadlines=sorted(status.deadlines.items(), key=lambda item: item[1]) if status and not view.ended else [],
        fleet=_fleet(view, name, data),
        felt=[figure for figure in figures if figure.name in FELT],
        blocked_for="" if view.ended else _blocked_for(history, guide, data, now),
        events=events_of(history, status.notes if status else report.notes if report else []),
        audit=report.audit if report else [],
        audit_fault=fault_of(report.audit) if report else "",
        figures=[figure for figure in figures if figure.name not in FELT],
        certificate=described(data.certificate, models.get("certificate")) if data.certificate else [],
        failed=failed_lines(report.failed_items if report else status.failed_items if status else []),
        features=[f"{use.feature}: {'accepted' if use.accepted else use.outcome}" for use in report.features]
        if report
        else [],
        evidence=f"pulsar-migrate evidence {shlex.quote(view.workflow_id)} --to FOLDER"
        if view.ended and name != BATCH
        else "",
        glass=glass,
        glass_steps=glass.of(shlex.quote(view.workflow_id)) if glass else (),
        file=file,
        digest=sha256(file.encode()).hexdigest() if file else "",
        now=now,
    )


def _is_still(status: Status | None) -> bool:
    """Return whether nothing is being done, so that the last progress says nothing about now."""
    if status is None:
        return True
    return status.request is not None or (status.waiting is not None and status.waiting.kind not in _PERIODIC)


def headline(view: View, guide: Guide | None, data: MigrationData, now: datetime) -> Headline:
    """Return the large sentence and what it means."""
    status, phase = view.status, data.phase
    if view.ended:
        return _ending(view)
    if status is None:
        return _plain(Tone.SILENT, f"No worker answers. The last known phase is {phase or 'unknown'}.")
    back = guide is not None and phase in guide.rollback
    if request := status.request:
        return _plain(Tone.ASKS, f"{phase}: {request.by} asks for {request.verb}; another person must approve it.")
    waiting = status.waiting
    if waiting and waiting.action:
        cost = _cutover_cost(guide, data) if waiting.kind is WaitKind.HOLD else ""
        return _plain(Tone.ASKS, f"{phase} waits for you: {waiting.action.rstrip('.')}.{cost}")
    if waiting and waiting.kind is WaitKind.STOP_SWITCH:
        return _plain(Tone.WAITS, f"{phase}: the stop switch is on: {waiting.why.rstrip('.')}.")
    if waiting and waiting.kind not in _PERIODIC:
        return _plain(Tone.WAITS, f"{phase} waits for {waiting.why.rstrip('.')}.")
    tone = Tone.BACK if back else Tone.RUNS
    progress = _progress(data.progress)
    if progress:
        return Headline(tone, f"{phase}: {progress}.", f"{phase} runs.")
    if waiting and waiting.kind is WaitKind.WINDOW:
        return _window(phase, waiting, now)
    entry = status.history[-1] if status.history else None
    if entry and entry.ended:
        return _plain(tone, f"{phase} is {entry.outcome}; the next phase starts.")
    doing = "is rolling back" if back else "runs"
    since = f" since {_TIME.format(round(entry.seconds(now)))}" if entry else ""
    blocked = f"; {guide.blocks}" if guide and phase in guide.blocked else ""
    return Headline(tone, f"{phase} {doing}{since}{blocked}.", f"{phase} {doing}{blocked}.")


def _ending(view: View) -> Headline:
    if view.report:
        return _plain(*_end(view.report.outcome, view.report.summary))
    if view.failure:
        return _plain(Tone.DANGER, f"Failed: {view.failure.message}")
    return _plain(Tone.DANGER, f"Ended from outside: {view.execution.lower()}.")


def _cutover_cost(guide: Guide | None, data: MigrationData) -> str:
    """Return how long clients would wait in a cut-over, as PRECHECK estimated it; empty if it did not."""
    estimates = [estimate_of(data, name) for name in _ESTIMATES]
    seconds = next((estimate for estimate in estimates if estimate is not None), None)
    if guide is None or seconds is None:
        return ""
    return f" Then {guide.blocks} for about {_TIME.format(seconds)}."


def _plain(tone: Tone, text: str) -> Headline:
    text = one_line(text)
    return Headline(tone, text, text)


def _window(phase: str, waiting: Waiting, now: datetime) -> Headline:
    text = f"{phase}: {waiting.why}"
    if waiting.until is None:
        return _plain(Tone.WAITS, f"{text}.")
    seconds = round((waiting.until - now).total_seconds())
    end = f", {_TIME.format(seconds)} left" if seconds > 0 else ", ends now"
    return Headline(Tone.WAITS, f"{text}{end}.", f"{text} until {format_value(waiting.until)}.")


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
        case Outcome.REHEARSED:
            return Tone.DONE, f"Rehearsal. {text}."
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
    end = f", {_TIME.format(round(progress.eta_seconds))} left" if progress.eta_seconds is not None else ""
    return f"{share}{end}"


def _phases(
    history: Sequence[PhaseEntry], data: MigrationData, guide: Guide | None, now: datetime, *, ended: bool
) -> list[PhaseBox]:
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
                state=_state(entry, passed=index < reached or undone or ended),
                undo=undo.value,
                time=_TIME.format(whole_seconds(entry.seconds(now))) if entry else "",
                line=guide is not None and name == guide.line,
                blocked=guide is not None and name in guide.blocked,
                share=_share(data.progress) if name == data.phase else None,
                note=entry.note if entry else "",
            )
        )
    return boxes


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


_POSSIBLE = {
    Undo.FREE: "Yes, free of cost.",
    Undo.METADATA: "Yes, metadata are changed back.",
    Undo.COPY_BACK: "Yes, new data are copied back.",
    Undo.NONE: "Yes, but not everything comes back.",
}
_IMPOSSIBLE = {
    Undo.FREE: "Not now.",
    Undo.METADATA: "Not now.",
    Undo.COPY_BACK: "Only by a migration back.",
    Undo.NONE: "No.",
}


def _back(status: Status, rollback: Sequence[str], now: datetime) -> Back:
    possible = Verb.ROLLBACK in status.legal_verbs
    window = status.deadlines.get("window")
    until = ""
    if possible and window:
        seconds = round((window - now).total_seconds())
        until = f"until {format_value(window)}" + (f", in {_TIME.format(seconds)}" if seconds > 0 else "")
    answer = (_POSSIBLE if possible else _IMPOSSIBLE)[status.undo]
    if status.phase in rollback:
        answer = "It is rolling back."
    return Back(possible, status.undo, answer, status.undo_cost, until)


def _commands(view: View) -> list[Command]:
    status = view.status
    if status is None or view.ended:
        return []
    quoted = shlex.quote(view.workflow_id)
    first = (Verb.APPROVE, Verb.REJECT) if status.request else status.waiting.ends_on if status.waiting else ()
    enders = [verb for name in first for verb in status.legal_verbs if verb == name]
    verbs = [*enders, *(verb for verb in status.legal_verbs if verb not in enders)]
    commands = [
        Command(
            verb.value, f"pulsar-migrate {verb} {quoted}{_asked(verb, status)} --reason 'WHY'", _effect(verb, status)
        )
        for verb in verbs
    ]
    if "window" in status.deadlines:
        commands.append(Command("window", f"pulsar-migrate window {quoted} 2h", "Move the end of the window."))
    return commands


def _asked(verb: Verb, status: Status) -> str:
    """Return the option that binds an approval to the request that is shown."""
    request = status.request if verb is Verb.APPROVE else None
    return f" --asked '{format_value(request.since)}'" if request else ""


def _effect(verb: Verb, status: Status) -> str:
    if verb is Verb.APPROVE and status.request:
        return f"As another person than {status.request.by}: {status.request.effect}"
    if verb is Verb.PROCEED and status.waiting:
        return _PROCEED.get(status.waiting.kind, VERB_HELP[verb])
    return status.undo_cost if verb is Verb.ROLLBACK else VERB_HELP[verb]


def _step(name: str, attempt: int, failure: str) -> str:
    last = f"; the last attempt failed: {failure}" if failure else ""
    return f"{name}, attempt {attempt}{last}"


def _fleet(view: View, kind: str, data: MigrationData) -> Fleet | None:
    """Return the squares of items that move in waves; None where there are none."""
    if kind not in {"blue-green", "scalable-namespace"}:
        return None
    sides = sides_of(kind, data)
    if sides is None or (data.progress is None and not view.ended and not sides.new):
        return None
    failures = view.report.failed_items if view.report else view.status.failed_items if view.status else []
    names = [str(item) for failed in failures for item in failed.items]
    failed = sum(each.count for each in failures)
    parts = [_batch(child, view.workflow_id) for child in view.children]
    running = min(view.children_count, sides.total)
    done = min(sides.new, sides.total)
    counts = {"done": done, "failed": failed, "running": running}
    counts["waiting"] = max(0, sides.total - sum(counts.values()))
    each = max(1, -(-sides.total // SQUARES))
    squares: list[Square] = []
    for state, count in counts.items():
        squares += [_square(state, index, names, parts) for index in range(-(-count // each))]
    words = [f"{count:,} {state}" for state, count in counts.items() if count]
    more = view.children_count - len(parts)
    return Fleet(sides.unit, squares, each, ", ".join(words), parts, more, _stopped(view), _change_of_waves(view))


def _stopped(view: View) -> str:
    """Return why the stop switch holds a fleet or a part of it; empty if it does not."""
    for each in () if view.ended else (view, *view.children):
        if each.status and each.status.waiting and each.status.waiting.kind is WaitKind.STOP_SWITCH:
            return each.status.waiting.why
    return ""


def _change_of_waves(view: View) -> Event | None:
    notes = view.status.notes if view.status else view.report.notes if view.report else []
    changes = (event for event in map(event_of, reversed(notes)) if event.text.startswith(CHANGE_NOTE))
    return next(changes, None)


def _square(state: str, index: int, failed: Sequence[str], parts: Sequence[Part]) -> Square:
    if state == "failed" and index < len(failed):
        return Square(state, failed[index], "")
    if state == "running" and index < len(parts):
        batch = parts[index]
        return Square(state, f"{batch.name}: {batch.phase}, {batch.state}", batch.workflow_id)
    return Square(state, state, "")


def _batch(child: View, parent: str) -> Part:
    status = child.status
    state = child.silence or child.execution.lower()
    if status:
        state = f"waits for {status.waiting.why}" if status.waiting else "runs"
        state = str(status.progress) if status.progress and not status.waiting else state
    name = child.workflow_id.removeprefix(f"{parent}/")
    return Part(child.workflow_id, name, status.phase if status else child.phase, state)


def _blocked_for(history: Sequence[PhaseEntry], guide: Guide | None, data: MigrationData, now: datetime) -> str:
    """Return how long clients have waited until now; empty if they do not wait."""
    if guide is None:
        return ""
    since = data.facts.get(guide.blocked_since)
    if isinstance(since, str):
        started = datetime.fromisoformat(since)
    elif history and history[-1].phase in guide.blocked and not guide.blocked_since:
        started = next(entry.started for entry in history if entry.phase in guide.blocked)
    else:
        return ""
    # The clock of this machine may differ from those of the servers.
    return f"{guide.blocks} since {_TIME.format(max(0, round((now - started).total_seconds())))}"
