"""A target that is gone for good while brokers serve there: the rollback does without it, and says what is lost."""

from __future__ import annotations

import pytest

from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.phases import Phase
from models.bookie_cluster.updates import TargetLoss, TargetLossAnswer
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.bookie_cluster.broker_operator import BrokerOperator
from tests.support.bookie_cluster.numbered_messages import read_numbers, send_numbers
from tests.support.clients.proxy import Proxy
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import MakeStack

LIMIT = 240.0
TOPIC = "lost"

pytestmark = pytest.mark.exhaustive


def test_a_target_that_is_lost_permanently(make_stack: MakeStack, environment: Environment) -> None:
    """Its ZooKeeper and its bookie are dead: brokers serve from the source again, with all that was written there."""
    # No subscription keeps the messages.
    settings = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
    stack = make_stack(
        StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=1, cluster="lost", broker_settings=settings)
    )
    server = stack["zookeeper-1"].address
    with Proxy(server) as proxy:
        run = environment.operator.start(_plan(stack, stack.second_bookkeeper_uri.replace(server, proxy.address)))
        send_numbers(stack, TOPIC, range(20))
        with BrokerOperator(stack, run, kill=True):
            run.wait_for_phase(Phase.ROLLBACK_WINDOW, LIMIT)
            send_numbers(stack, TOPIC, range(20, 40))
            stack["second-bookie-1"].kill()
            proxy.cut()
            run.signal(Verb.ROLLBACK, "the machines of b burn")
            waiting = run.wait_until_it_waits_for(WaitKind.BOOKIES, LIMIT).waiting
            assert waiting is not None
            assert "b cannot be read" in waiting.why
            assert "rollback_without_target" in waiting.action
            run.update("rollback_without_target", TargetLoss(cluster="b"), TargetLossAnswer)
            decision = run.wait_until_it_waits_for(WaitKind.DECISION, LIMIT)
            assert any("its data ledger is not in a" in item.reason for item in decision.failed_items[0].items)
            run.steer(Verb.PROCEED)
            report = run.result(LIMIT)
    assert report.outcome is Outcome.ROLLED_BACK, report.summary
    assert report.certificate["rolled_back_without"] == "b"
    send_numbers(stack, TOPIC, range(40, 60))
    assert read_numbers(stack, TOPIC) == [*range(20), *range(40, 60)]


def _plan(stack: Stack, target: str) -> BookieClusterInput:
    return BookieClusterInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": "lost",
            "metadata_url": stack.zk_url,
            "source": {"name": "a", "metadataServiceUri": stack.bookkeeper_uri},
            "target": {"name": "b", "metadataServiceUri": target},
            "routing": "restart",
            "advance_ids": True,
            # The target is reached through a proxy, so its root in the brokers' ZooKeeper belongs to no known cluster.
            "accept": ["path:/second-ledgers"],
        }
    )
