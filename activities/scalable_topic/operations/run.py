"""One operation on all its topics: a failed topic does not stop the others, and a retry checks all topics again."""

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
    false_leader,
    local,
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

_RETRY_TIMEOUT = 90.0
"""Seconds to wait for a new leader: the session of a dead broker lasts 30 s by default."""
_LEADER_RETRY_TIMEOUT = 20.0
"""Seconds after which a recorded leader that denies its role will not accept it any more."""
_PAUSE = 1.0
_TOPICS = "/topics"


@step(OperationTask, name="check_operation", reads_only=True)
def check(task: OperationTask) -> OperationCheck:
    """Check the cluster and count the topics; in a dry run, preview the operation. Write nothing (PRECHECK).

    An operation that changes topics is also compared with the features in use, without those of single topics.
    """
    if unusable := task.unusable_credentials():
        return OperationCheck(blockers=tuple(unusable))
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
    result = OperationCheck(
        blockers=tuple(findings.blockers), warnings=tuple(findings.warnings), topics=len(names), plan=plan
    )
    return task.covered(result, FeatureCensus(task.input.cluster), _namespaces(names)) if task.input.changes else result


@step(OperationTask, needs_open_run=True)
def operate(task: OperationTask) -> OperationOutcome:
    """Run the operation on each topic; hold the cluster if the operation changes something (OPERATE).

    Raises:
        ClaimHeld: another kind of migration holds the cluster.
        StoreError: the metadata store does not answer, or a newer attempt has begun.
    """
    if not task.input.changes:
        with open_cas_reader(task.input.store, task.cluster.stores) as store:
            return _each(task, _selected(task, store), lambda name: _previewed(task, store, name))
    with task.cluster.store() as store:
        # Listed before the cluster is claimed: the policies of their namespaces may need to be overridden.
        names = _selected(task, store)
        namespaces = _namespaces(names)
        # The operation may have been held for days since PRECHECK.
        # mutant: coverage/operations-are-not-compared-again
        require_covered(task.input, lambda census: task.cluster.survey(census, namespaces))
        copies = task.input.operation is Operation.COPY
        notes = take(task, namespaces if copies else ()).notes
        outcome = _each(task, names, lambda name: _done(task, store, name))
    return outcome.model_copy(update={"notes": notes})


@step(OperationTask, name="complete_operation")
def complete(task: OperationTask) -> Released:
    """Restore overridden policies, delete the records, and release the claim (COMPLETE and ROLLBACK)."""
    return release_cluster(task)


# Inside ---------------------------------------------------------------------------------------------------------------


def _selected(task: OperationTask, store: CasReader) -> list[TopicName]:
    """Return all topics that the input names, and those with a record that match a pattern, ordered by name."""
    input = task.input
    names = {topic for topic in input.topics if not input.is_pattern(topic)}
    patterns = [topic for topic in input.topics if input.is_pattern(topic)]
    if patterns:
        namespaces = [name for tenant in task.admin.tenants.names() for name in task.admin.namespaces.names(tenant)]
        by_namespace = task.each(namespaces, lambda namespace: _recorded(store, namespace))
        recorded = (name for topics in by_namespace for name in topics)
        names |= {name for name in recorded if any(matches(name, pattern) for pattern in patterns)}
    return [TopicName.parse(name) for name in sorted(names)]


def _recorded(store: CasReader, namespace: str) -> list[str]:
    """Return `tenant/namespace/topic` of all topics of a namespace with a record, which may be empty or broken."""
    # As brokers name nodes: see `TopicName.scalable_path`.
    return [f"{namespace}/{unquote_plus(topic)}" for topic in store.children(f"{_TOPICS}/{namespace}")]


def _namespaces(names: Sequence[TopicName]) -> list[str]:
    return sorted({name.namespace_path for name in names})


def _each(
    task: OperationTask, names: Sequence[TopicName], work: Callable[[TopicName], TopicOutcome]
) -> OperationOutcome:
    done = itertools.count(1)
    task.context.progress(ProgressTask.OPERATE, ProgressUnit.TOPICS, 0, len(names))

    def process(name: TopicName) -> TopicOutcome:
        task.context.check()
        began = time.monotonic()
        outcome = work(name)
        task.context.progress(ProgressTask.OPERATE, ProgressUnit.TOPICS, next(done), len(names))
        return outcome.model_copy(update={"seconds": outcome.seconds or round(time.monotonic() - began, 3)})

    if task.input.operation is Operation.COPY:
        # Each copy uses all Spark executors.
        return OperationOutcome.of(map_sequential(names, process))
    return OperationOutcome.of(task.each(names, process))


def _previewed(task: OperationTask, store: CasReader, name: TopicName) -> TopicOutcome:
    view = TopicView(task, store, name)
    return _judged(view, lambda: VERBS[task.input.operation].preview(view))


def _done(task: OperationTask, store: CasStore, name: TopicName) -> TopicOutcome:
    guard = task.operation_guard(store, name)
    record = guard.take()
    if record.outcome is not None:
        # An earlier attempt has done it; its choice must not be made again.
        return record.outcome
    editor = TopicEditor(task, store, name, guard)
    act = VERBS[task.input.operation].act
    assert act is not None, "only what changes something is carried out"
    began = time.monotonic()
    outcome = _judged(editor, lambda: _with_retries(editor, lambda: act(editor)))
    unrestored = list(restore_auto_scale(store, guard, name))
    description = "; ".join([outcome.description, *unrestored])
    outcome = outcome.model_copy(update={"description": description, "seconds": round(time.monotonic() - began, 3)})
    if outcome.verdict is not Verdict.FAILED:
        guard.note(outcome=outcome)
    return outcome


def _judged(view: TopicView, work: Callable[[], TopicOutcome]) -> TopicOutcome:
    """Return the outcome of a topic; an error that concerns this topic only becomes its outcome.

    Raises:
        StoreError: the metadata store does not answer, or another attempt is in charge, which concerns all topics.
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


def _with_retries(editor: TopicEditor, work: Callable[[], ResultT]) -> ResultT:
    """Retry for a limited time: brokers die, and others take over."""
    began = time.monotonic()
    while True:
        try:
            done = work()
        except (AdminUnreachable, StoreContention) as error:
            timeout = _LEADER_RETRY_TIMEOUT if _says_no_leader(error) else _RETRY_TIMEOUT
            if time.monotonic() > began + timeout:
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
        return false_leader(controller_of(view.store, view.name) or error.server)
    return str(error)
