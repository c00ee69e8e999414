"""What a blue-green migration notes in the metadata stores before it changes anything."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from models.base import Result
from models.lifecycle.claim import CLAIM, Changed, Claim, PacedClaim


class ChangedSetting(Changed):
    """A dynamic setting of brokers that was changed.

    Attributes:
        overridden: whether the value of before had been set while brokers ran, and not in their file.
    """

    overridden: bool = False


class BlueGreenClaim(Claim):
    """The claim of a migration on blue's and on green's metadata store.

    Attributes:
        settings: dynamic settings of blue's brokers that were changed, by name.
        cluster_flag: on green: the flag of the whole cluster was handed to its namespaces.
    """

    settings: dict[str, ChangedSetting] = Field(default_factory=dict[str, ChangedSetting])
    cluster_flag: bool = False


class Stage(StrEnum):
    """How far a namespace is."""

    CLAIMED = "claimed"
    THROTTLED = "throttled"
    FLIPPED = "flipped"
    MOVED = "moved"
    RETURNED = "returned"
    KEPT = "kept"
    """Its run has ended; it has moved, and has a policy that is put back when its topics go, or its clients return."""


FLIPPED = frozenset({Stage.FLIPPED, Stage.MOVED})
"""Stages in which the clients of a namespace are sent to green, by this run or by one that was ended during it."""


class NamespaceClaim(PacedClaim):
    """The record of one namespace in blue's metadata store; who changes the namespace takes it first.

    Attributes:
        stage: how far it is.
        publish_rate: the namespace's limit on what may be sent, while it is changed.
        inactive_topics: what became of topics that nobody uses, while brokers must keep them.
        auto_creation: whether clients create topics, while they must not.
        flipped_in: the run that set its flag; what another one has sent away is not taken back.
        copied_in: the run with whose copies idle subscriptions continue; empty where they do not.
        green_flag: green sent the namespace's clients away, and does so no more.
    """

    stage: Stage = Stage.CLAIMED
    publish_rate: Changed | None = None
    inactive_topics: Changed | None = None
    auto_creation: Changed | None = None
    flipped_in: str = ""
    copied_in: str = ""
    green_flag: bool = False


def is_held_back(record: NamespaceClaim) -> bool:
    """Return whether clients of a namespace are held back: from sending, or from creating topics."""
    return record.publish_rate is not None or record.auto_creation is not None


class TopicClients(Result):
    """Who uses a topic.

    Attributes:
        producers: names of those that are connected; they keep them when they connect elsewhere.
        consumers: how many each durable subscription has.
        properties: what users have noted of subscriptions, where there is something.
        replicated: subscriptions whose position is carried to other clusters.
        ended: ledger and entry at which it was terminated, while that is taken back.
        missed: subscriptions that lack messages which blue took after it had removed them (#26680).
    """

    producers: tuple[str, ...] = ()
    consumers: dict[str, int] = Field(default_factory=dict[str, int])
    properties: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]])
    replicated: tuple[str, ...] = ()
    ended: tuple[int, int] | None = None
    missed: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Return how many producers and consumers these are."""
        return len(self.producers) + sum(self.consumers.values())


def clients_record(namespace: str, part: str) -> str:
    """Return the path of a part of the list of clients that a namespace had before its flip."""
    return f"{CLAIM}-clients/{namespace}/{part}"
