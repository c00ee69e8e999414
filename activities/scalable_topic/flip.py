"""FLIP of one topic: repeat the checks of PRECHECK, and make the topic scalable (PIP-475, "Migration")."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from activities.lifecycle.precheck import Findings
from activities.lifecycle.step import step
from activities.pulsar.namespace_guard import RecordGuard
from activities.pulsar.topic_inventory import TopicInventory
from activities.scalable_topic.checks.cluster import check_auto_scale_again
from activities.scalable_topic.checks.topic import check_regular_topic
from activities.scalable_topic.cluster import require_held
from activities.scalable_topic.context import TopicTask
from activities.scalable_topic.conversion.name_taken import foreign_layout, name_taken_problem, remove_empty
from activities.scalable_topic.conversion.segments import HARMLESS
from activities.scalable_topic.conversion.topic import conversion_of
from activities.scalable_topic.regular_topic import ordered_types, waits_for, with_types
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.errors import AdminConflict
from clients.pulsar.records.scalable_topics import RecordState, clear_empty, read_scalable
from models.scalable_topic.claims import Stage, TopicClaim
from models.scalable_topic.results import FlipAnswer


@step(TopicTask)
def flip(task: TopicTask, ordered: Mapping[str, str] = MappingProxyType({})) -> FlipAnswer:
    """Make the topic scalable if the checks still pass; complete it if an earlier attempt started.

    Args:
        task: an attempt of the migration.
        ordered: types of ordered subscriptions, as they were seen so far.

    Raises:
        StoreConflict: a policy was changed, the record is empty or broken, or a check of PRECHECK fails now.
    """
    with task.cluster.store() as store:
        guard = task.topic_guard(store, task.name)
        claim = guard.take()
        _free_name(task, store, guard)
        regular = read_scalable(store, task.name).layout is None
        if regular and claim.stage is Stage.FLIPPED:
            # The claim says FLIPPED, but the topic is regular: it was deleted and created again. Without a reset its
            # subscriptions would count as deleted by their owner.
            claim = guard.note(**claim.of_another)
        require_held(task.namespace_guard(store, task.name.namespace_path))
        topic = with_types(task.read_topic(task.name, described=regular), {**claim.types, **ordered})
        if (types := {**topic.known_types, **ordered_types(topic)}) != claim.types:
            # A run that continues may find that brokers have forgotten them.
            claim = guard.note(types=types)
        conversion = conversion_of(task, store, guard, task.name, claim, stage=claim.stage)
        if regular and (waiting := waits_for(topic, force=task.input.force)) and conversion.try_withdraw():
            return FlipAnswer(refused=waiting)
        # mutant: scalable-topic/after-a-lost-attempt-nothing-is-checked-again
        if regular and (unready := _unready(task, store, topic)) and conversion.try_withdraw():
            raise StoreConflict(unready)
        try:
            return FlipAnswer(flipped=conversion.run(topic, force=task.input.force))
        except AdminConflict as error:
            if read_scalable(store, task.name).state not in HARMLESS:
                raise
            return FlipAnswer(refused=str(error))


def _free_name(task: TopicTask, store: CasStore, guard: RecordGuard[TopicClaim]) -> None:
    """Require that no scalable topic of other origin has the name; remove an empty one if the input allows it."""
    scalable = read_scalable(store, task.name)
    if scalable.state is RecordState.EMPTY and task.input.replace_empty:
        # An attempt that removed such a topic may have ended before the record stayed away.
        clear_empty(store, task.name, guard.check)
    if scalable.layout is None:
        return
    topic = task.read_topic(task.name)
    if foreign_layout(store, scalable, topic) is None:
        return
    if not task.input.replace_empty:
        raise StoreConflict(name_taken_problem(task.name))
    remove_empty(task.admin, store, task.cluster.change_or_never, topic, guard, pause=task.context.pause)


def _unready(task: TopicTask, store: CasStore, topic: TopicInventory) -> str:
    """Return why the topic cannot become scalable any more: PRECHECK may be long ago."""
    findings = Findings()
    check_regular_topic(task.admin, store, findings, topic, task.input, workflow_id=task.attempt.workflow_id)
    check_auto_scale_again(task, task.input.auto_scale, findings, topic.name.namespace_path)
    return "; ".join(map(str, findings.blockers))
