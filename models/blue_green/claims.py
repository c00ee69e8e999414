"""Records that a blue-green migration writes to the metadata stores before it changes anything."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from models.base import Result
from models.lifecycle.claim import CLAIM, Changed, Claim, PacedClaim


class ChangedSetting(Changed):
    """A dynamic setting of brokers that was changed.

    Attributes:
        overridden: the previous value was set dynamically, and not in the brokers' file.
    """

    overridden: bool = False


class BlueGreenClaim(Claim):
    """Claim of a migration on blue's and on green's metadata store.

    Attributes:
        settings: dynamic settings of blue's brokers that were changed, by name.
        cluster_flag: on green: the flag of the whole cluster was moved to its namespaces.
        clearing: on blue: COMPLETE takes green's remaining flags off.
    """

    settings: dict[str, ChangedSetting] = Field(default_factory=dict[str, ChangedSetting])
    cluster_flag: bool = False
    clearing: bool = False


class Stage(StrEnum):
    """Progress of a namespace."""

    CLAIMED = "claimed"
    THROTTLED = "throttled"
    FLIPPED = "flipped"
    MOVED = "moved"
    RETURNED = "returned"
    KEPT = "kept"
    """It has moved, and its run has ended. A cleanup or a failback restores one of its policies later."""


FLIPPED = frozenset({Stage.FLIPPED, Stage.MOVED})
"""Stages in which the clients of a namespace are redirected to green, by this run or by an earlier one."""


class NamespaceClaim(PacedClaim):
    """Record of one namespace in blue's metadata store. An attempt takes it before it changes the namespace.

    Attributes:
        stage: progress.
        publish_rate: change of the publish rate, while the migration overrides it.
        inactive_topics: change of the policy on inactive topics, while brokers must keep such topics.
        auto_creation: change of the policy on auto-creation, while clients must not create topics.
        flipped_in: run that set the flag. Other runs do not take that flag off.
        copied_in: run whose copies idle subscriptions continue with; empty for none.
        skipped: DRAIN has skipped copied messages on blue, or was about to: subscriptions must continue on green.
        deleting: LOAD deletes topics of green; requests of a lost attempt may still arrive.
        green_flag: green redirected the namespace's clients before this migration, and this migration stopped that.
    """

    stage: Stage = Stage.CLAIMED
    publish_rate: Changed | None = None
    inactive_topics: Changed | None = None
    auto_creation: Changed | None = None
    flipped_in: str = ""
    copied_in: str = ""
    skipped: bool = False
    deleting: bool = False
    green_flag: bool = False


def is_held_back(record: NamespaceClaim) -> bool:
    """Return whether the migration limits what clients of a namespace may send, or keeps them from creating topics."""
    return record.publish_rate is not None or record.auto_creation is not None


class TopicClients(Result):
    """Clients of a topic.

    Attributes:
        producers: names of connected producers; a producer keeps its name when it connects to another cluster.
        consumers: number of consumers of each durable subscription.
        properties: properties of subscriptions that have some.
        replicated: subscriptions whose position is replicated to other clusters.
        ended: ledger and entry of the termination, while a rollback removes it.
        late: subscriptions that came after LOAD, so that an application is about to use them.
        missed: subscriptions that lack messages, because blue deleted them and then took more messages (#26680).
    """

    producers: tuple[str, ...] = ()
    consumers: dict[str, int] = Field(default_factory=dict[str, int])
    properties: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]])
    replicated: tuple[str, ...] = ()
    ended: tuple[int, int] | None = None
    late: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Number of producers and consumers."""
        return len(self.producers) + sum(self.consumers.values())


def clients_record(namespace: str, node: str) -> str:
    """Return the path of a node with clients that a namespace had before its flip."""
    return f"{CLAIM}-clients/{namespace}/{node}"
