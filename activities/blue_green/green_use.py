"""Whether green is used already, so that what was done for a batch cannot be taken back without a loss."""

from __future__ import annotations

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.subscription_copy import what_is_there
from activities.blue_green.topics import look_at
from clients.cas.store import CasReader
from clients.pulsar.names import TopicName
from clients.pulsar.wire.position import EARLIEST
from spark.blue_green.positions import count_after
from spark.blue_green.tasks import read_record


def used_on_green(task: AnyBlueGreenTask, store: CasReader, topic: TopicName) -> bool:
    """Whether green has clients of a topic, or messages that are no copies of blue's.

    Args:
        task: the step.
        store: blue's metadata store, which has the records of copies.
        topic: which.
    """
    stats = look_at(task.green, topic).stats
    if stats is None:
        return False
    consumers = any(sub.consumers for sub in stats.client_subscriptions.values())
    known = read_record(store, topic)
    copied = known.record.positions.last if known else None
    _, there = what_is_there(task.green, topic)
    return bool(stats.publishers) or consumers or count_after(there, copied[1] if copied else EARLIEST) > 0
