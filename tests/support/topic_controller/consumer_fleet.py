"""Many consumers of one ordered subscription that come and go, and what each must read then."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from activities.topic_controller.names import layout_topic, segment_topic
from activities.topic_controller.records import record_path
from clients.cas.store import CasStore, Node
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.errors import AdminNotFound
from clients.pulsar.names import TopicName
from models.segments.layout import SegmentLayout
from pulsar_devstack.background import BackgroundThread
from pulsar_devstack.servers.stack import Stack
from tests.support.topic_controller.change_script import AssignedIds, assignment_faults, differences, shared
from tests.support.topic_controller.connections import drop_connections
from tests.support.topic_controller.controllers import Controller
from tests.support.topic_controller.traffic import ORDERED, Traffic
from tests.support.waiting import wait_for

MAX_CONSUMERS = 50
LIMIT = 120.0

_MOST_SEGMENTS = 12
# The status names twenty of them.
_MOST_AWAY = 15
_LONG, _SHORT = timedelta(hours=1), timedelta(seconds=2)
_AT_ONCE = 8
_LOOK_EVERY = 0.3


class Act(StrEnum):
    """Events: of consumers, of their connections, or of segments."""

    JOIN = "join"
    SPLIT = "split"
    DIE = "die"
    RETURN = "return"
    MERGE = "merge"
    LEAVE = "leave"
    DROP = "drop"
    LAPSE = "lapse"


_DISTURBS_NO_OTHER = (Act.DIE, Act.RETURN, Act.DROP)


class Step(NamedTuple):
    """One thing that happens.

    Attributes:
        act: what.
        many: to how many consumers.
        seed: chooses consumers or segments.
    """

    act: Act
    many: int
    seed: int


class ConsumerFleet(BackgroundThread):
    """The consumers of the ordered subscription of a topic, and its segments; a context that looks all the time.

    Args:
        controller: of the topic.
        traffic: whose consumers these are.
        stack: the cluster.
        admin: of it.
        store: its metadata.

    Attributes:
        here: consumers that are connected.
        away: those that died, and have their session still.
        most: how many sessions there were at once.
        dropped: how many connections were.
        looks: checks of the assignments that consumers received.
        undisturbed: steps after which no consumer may have received a new assignment.
        found: what was wrong at some moment.
    """

    def __init__(
        self, controller: Controller, traffic: Traffic, stack: Stack, *, admin: PulsarAdmin, store: CasStore
    ) -> None:
        super().__init__("look at what consumers read", _LOOK_EVERY)
        self._controller, self._traffic, self._stack = controller, traffic, stack
        self._admin, self._store = admin, store
        self._base = f"{record_path(controller.name)}/subscriptions/{ORDERED}/consumers"
        self._epochs: dict[str, int] = {}
        self._still = False
        self.here, self.away = {*traffic.streams}, set[str]()
        self.most = self.dropped = self.looks = 0
        self.undisturbed = Counter[str]()
        self.found: list[str] = []
        controller.set_grace(_LONG)

    def work(self) -> None:
        """Check all the time that no segment has two consumers."""
        for _ in self.ticks():
            self.found += shared(self._controller.assignments(ORDERED))
            self.looks += 1

    def take(self, step: Step) -> None:
        """Execute a step, and wait until everything is as it must be after it."""
        dice = random.Random(step.seed)
        still, before = self._still, self._notes()
        match step.act:
            case Act.JOIN:
                free = {f"c{number:02}" for number in range(1, MAX_CONSUMERS)} - self.here - self.away
                self._join(_some(free, step.many, dice))
            case Act.RETURN:
                if not self.away:
                    self._die(_some(self.here, min(step.many, _MOST_AWAY), dice))
                    self.check()
                self._join(_some(self.away, step.many, dice))
            case Act.LEAVE:
                self._leave(_some(self.here, min(step.many, len(self.here) - 1), dice))
            case Act.DIE:
                self._die(_some(self.here, min(step.many, _MOST_AWAY - len(self.away)), dice))
            case Act.DROP:
                self.dropped += drop_connections(self._stack, dice)
            case Act.LAPSE:
                self._lapse()
            case Act.SPLIT | Act.MERGE:
                self._change(step.act, dice)
        self.most = max(self.most, len(self.here | self.away))
        self.check()
        if still and step.act in _DISTURBS_NO_OTHER:
            # Also their versions: no note was written again.
            assert self._notes() == before, step
            self.undisturbed[step.act] += 1

    def check(self) -> None:
        """Wait until each consumer has what it must have, for all who know of it."""
        faults: list[str] = []

        def rests() -> bool:
            # A split or a merge may break connections, which come back: what was correct once is not checked again.
            faults[:] = self._faults()
            return not faults

        with suppress(AssertionError):
            wait_for("rest", rests, LIMIT)
        assert faults == []
        assert self.found == []

    def gather(self) -> None:
        """Bring all consumers back, at least one."""
        self._join({*self.away} if self.here | self.away else {"c0"})
        self.check()

    # What happens -----------------------------------------------------------------------------------------------------

    def _join(self, names: Collection[str]) -> None:
        _each(self._traffic.join, names)
        self.here |= {*names}
        self.away -= {*names}

    def _leave(self, names: Collection[str]) -> None:
        _each(self._traffic.leave, names)
        self._go(names)

    def _die(self, names: Collection[str]) -> None:
        _each(self._traffic.die, names)
        self._go(names)
        self.away |= {*names}

    def _go(self, names: Collection[str]) -> None:
        self.here -= {*names}
        for name in names:
            self._epochs.pop(name, None)

    def _lapse(self) -> None:
        self._controller.set_grace(_SHORT)
        self._controller.until(lambda status: not status.away, LIMIT)
        self._controller.set_grace(_LONG)
        self.away.clear()

    def _change(self, act: Act, dice: random.Random) -> None:
        active = self._controller.layout().active
        merges = len(active) > 1 and (act is Act.MERGE or len(active) >= _MOST_SEGMENTS)
        if merges:
            first, second = dice.choice(list(pairwise(active)))
            self._controller.merge(first.segment_id, second.segment_id)
        else:
            self._controller.split(dice.choice(active).segment_id)

    # What must hold -------------------------------------------------------------------------------------------------

    def _notes(self) -> dict[str, Node]:
        notes = {name: self._store.get(f"{self._base}/{name}") for name in self._store.children(self._base)}
        return {name: node for name, node in notes.items() if node is not None}

    def _faults(self) -> list[str]:
        """Return the faults of now, of one kind: the next kind is checked when the previous ones have no faults."""
        layout, assigned = self._controller.layout(), self._controller.assignments(ORDERED)
        self._still = not any(layout.segments[number].sealed for ids in assigned.values() for number in ids)
        return (
            assignment_faults(layout, assigned, self.here, self.away)
            or self._faults_of_sessions(assigned)
            or self._faults_of_consumers(assigned)
            or self._faults_at_brokers(layout, assigned)
        )

    def _faults_of_sessions(self, assigned: AssignedIds) -> list[str]:
        noted = {name: tuple(json.loads(node.value)["segments"]) for name, node in self._notes().items()}
        away = {consumer.partition("/")[2] for consumer in self._controller.status().away}
        return differences("the metadata store has", noted, assigned) + [
            f"{name} is {'missed' if name in away else 'not missed'}" for name in sorted(away ^ self.away)
        ]

    def _faults_of_consumers(self, assigned: AssignedIds) -> list[str]:
        faults: list[str] = []
        has: AssignedIds = {}
        for name in self.here:
            assignment = self._traffic.streams[name].assignment
            has[name] = tuple(segment.id for segment in assignment.segments)
            if assignment.epoch < self._epochs.get(name, -1):
                faults.append(f"{name} went from epoch {self._epochs[name]} back to {assignment.epoch}")
            self._epochs[name] = assignment.epoch
        return faults + differences("consumers have", has, {name: assigned[name] for name in self.here})

    def _faults_at_brokers(self, layout: SegmentLayout, assigned: AssignedIds) -> list[str]:
        topic, faults = self._controller.name, list[str]()
        for segment in layout.segments.values():
            attached = self._clients(segment_topic(topic, segment.descriptor), ORDERED) if segment.active else []
            expected = [name for name in self.here if segment.active and segment.segment_id in assigned[name]]
            if attached != expected:
                faults.append(f"consumers of {segment.descriptor} are {attached}, and must be {expected}")
        prefix = f"{ORDERED}/"
        readers = {
            client.removeprefix(prefix) for client in self._clients(layout_topic(topic)) if client.startswith(prefix)
        }
        return faults + [
            f"{name} is {'connected' if name in readers else 'not connected'}" for name in sorted(readers ^ self.here)
        ]

    def _clients(self, topic: TopicName, subscription: str | None = None) -> list[str]:
        try:
            there = self._admin.topics.stats(topic).subscriptions
        except AdminNotFound:
            return []
        chosen = there.values() if subscription is None else [there[subscription]] if subscription in there else []
        return [client.consumer_name for stats in chosen for client in stats.consumers]


def _some(names: Iterable[str], many: int, dice: random.Random) -> list[str]:
    there = sorted(names)
    return dice.sample(there, max(0, min(many, len(there))))


def _each(do: Callable[[str], None], names: Collection[str]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(do, names))
