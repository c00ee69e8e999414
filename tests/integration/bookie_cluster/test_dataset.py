"""The account of all kinds of data: it holds over restarts and a crash, and tells what is missing."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.bookie_cluster.dataset import DATASET_SETTINGS, Dataset
from tests.support.clients.java_ledgers import JavaLedgers
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

DELAY = 12.0


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two bookies and a broker."""
    return make_stack(StackSpec(zookeepers=1, bookies=2, brokers=1, broker_settings=DATASET_SETTINGS))


@pytest.fixture(scope="module")
def dataset(stack: Stack, toolchain: Toolchain) -> Generator[Dataset]:
    """A dataset with every kind of data on the stack."""
    with Dataset(toolchain, stack.folder, delay=DELAY) as made:
        made.fill(stack.broker_url, stack.admin_urls[0])
        yield made


def test_filled_data_is_complete(stack: Stack, dataset: Dataset) -> None:
    """The account fits the cluster right after it was filled, and again after a broker's restart."""
    dataset.verify(stack.broker_url, stack.admin_urls[0])
    stack["broker-1"].restart()
    dataset.verify(stack.broker_url, stack.admin_urls[0])


def test_more_is_there_after_a_crash(stack: Stack, dataset: Dataset) -> None:
    """Added data and every position are exact after the broker was killed."""
    dataset.add_more(stack.broker_url, stack.admin_urls[0])
    stack["broker-1"].kill()
    stack["broker-1"].start()
    dataset.verify(stack.broker_url, stack.admin_urls[0])


def test_a_lost_ledger_is_noticed(stack: Stack, dataset: Dataset, toolchain: Toolchain) -> None:
    """When a ledger of a topic is gone, the account names topic and messages."""
    admin = StackAdmin(stack.admin_urls[0])
    ledgers = admin.ledgers("later-0")
    admin.close()
    stack["broker-1"].stop()
    with JavaLedgers(toolchain, stack.folder) as java:
        java.delete(stack.bookkeeper_uri, [min(ledgers)])
    stack.reconfigure("broker-1", autoSkipNonRecoverableData="true")
    stack["broker-1"].start()
    with pytest.raises(AssertionError, match="later-0"):
        dataset.verify(stack.broker_url, stack.admin_urls[0])
