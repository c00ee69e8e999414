"""Keep green's subscriptions from expiring while their consumers still read on blue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from activities.blue_green.context import AnyBlueGreenTask, NamespaceGuard
from activities.blue_green.topics import check_topic
from activities.pulsar.topic_inventory import TopicInventory
from clients.errors import StoreContention, StoreNotFound, StoreUnsupported
from clients.pulsar.names import TopicName
from clients.pulsar.wire.access import NOTE
from clients.pulsar.wire.connection import BrokerConnection
from clients.pulsar.wire.lookup import connect
from clients.pulsar.wire.subscription import TYPES, RawSubscription

# Type of a subscription that had no consumer since its topic was loaded.
_NEVER_USED = "None"


def restart_expiration(task: AnyBlueGreenTask, guard: NamespaceGuard, topics: Sequence[TopicInventory]) -> None:
    """Start the expiration of green's subscriptions again, which may have been created long ago.

    Brokers count it from when a consumer last connected or left, or from the creation (4.0, 4.2, 5.0). So a consumer
    connects to each subscription without consumers, and leaves without having taken a message. Brokers store that time
    when they unload the topic: if one is killed before, the time that was stored before counts.

    Args:
        task: the step.
        guard: guard of the namespace.
        topics: topics of blue whose subscriptions expire on green. Only what blue has now counts: brokers delete a
            drained subscription of a terminated topic, and clients may use the one on green.

    Raises:
        StoreError: a broker of green failed, or refuses.
    """
    green, access = task.input.green, task.runtime.wire_of(task.input.green.credentials)
    notes = {NOTE: task.attempt.workflow_id or "-"}

    def restart(partition: tuple[TopicInventory, TopicName]) -> None:
        of_blue, topic = partition
        is_unloadable = topic in [blocked.name for blocked in of_blue.unloadable]
        stats = check_topic(task.green.admin, topic).stats
        # Brokers never delete replicated ones, nor ones with consumers.
        unused = [
            name
            for name, sub in (stats.durable_subscriptions if stats else {}).items()
            if not sub.consumers and not sub.is_replicated  # mutant: blue-green/consumer-next-to-those-of-clients
            # mutant: blue-green/subscriptions-that-are-drained
            if is_unloadable or ((used := of_blue.subscriptions.get(name)) and topic in used.parts)
        ]
        if not unused:
            return
        with connect(green.brokers_url, topic, access) as connection:
            for name in unused:
                used = of_blue.subscriptions.get(name)
                # A consumer that connected since has restarted the expiration itself; or a client has deleted it.
                with suppress(StoreContention, StoreNotFound):
                    connect_once(connection, topic, name, used.type if used else _NEVER_USED)

    def connect_once(connection: BrokerConnection, topic: TopicName, name: str, type_on_blue: str) -> None:
        # Brokers do not know the type of one without consumers since the topic was loaded, and refuse some types.
        types = [kind for kind in dict.fromkeys((type_on_blue, *TYPES)) if kind != _NEVER_USED]
        for kind in types:
            guard.require()  # mutant: blue-green/late-attempt-connects-to-subscriptions
            try:
                RawSubscription(connection, topic, name, kind, notes=notes).close()
            except StoreUnsupported:
                if kind == types[-1]:
                    raise
            else:
                return

    task.each([(topic, partition.name) for topic in topics for partition in topic.parts], restart)
