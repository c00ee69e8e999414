"""Context of an operation on one topic: a view or an editor of it, and requests to its leader (PIP-468)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from activities.lifecycle.parallel import map_sequential
from activities.pulsar.namespace_guard import RecordGuard
from activities.pulsar.registrations import BROKERS
from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.subscriptions import KnownSubscription, give_cursors, known_subscriptions, record_all
from clients.cas.store import CasReader, CasStore
from clients.errors import StoreConflict, StoreNotFound, StoreUnsupported
from clients.pulsar.admin.brokers import registered_urls
from clients.pulsar.admin.client import PulsarAdmin, PulsarAdminReader
from clients.pulsar.admin.late_requests import change_or_never
from clients.pulsar.names import TopicName, encoded, recordable
from clients.pulsar.records.scalable_topics import RecordState, controller_of, read_scalable, unreadable
from models.scalable_topic.claims import OperatedTopic
from models.scalable_topic.operation_input import KIND, ScalableOperationInput
from models.scalable_topic.operation_state import TopicOutcome, Verdict
from models.segments.layout import SegmentLayout
from models.segments.segment import SegmentInfo

NOT_LEADER = "This broker is not the leader"
"""Answer of a broker that does not lead a topic, even if the metadata store says that it does."""


class OperationTask(ClusterTask[ScalableOperationInput]):
    """One attempt's view of an operation."""

    kind = KIND
    input_type = ScalableOperationInput


class Secured(NamedTuple):
    """Numbers of repaired subscriptions and segments.

    Attributes:
        registered: number of subscriptions that got a record.
        healed: number of segments that were missing or lacked a cursor.
    """

    registered: int
    healed: int


@dataclass(frozen=True)
class TopicView:
    """Read access to one topic.

    Attributes:
        task: of the operation.
        store: the brokers' metadata store.
        name: of the topic.
    """

    task: OperationTask
    store: CasReader
    name: TopicName

    @property
    def reader(self) -> PulsarAdminReader:
        """The cluster's admin interface, for reading."""
        return self.task.admin

    def layout(self) -> SegmentLayout:
        """Return the current layout.

        Raises:
            StoreNotFound: the topic is not scalable.
            StoreConflict: its record is empty or broken, or the topic is being deleted.
            StoreUnsupported: brokers would confuse it with another topic.
        """
        if encoded(self.name.topic) != self.name.topic:
            raise StoreUnsupported("brokers do not decode its name in requests for scalable topics")
        record = read_scalable(self.store, self.name)
        match record.state:
            case RecordState.ABSENT:
                raise StoreNotFound("there is no scalable topic of this name")
            case RecordState.EMPTY:
                raise StoreConflict("its record has no value, and brokers fail; clear_empty removes it")
            case RecordState.BROKEN:
                raise StoreConflict(unreadable(self.name, record.state))
            case RecordState.GOOD:
                assert record.layout is not None
                if record.layout.deleted:
                    raise StoreConflict("brokers are deleting it; delete it again if that does not end")
                return record.layout

    def known_subscriptions(self, layout: SegmentLayout) -> list[KnownSubscription]:
        """Return all subscriptions that have a record, or a cursor on a segment of the layout."""
        return known_subscriptions(self.task, self.store, self.name, layout)

    def outcome(self, verdict: Verdict, description: str = "", **more: int) -> TopicOutcome:
        """Return the result for the topic."""
        return TopicOutcome(topic=local(self.name), verdict=verdict, description=description, **more)


@dataclass(frozen=True)
class TopicEditor(TopicView):
    """Write access to one topic.

    Attributes:
        store: the brokers' metadata store.
        guard: the right to change the topic; checked before each change.
    """

    store: CasStore
    guard: RecordGuard[OperatedTopic]

    @property
    def admin(self) -> PulsarAdmin:
        """The cluster's admin interface."""
        return self.task.admin

    def noted(self) -> OperatedTopic:
        """Return the record of this operation on the topic.

        Raises:
            ClaimHeld, Superseded: another migration or attempt owns the record.
        """
        return self.guard.require()

    def secure(self, segments: Iterable[SegmentInfo]) -> Secured:
        """Give every subscription a record and a cursor on each of the given segments; create missing segments.

        Raises:
            StoreUnsupported: brokers cannot record a subscription.
            StoreConflict: something is still missing although a broker reported success.
        """
        subscriptions, check = self.known_subscriptions(self.layout()), self.guard.check
        names = [subscription.name for subscription in subscriptions]
        # First: brokers fail to record a subscription while a segment is missing.
        healed = give_cursors(self.admin, self.store, self.name, segments, names, fence=check, each=map_sequential)
        if odd := [repr(name) for name in names if not recordable(name)]:
            raise StoreUnsupported(
                f"brokers cannot record subscriptions of these names: {', '.join(odd)}; move their consumers to a "
                "subscription of another name, and delete them"
            )
        kinds = {subscription.name: subscription.kind for subscription in subscriptions}
        record_all(self.admin, self.store, self.name, kinds, fence=check, each=map_sequential)
        return Secured(sum(not subscription.recorded for subscription in subscriptions), healed)


def local(name: TopicName) -> str:
    """Return `tenant/namespace/topic`."""
    return f"{name.namespace_path}/{name.topic}"


def ask_leader(editor: TopicEditor, change: Callable[[PulsarAdmin], object]) -> None:
    """Send a change to the leader of the topic; without a leader, to any broker, which then becomes the leader.

    The request arrives soon after the guard was checked, or never.

    Raises:
        AdminError: the request failed or was not answered; the change may still have been made.
    """
    # Ask the leader directly: another broker would forward the request.
    urls = leader_urls(editor) or list(editor.task.input.admin_urls)
    change_or_never(
        editor.task.runtime.admin_of(editor.task.input.credentials),
        urls,
        connect=lambda admin: admin.scalable_topics.names(editor.name.namespace_path),
        fence=editor.guard.require,
        change=change,
    )


def leader_urls(view: TopicView) -> list[str]:
    """Return the addresses of the leader of the topic; empty if it has none, or the leader is gone."""
    leader = controller_of(view.store, view.name)
    node = view.store.get(f"{BROKERS.decode()}/{leader}") if leader else None
    access = view.task.runtime.admin_of(view.task.input.credentials)
    return registered_urls(node.value, access) if node else []


def false_leader(broker: str) -> str:
    """Return the message for a topic whose recorded leader denies that it leads."""
    return (
        f"the metadata store says that {broker} leads it, and that broker refuses to: it took part in an election "
        f"once, and does not know that it has won. Restart {broker}, and do not ask brokers for the statistics of "
        "scalable topics, which causes this"
    )
