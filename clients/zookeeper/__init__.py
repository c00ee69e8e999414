"""ZooKeeper: bulk reading and writing, a feed of changes, and coordination."""

from clients.zookeeper.connection import Connection
from clients.zookeeper.coordination import (
    Check,
    Coordination,
    CoordinationReader,
    Create,
    Delete,
    Set,
    four_letter,
)
from clients.zookeeper.counters import keeps_count, target_count
from clients.zookeeper.reader import ZooKeeperReader
from clients.zookeeper.watch import ChangeFeed
from clients.zookeeper.wire import Stat
from clients.zookeeper.writer import ZooKeeperWriter

__all__ = [
    "ChangeFeed",
    "Check",
    "Connection",
    "Coordination",
    "CoordinationReader",
    "Create",
    "Delete",
    "Set",
    "Stat",
    "ZooKeeperReader",
    "ZooKeeperWriter",
    "four_letter",
    "keeps_count",
    "target_count",
]
