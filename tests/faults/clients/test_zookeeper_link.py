"""A bulk scan of ZooKeeper over a link that is cut."""

from __future__ import annotations

from collections.abc import Iterator

from clients.store import Record, Unreadable
from clients.stores import Access, open_reader
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import StackSpec
from tests.faults.metadata_store.fault_round import BALLAST, put_ballast
from tests.support.clients.proxy import Proxy
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack


def test_a_scan_continues_after_a_cut(make_stack: MakeStack) -> None:
    """A scan continues and finds every record after a short cut of the link, whatever batch it follows."""
    stack = make_stack(StackSpec(zookeepers=1))
    put_ballast(stack)
    wanted = {path.encode() for path in stores.read_zookeeper(stack.zk_url) if path.startswith(BALLAST)}
    with Proxy(stack["zookeeper-1"].address) as link:
        batches = len(list(_scan(link)))
        assert batches > 5
        for number in range(batches):
            paths: set[bytes] = set()
            for index, batch in enumerate(_scan(link)):
                if index == number:
                    link.cut()
                    link.heal()
                paths |= {record.path for record in batch}
            assert paths >= wanted, number


def _scan(link: Proxy) -> Iterator[list[Record | Unreadable]]:
    with open_reader(parse_store_url(f"zk:{link.address}"), Access()) as reader:
        for partition in reader.partitions(1):
            yield from reader.scan(partition)
