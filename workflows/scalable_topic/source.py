"""Topics of a namespace migration, listed for its waves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from activities.scalable_topic import hold_release, topic_list
from models.lifecycle.failures import FailedItem, summarize
from models.lifecycle.input import OF_PARENT
from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.lifecycle.waves import BatchResult, Page, failed_item
from models.scalable_topic.input import ScalableTopicInput, TopicOptions
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from models.scalable_topic.state import NamespaceState, TopicCertificate, TopicFigures
from workflows.lifecycle.activity_calls import Call
from workflows.lifecycle.migration import Migration
from workflows.lifecycle.parent import this_run
from workflows.lifecycle.wave_protocols import ChildSpec

_TOPIC = "ScalableTopicMigration"


class TopicSource:
    """Regular topics in their order, with the result of each.

    Args:
        migration: the migration; its activities list the topics, and its figures are updated.
    """

    def __init__(self, migration: Migration[ScalableNamespaceInput, NamespaceState]) -> None:
        self._migration = migration

    async def next_items(self, cursor: str, limit: int) -> Page:
        """Return the topics after a cursor."""
        call = Call("Which topics come next?")
        return await self._migration.activities.ask(topic_list.page, call, cursor, limit)

    async def record_failures(self, failures: Sequence[FailedItem], offset: int) -> str:
        """List topics that stayed regular or have faults."""
        call = Call("List topics that stayed regular or have faults")
        return await self._migration.activities.ask(hold_release.record_failures, call, list(failures), offset)

    def child(self, items: tuple[str, ...]) -> ChildSpec:
        """Return the child workflow that makes a topic scalable; its parent holds claim and policies."""
        (name,) = items
        shared: dict[str, Any] = self._migration.input.model_dump(include=set(TopicOptions.model_fields))
        own = {
            **OF_PARENT,
            "change_windows": self._migration.calendar.windows,
            "topic": f"persistent://{name}",
            "parent": this_run(self._migration.state),
        }
        return ChildSpec(_TOPIC, ScalableTopicInput.model_validate(shared | own), name)

    async def on_terminated(self, items: tuple[str, ...], why: str) -> None:
        """Report a topic whose workflow was terminated during its steps; COMPLETE completes the topic."""
        self._migration.board.note(f"{', '.join(items)}: terminated during its steps ({why}); COMPLETE completes it")

    def read_result(self, items: tuple[str, ...], result: Any) -> BatchResult:
        """Return the result of a topic and add its figures to those of the migration."""
        report = Report[TopicFigures, TopicCertificate].model_validate(result)
        if report.outcome is Outcome.ROLLED_BACK:
            return BatchResult(failed=tuple(failed_item(name, report.summary) for name in items))
        self._add(report.figures, report.certificate)
        faults = report.certificate.faults or ()
        return BatchResult(failed=tuple(failed_item(name, summarize(faults)) for name in items) if faults else ())

    def _add(self, figures: TopicFigures, certificate: TopicCertificate) -> None:
        whole, proof = self._migration.state.figures, self._migration.state.certificate
        whole.update(
            longest_flip_seconds=max(whole.longest_flip_seconds or 0.0, figures.flip_seconds or 0.0),
            longest_drain_seconds=max(whole.longest_drain_seconds or 0.0, figures.drain_seconds or 0.0),
        )
        proof.update(
            segments=(proof.segments or 0) + (certificate.segments or 0),
            subscriptions=(proof.subscriptions or 0) + (certificate.subscriptions or 0),
            undrained=(proof.undrained or 0) + bool(certificate.undrained),
            faults=(proof.faults or 0) + len(certificate.faults or ()),
        )
