"""A Pulsar cluster with two bookie clusters and the plugin's double, and what its metadata say of attributions."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

from activities.bookie_cluster import registry
from activities.bookie_cluster.attribution import promote
from activities.bookie_cluster.build import build
from activities.bookie_cluster.context import BookieClusterTask
from activities.lifecycle.context import ActivityContext
from clients.closeable import Closeable
from clients.pulsar.attribution import attribution
from clients.pulsar.fields import split
from clients.pulsar.formats_pb2 import SchemaLocator
from clients.pulsar.names import TopicName
from clients.store import Partition, Record, StoreReader, Unreadable
from clients.stores import open_reader
from models.bookie_cluster.input import BookieClusterInput, Direction, Routing
from models.bookie_cluster.results import CopySummary, Promotion
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.stack import Stack
from spark.engine import SparkEngine
from tests.support.bookie_cluster.activities import Steps
from tests.support.bookie_cluster.plugin_double import PluginDouble
from tests.support.metadata_store import stores

OLD, NEW = "old", "new"
_PROPERTIES = 3


class Attributed:
    """A cluster whose brokers are asked through the plugin's double; a context manager.

    Args:
        stack: with bookies, second bookies and brokers, which announce their doubles.
        bootstrap: the cluster of ledgers without a mark; None where new ledgers are not marked, as by real brokers.
    """

    def __init__(self, stack: Stack, bootstrap: str | None = None) -> None:
        self.stack = stack
        self.input = BookieClusterInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": stack.state.spec.cluster,
                "metadata_url": stack.zk_url,
                "source": {"name": OLD, "metadataServiceUri": stack.bookkeeper_uri},
                "target": {"name": NEW, "metadataServiceUri": stack.second_bookkeeper_uri},
                "routing": Routing.ATTRIBUTION,
            }
        )
        self.double = PluginDouble(stack, bootstrap=bootstrap)
        self.zookeeper: Any = None
        self._admins: list[StackAdmin] = []
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            self._begin(resources)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _begin(self, resources: ExitStack) -> None:
        self.zookeeper = resources.enter_context(stores.kazoo(self.stack.zk_url))
        resources.enter_context(self.double)
        self._admins = [resources.enter_context(StackAdmin(url)) for url in self.stack.admin_urls]

    def put_schema(self, topic: str, fields: int) -> None:
        """Store a schema with this many fields through a broker; it may follow one with fewer."""
        parts = [{"name": f"f{number}", "type": ["null", "int"], "default": None} for number in range(fields)]
        definition = json.dumps({"type": "record", "name": "Row", "fields": parts})
        self.admin.schemas.add(TopicName.parse(topic), "AVRO", definition)

    def schemas(self, topic: str) -> list[int]:
        """Return the number of fields of each version of a topic's schema, as a broker reads them."""
        versions = self.admin.schemas.versions(TopicName.parse(topic))
        return [len(json.loads(version.data)["fields"]) for version in versions]

    @property
    def admin(self) -> StackAdmin:
        """The admin interface of any broker."""
        return random.choice(self._admins)

    def crash_brokers(self, act: Callable[[], None] = lambda: None) -> None:
        """Kill all brokers, and start them again."""
        running = [server for server in self.stack if server.kind == "broker"]
        for server in running:
            server.kill()
        act()
        for server in running:
            server.start()

    def locator(self, topic: str) -> bytes:
        """Return the node of a topic's schema."""
        return self.zookeeper.get(f"/schemas/public/default/{topic}")[0]

    def set_node(self, path: str, value: bytes) -> None:
        """Write a node, whatever its version."""
        self.zookeeper.set(path, value)


class Place(Attributed):
    """A registered switch with routing `attribution`, whose steps are called one by one; a context manager.

    Args:
        stack: with bookies, second bookies and brokers, which announce their doubles.
        engine: runs the Spark jobs of steps.
    """

    def __init__(self, stack: Stack, engine: SparkEngine) -> None:
        super().__init__(stack, bootstrap=OLD)
        self.steps = Steps(engine)
        self._runs = itertools.count(1)

    def _begin(self, resources: ExitStack) -> None:
        super()._begin(resources)
        self.steps.run(registry.register, self.input)

    def direct(self, direction: Direction = Direction.FORWARD) -> None:
        """Direct brokers to the target of a direction, in a new run: a run that was rolled back does not continue."""
        # All later steps are of this run: an earlier one has lost the claim.
        self.steps.run_id = f"run-{next(self._runs)}"
        self.steps.run(registry.register, self.input)
        self.steps.run(registry.set_target, self.input, direction)

    def build(self) -> CopySummary:
        """Copy what is closed, and compare it."""
        return self.steps.run(build, self.input, Direction.FORWARD)

    def promote(self, direction: Direction = Direction.FORWARD) -> Promotion:
        """Promote, or set back."""
        return self.steps.run(promote, self.input, direction)


def stamps(locator: bytes) -> list[str | None]:
    """Return the attribution of the newest version, and of each entry of the index."""
    schema = SchemaLocator.FromString(locator)
    return [attribution(entry.position.properties) for entry in (schema.info, *schema.index)]


def ledgers(locator: bytes) -> list[int]:
    """Return the ledgers of a schema's versions, oldest first."""
    return [entry.position.ledgerId for entry in SchemaLocator.FromString(locator).index]


def without_stamps(locator: bytes) -> list[list[list[bytes] | bytes]]:
    """Return the bytes of a schema's node without the properties of its positions: the fields of each entry."""
    return [
        [
            [field_part.raw for field_part in split(field.content) if field_part.number != _PROPERTIES]
            if field.number == 2 and field.content is not None
            else field.raw
            for field in split(entry.content or b"")
        ]
        for entry in split(locator)
    ]


class Meddled(BookieClusterTask):
    """A step's view of its switch, in which a concurrent change happens after each read of a schema's node.

    Attributes:
        act: what they do.
    """

    act: Callable[[], None]

    def broker_store(self) -> StoreReader:
        """Return the brokers' store; `act` is called after each read of schemas."""
        return _Meddled(open_reader(self.input.store, self.access), self.act)


class _Meddled(Closeable):
    def __init__(self, reader: StoreReader, act: Callable[[], None]) -> None:
        self.url = reader.url
        self._reader = reader
        self._act = act

    def partitions(self, wanted: int) -> list[Partition]:
        return self._reader.partitions(wanted)

    def scan(self, partition: Partition) -> Iterator[list[Record | Unreadable]]:
        return self._reader.scan(partition)

    def read(self, paths: Sequence[bytes]) -> list[Record | Unreadable | None]:
        nodes = self._reader.read(paths)
        if any(path.startswith(b"/schemas/") for path in paths):
            self._act()
        return nodes

    def shard_of(self, path: bytes) -> int:
        return self._reader.shard_of(path)

    def children(self, path: bytes) -> list[bytes]:
        return self._reader.children(path)

    def children_of(self, paths: Sequence[bytes]) -> Iterator[bytes]:
        return self._reader.children_of(paths)

    def close(self) -> None:
        self._reader.close()


def promote_against(place: Place, act: Callable[[], None]) -> Promotion:
    """Promote with a concurrent change between each read of a schema and its compare-and-set."""
    plain = place.steps.task(place.input)
    task = Meddled(plain.runtime, plain.execution, plain.attempt, ActivityContext())
    task.act = act
    return promote(task, Direction.FORWARD)
