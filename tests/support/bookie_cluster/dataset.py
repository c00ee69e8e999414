"""Every kind of data that a Pulsar cluster keeps on its bookies, with a record of each message and position.

with Dataset(toolchain, folder) as dataset:
    dataset.fill(service_url, admin_url)
    ...                                      # whatever must not lose anything
    dataset.verify(service_url, admin_url)    # as often as wanted: it acknowledges nothing
    dataset.add_more(service_url, admin_url)
    dataset.verify(service_url, admin_url)

The stack's brokers need `broker_settings=DATASET_SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.bookie_cluster.dataset_kinds import Compacted, Delayed, Partitioned, Plain, Transactional, Typed
from tests.support.bookie_cluster.dataset_log import Broker
from tests.support.clients.java_messages import JavaMessages

DATASET_SETTINGS = {
    "transactionCoordinatorEnabled": "true",
    # Topics of many ledgers out of few messages.
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    # Every acknowledgement is persisted when it comes, so that positions are exact after a crash too.
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    # Without this a message may come some moments before its time.
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    # Indexes of delayed messages go to ledgers of their own.
    "delayedDeliveryTrackerFactoryClassName": "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "delayedDeliveryMinIndexCountPerBucket": "10",
    "delayedDeliveryMaxIndexesPerBucketSnapshotSegment": "10",
}


class Kind(Protocol):
    """One kind of data."""

    def fill(self, broker: Broker) -> None:
        """Make it."""
        ...

    def add_more(self, broker: Broker) -> None:
        """Write and acknowledge more; may be repeated."""
        ...

    def verify(self, broker: Broker) -> None:
        """Raise AssertionError for anything that is missing, too much, changed, or acknowledged otherwise."""
        ...


class Dataset:
    """The data, and what they must look like; as a context it owns a Java client.

    Args:
        tools: Java and the jars.
        folder: where the Java client's log goes.
        delay: seconds after which delayed messages are due.
        kinds: what to keep; everything by default.
    """

    def __init__(
        self, tools: Toolchain, folder: Path, *, delay: float = 12.0, kinds: Sequence[Kind] | None = None
    ) -> None:
        self._java = JavaMessages(tools, folder)
        self._kinds: Sequence[Kind] = kinds or [
            Plain(),
            Partitioned(),
            Typed("AVRO"),
            Typed("JSON"),
            Transactional(),
            Compacted(),
            Delayed(delay),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._java.__exit__(kind, error, trace)

    def fill(self, service_url: str, admin_url: str) -> None:
        """Fill an empty cluster.

        Args:
            service_url: `pulsar://host:port[,...]`.
            admin_url: `http://host:port` of a broker.
        """
        self._each(service_url, admin_url, lambda kind, broker: kind.fill(broker))

    def add_more(self, service_url: str, admin_url: str) -> None:
        """Write more of everything, acknowledge more, and make what was not there: topics, schema versions."""
        self._each(service_url, admin_url, lambda kind, broker: kind.add_more(broker))

    def verify(self, service_url: str, admin_url: str) -> None:
        """Compare the cluster with the account; it changes nothing, so it may be repeated.

        Raises:
            AssertionError: names topic and subscription of what is missing, too much, changed or out of order.
        """
        self._each(service_url, admin_url, lambda kind, broker: kind.verify(broker))

    def _each(self, service_url: str, admin_url: str, action: Callable[[Kind, Broker], None]) -> None:
        with ExitStack() as opened:
            client, admin = quiet_client(service_url), StackAdmin(admin_url, timeout=60)
            opened.callback(client.close)
            opened.callback(admin.close)
            broker = Broker(service_url, client, admin, self._java)
            for kind in self._kinds:
                action(kind, broker)
