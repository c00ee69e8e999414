"""One operation over all its topics: one that fails does not keep others from it, and a retry goes over all again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import unquote_plus

from activities.lifecycle.parallel import map_sequential
from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.coverage import require_covered
from activities.pulsar.feature_census import FeatureCensus
from activities.scalable_topic.auto_scale import restore_auto_scale
from activities.scalable_topic.checks.cluster import check_servers
from activities.scalable_topic.cluster import release_cluster, take
from activities.scalable_topic.operations.context import (
    NOT_LEADER,
    OperationTask,
    TopicEditor,
    TopicView,
    local,
    zombie,
)
from activities.scalable_topic.operations.verbs import VERBS
from clients.cas.store import CasReader, CasStore
from clients.errors import (
    ClaimHeld,
    RetryableError,
    StoreContention,
    StoreError,
    StoreUnreachable,
    Superseded,
)
from clients.pulsar.admin.errors import AdminError, AdminServerError, AdminUnreachable
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import controller_of
from clients.stores import open_cas_reader
from models.lifecycle.patterns import matches
from models.lifecycle.status import ProgressTask, ProgressUnit, WaitKind
from models.scalable_topic.operation_input import Operation
from models.scalable_topic.operation_state import OperationCheck, OperationOutcome, TopicOutcome, Verdict
from models.scalable_topic.results import Released
from models.segments.segment import LayoutError

ResultT = TypeVar("ResultT")

_PATIENCE = 90.0
"""Seconds that a topic may take to have a leader again: a session of a broker that died lasts 30 s by default."""
_PATIENCE_WITH_LEADER = 20.0
"""Seconds after which a leader that says that it is none does not learn it any more."""
_PAUSE = 1.0
_TOPICS = "/topics"


@step(OperationTask, name="check_operation", reads_only=True)
def check(task: OperationTask) -> OperationCheck:
    """PRECHECK: check the cluster, and count topics; in a dry run, what would be done with each. Writes nothing.

    What the cluster uses matters to what changes topics; of them it looks at the namespaces, and at no topic.
    """
    findings = Findings()
    check_servers(task, findings)
    if findings.blockers:
        return OperationCheck(blockers=tuple(findings.blockers), warnings=tuple(findings.warnings))
    with open_cas_reader(task.input.store, task.cluster.stores) as store:
        names = _selected(task, store)
        if not names:
            findings.block(
                "NO_TOPICS",
                f"no scalable topic of {task.input.cluster} fits {task.input.target_name}",
                "correct the patterns: tenant/namespace/topic, with * for any part of a name",
            )
        plan = _each(task, names, lambda name: _previewed(task, store, name)) if task.input.dry_run else None
    found = OperationCheck(
        blockers=tuple(findings.blockers), warnings=tuple(findings.warnings), topics=len(names), plan=plan
    )
    return task.covered(found, FeatureCensus(task.input.cluster), _namespaces(names)) if task.input.changes else found


@step(OperationTask, needs_open_run=True)
def operate(task: OperationTask) -> OperationOutcome:
    """OPERATE: carry the operation out for each topic; what changes something holds the cluster meanwhile.

    Raises:
        ClaimHeld: another kind of migration holds the cluster.
        StoreError: the metadata store does not answer, or a newer attempt has begun.
    """
    if not task.input.changes:
        with open_cas_reader(task.input.store, task.cluster.stores) as store:
            return _each(task, _selected(task, store), lambda name: _previewed(task, store, name))
    with task.cluster.store() as store:
        # Named before the cluster is claimed: policies of their namespaces may have to be held.
        names = _selected(task, store)
        namespaces = _namespaces(names)
        # The operation may have been held for days since PRECHECK.
        # mutant: coverage/operations-are-not-compared-again
        require_covered(task.input, lambda census: task.survey(census, namespaces))
        copies = task.input.operation is Operation.COPY
        notes = take(task, namespaces if copies else ()).kept
        outcome = _each(task, names, lambda name: _done(task, store, name))
    return outcome.model_copy(update={"notes": notes})


@step(OperationTask, name="complete_operation")
def complete(task: OperationTask) -> Released:
    """COMPLETE and ROLLBACK: put held policies of topics back, forget the topics, and give up the claim."""
    return release_cluster(task)


# Inside ---------------------------------------------------------------------------------------------------------------


def _selected(task: OperationTask, store: CasReader) -> list[TopicName]:
    """Return all topics that are named, and those with a record that fit a pattern, in the order of their names."""
    input = task.input
    names = {topic for topic in input.topics if not input.is_pattern(topic)}
    patterns = [topic for topic in input.topics if input.is_pattern(topic)]
    if patterns:
        namespaces = [name for tenant in task.admin.tenants.names() for name in task.admin.namespaces.names(tenant)]
        found = task.each(namespaces, lambda namespace: _recorded(store, namespace))
        recorded = (name for each in found for name in each)
        names |= {name for name in recorded if any(matches(name, pattern) for pattern in patterns)}
    return [TopicName.parse(name) for name in sorted(names)]


def _recorded(store: CasReader, namespace: str) -> list[str]:
    """Return `tenant/namespace/topic` of all topics of a namespace that have a record, however it stands."""
    # As brokers name nodes: see `TopicName.scalable_path`.
    return [f"{namespace}/{unquote_plus(topic)}" for topic in store.children(f"{_TOPICS}/{namespace}")]


def _namespaces(names: Sequence[TopicName]) -> list[str]:
    return sorted({name.namespace_path for name in names})


def _each(
    task: OperationTask, names: Sequence[TopicName], work: Callable[[TopicName], TopicOutcome]
) -> OperationOutcome:
    done = itertools.count(1)
    task.context.progress(ProgressTask.OPERATE, ProgressUnit.TOPICS, 0, len(names))

    def one(name: TopicName) -> TopicOutcome:
        task.context.check()
        began = time.monotonic()
        outcome = work(name)
        task.context.progress(ProgressTask.OPERATE, ProgressUnit.TOPICS, next(done), len(names))
        return outcome.model_copy(update={"seconds": outcome.seconds or round(time.monotonic() - began, 3)})

    if task.input.operation is Operation.COPY:
        # Each copy has all of Spark's executors by itself.
        return OperationOutcome.of(map_sequential(names, one))
    return OperationOutcome.of(task.each(names, one))


def _previewed(task: OperationTask, store: CasReader, name: TopicName) -> TopicOutcome:
    view = TopicView(task, store, name)
    return _judged(view, lambda: VERBS[task.input.operation].preview(view))


def _done(task: OperationTask, store: CasStore, name: TopicName) -> TopicOutcome:
    guard = task.operation_guard(store, name)
    record = guard.take()
    if record.outcome is not None:
        # An attempt before this one has done it; what it chose is not to be chosen again.
        return record.outcome
    editor = TopicEditor(task, store, name, guard)
    act = VERBS[task.input.operation].act
    assert act is not None, "only what changes something is carried out"
    began = time.monotonic()
    outcome = _judged(editor, lambda: _patiently(editor, lambda: act(editor)))
    unrestored = list(restore_auto_scale(store, guard, name))
    description = "; ".join([outcome.description, *unrestored])
    outcome = outcome.model_copy(update={"description": description, "seconds": round(time.monotonic() - began, 3)})
    if outcome.verdict is not Verdict.FAILED:
        guard.note(outcome=outcome)
    return outcome


def _judged(view: TopicView, work: Callable[[], TopicOutcome]) -> TopicOutcome:
    """Return what became of a topic; an error that is its own is its outcome.

    Raises:
        StoreError: the metadata store does not answer, or somebody else is in charge: that concerns all topics.
    """
    try:
        return work()
    except LayoutError as error:
        return view.outcome(Verdict.FAILED, str(error))
    except (ClaimHeld, Superseded):
        raise
    except StoreError as error:
        if isinstance(error, StoreUnreachable) and not isinstance(error, AdminError):
            raise
        return view.outcome(Verdict.FAILED, _explained(view, error))


def _patiently(editor: TopicEditor, work: Callable[[], ResultT]) -> ResultT:
    """Try again for a while: brokers die, and others take over."""
    began = time.monotonic()
    while True:
        try:
            done = work()
        except (AdminUnreachable, StoreContention) as error:
            patience = _PATIENCE_WITH_LEADER if _says_no_leader(error) else _PATIENCE
            if time.monotonic() > began + patience:
                raise
            why = f"brokers to do it for {local(editor.name)}: {error}"
            editor.task.context.waiting_for(WaitKind.RETRY, why)
            editor.task.context.pause(_PAUSE)
        else:
            editor.task.context.clear_waiting()
            return done


def _says_no_leader(error: RetryableError) -> bool:
    return isinstance(error, AdminServerError) and NOT_LEADER in error.reason


def _explained(view: TopicView, error: StoreError) -> str:
    if isinstance(error, AdminServerError) and _says_no_leader(error):
        return zombie(controller_of(view.store, view.name) or error.server)
    return str(error)
