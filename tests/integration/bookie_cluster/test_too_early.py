"""Brokers that are started on the target before the switch directs them there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.phases import Phase
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.bookie_cluster.broker_operator import BrokerOperator
from tests.support.bookie_cluster.numbered_messages import read_numbers, send_numbers
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import MakeStack

LIMIT = 240.0
TOPIC = "early"
BROKERS = ("broker-1", "broker-2")
CLUSTER: dict[str, Any] = {
    "cluster": "early",
    "broker_settings": {
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        # No subscription keeps the messages.
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    },
}

pytestmark = pytest.mark.exhaustive


def test_what_was_written_to_the_target_too_early_is_copied_back(
    make_stack: MakeStack, environment: Environment
) -> None:
    """A rollback loses nothing that brokers acknowledged on the target before they were directed there."""
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=2, **CLUSTER))
    send_numbers(stack, TOPIC, range(30))
    run = environment.operator.start(_plan(stack))
    run.wait_until_it_waits_for(WaitKind.BROKERS_STOP, LIMIT)
    for name in BROKERS:
        stack.use_bookies(stack.second_bookkeeper_uri, [name])
    send_numbers(stack, TOPIC, range(30, 90))
    run.signal(Verb.ROLLBACK, "brokers were started too early")
    with BrokerOperator(stack, run):
        report = run.result(LIMIT)
    assert (report.outcome, report.failed_items) == (Outcome.ROLLED_BACK, []), report.summary
    assert report.certificate["copied_back"] > 0
    _nothing_is_lost(stack, BROKERS)


def test_what_was_written_to_the_target_during_a_hold_is_copied_back(
    make_stack: MakeStack, environment: Environment
) -> None:
    """A round notices the broker, and the rollback that follows loses nothing that it acknowledged."""
    stack = make_stack(StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=1, **CLUSTER))
    send_numbers(stack, TOPIC, range(30))
    run = environment.operator.start(_plan(stack, hold=True))
    run.wait_until_it_waits_for(WaitKind.HOLD, LIMIT, phase=Phase.BUILD)
    with BrokerOperator(stack, run, slow=True) as operator:
        broker = stack[BROKERS[0]]
        # The topic's last ledger stays open in the source.
        broker.kill()
        stack.use_bookies(stack.second_bookkeeper_uri, BROKERS[:1])
        broker.start()
        send_numbers(stack, TOPIC, range(30, 90))
        run.wait_until_it_waits_for(WaitKind.BROKERS_STOP, LIMIT)
        operator.obey()
        failure = run.failure(LIMIT)
    assert failure.type == FailureKind.CONFLICT
    assert "started on b too early" in failure.message
    _nothing_is_lost(stack, BROKERS[:1])


def _nothing_is_lost(stack: Stack, brokers: Iterable[str]) -> None:
    for numbers in (range(90, 115), range(115, 120)):
        send_numbers(stack, TOPIC, numbers)
        # A topic that is loaded again has only what its list of ledgers names.
        for broker in brokers:
            stack[broker].restart()
    assert read_numbers(stack, TOPIC) == [*range(120)]


def _plan(stack: Stack, *, hold: bool = False) -> BookieClusterInput:
    return BookieClusterInput.model_validate(
        {
            "hold_before_cutover": hold,
            "cluster": "early",
            "metadata_url": stack.zk_url,
            "source": {"name": "a", "metadataServiceUri": stack.bookkeeper_uri},
            "target": {"name": "b", "metadataServiceUri": stack.second_bookkeeper_uri},
            "routing": "restart",
            "advance_ids": True,
        }
    )
