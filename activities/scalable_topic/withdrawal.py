"""A regular topic that was about to become scalable stays regular, for good.

A broker may have the request still: one that was frozen reads it when it goes on, minutes later, and carries it out.
Neither the worker nor a clock can say when that is over. So no broker is let create the scalable topic any more, until
each broker that may have the request has answered another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from activities.lifecycle.parallel import Each, in_turn
from activities.scalable_topic.children import HARMLESS, TopicGuard, take_back_children
from clients.cas.store import CasStore
from clients.errors import StoreContention
from clients.pulsar.admin.late_requests import ChangeOrNever
from clients.pulsar.creation_locks import allow_creation, bar_creation, bar_path, creation_locks
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import read_scalable
from models.lifecycle.failures import some
from models.scalable_topic.claims import Stage

_LONGEST_CREATION, _LOOK_EVERY = 60.0, 0.5
# A request that finds the name barred has a node for a moment.
_LONGEST_REFUSAL = 5.0


@dataclass(frozen=True)
class Withdrawal:
    """Takes back what was made for topics that stay regular. Each step can be done again.

    Attributes:
        store: the brokers' metadata store.
        guard: of the topic; asked before each change.
        change: makes what must not arrive late.
        each: does the same for many items.
        settle: waits until nothing arrives any more that a worker may have sent.
        answering: returns names of the brokers that answer now.
        pause: waits for seconds.
    """

    store: CasStore
    guard: TopicGuard
    change: ChangeOrNever
    each: Each = in_turn
    settle: Callable[[], object] = lambda: None
    answering: Callable[[], Collection[str]] = frozenset
    pause: Callable[[float], object] = time.sleep

    def run(self, name: TopicName, partitions: int, asked: Collection[str]) -> str | None:
        """See that a topic stays regular, and delete what was made for it.

        Args:
            name: the regular topic.
            partitions: of it; 0 for none.
            asked: names of brokers that may still have a request to make it scalable.

        Returns:
            what is left, in words, empty for nothing; None where it is scalable, or its record cannot be read.
        """
        if not self.stop(name, partitions):
            return None
        before = self.answering() if asked else ()
        self.settle()
        return self.end(name, partitions, asked, before)

    def stop(self, name: TopicName, partitions: int) -> bool:
        """Keep brokers from making a topic scalable, and delete its segments; False where it is too late for that.

        The segments go at once: their load reports make a record without a value, with which no client finds the
        regular topic either (5.0.1).

        Raises:
            StoreContention: a broker has been about to make it scalable for long.
        """
        bar_creation(self.store, name, self.guard.require)
        self._await_creation(name, _LONGEST_CREATION)
        if read_scalable(self.store, name).state not in HARMLESS:
            allow_creation(self.store, name, self.guard.check)
            return False
        self._take_back(name, partitions)
        return True

    def end(self, name: TopicName, partitions: int, asked: Collection[str], answered: Collection[str]) -> str:
        """Delete what came late, and let brokers create such a topic again if none has the request any more.

        Args:
            name: the regular topic.
            partitions: of it; 0 for none.
            asked: names of brokers that may still have the request.
            answered: those that answered before nothing arrived any more that a worker may have sent.

        Returns:
            what is left, in words; empty for nothing.

        Raises:
            StoreContention: a broker is about to make it scalable; see `stop`.
        """
        self._await_creation(name, _LONGEST_REFUSAL)
        self._take_back(name, partitions)
        silent = {*asked} - ({*answered} & {*self.answering()}) if asked else set[str]()
        self.guard.note(stage=Stage.CLAIMED, asked=tuple(sorted(silent)))
        if silent:
            return self.left(name, silent)
        allow_creation(self.store, name, self.guard.check)
        return ""

    def left(self, name: TopicName, silent: Collection[str]) -> str:
        """Return what is left where brokers do not answer that may have the request, in words."""
        return (
            f"{some(sorted(silent))} may still have a request to make {name} scalable, and does not answer. The node "
            f"{bar_path(name)} in the metadata store keeps brokers from carrying it out, and from creating "
            f"topic://{name.local_path}; the next start of a migration or operation removes it once they answer. If "
            "such a broker is gone for good, delete the node"
        )

    def _take_back(self, name: TopicName, partitions: int) -> None:
        take_back_children(self.change, self.store, name, partitions, self.guard, each=self.each)

    def _await_creation(self, name: TopicName, limit: float) -> None:
        """Wait for requests that were under way; their nodes go with them, or with their broker's session."""
        end = time.monotonic() + limit
        while locks := creation_locks(self.store, name):
            if time.monotonic() > end:
                raise StoreContention(
                    f"a broker has been making {name} scalable for {limit:g} s: it holds {some(locks)} in the metadata "
                    "store. Restart brokers until the node is gone, or delete it if no broker has it as its own, and "
                    "start a migration or operation again"
                )
            self.pause(_LOOK_EVERY)
