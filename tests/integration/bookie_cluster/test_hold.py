"""A switch that is held before its cut-over while producers continue, and a rollback of much that came since."""

from __future__ import annotations

import importlib
import json
import os
from contextlib import closing
from typing import Any

import pytest

from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.phases import Phase
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.bookie_cluster.broker_operator import BrokerOperator
from tests.support.lifecycle.commands import run_command
from tests.support.lifecycle.environment import Environment
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

# The library has no types.
pulsar: Any = importlib.import_module("pulsar")

MEGABYTES = int(os.environ.get("HELD_MEGABYTES", "64"))
"""What changes while the switch is held; the limit of what is copied without brokers does not depend on it."""
BODY = 100_000
MESSAGES = MEGABYTES * 10
LIMIT = 300.0 + MEGABYTES
TAIL = 2_000_000
# A ledger's last entries, as many as are on their way at once, are confirmed by what is written after them.
ON_THEIR_WAY = 10
MOST = (MESSAGES - ON_THEIR_WAY) * BODY
TOPIC = "held"


@pytest.mark.timeout(2 * int(LIMIT) + 600)
def test_little_is_copied_without_brokers_after_a_hold(make_stack: MakeStack, environment: Environment) -> None:
    """However much is written during a hold or after it, little is copied while brokers are stopped."""
    settings = {
        # Ledgers are closed while more is written, and the last one is large, and open.
        "managedLedgerMaxEntriesPerLedger": "400",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    spec = StackSpec(zookeepers=1, bookies=1, second_bookies=1, brokers=1, cluster="held", broker_settings=settings)
    stack = make_stack(spec)
    _produce(stack, 0, 50)
    run = environment.operator.start(_input(stack))
    run.wait_until_it_waits_for(WaitKind.HOLD, phase=Phase.BUILD)
    before = run.status().figures["build"]["copied_bytes"]

    _produce(stack, 50, 50 + MESSAGES)
    held = run.wait_until(
        "rounds that copy what was written",
        lambda status: status.figures["build"]["copied_bytes"] - before > MOST,
        LIMIT,
    )
    assert held.phase == Phase.BUILD
    assert held.figures["left_bytes"] < TAIL
    checked = _verified(environment)
    assert (checked["committed"], checked["differing"]["count"], checked["compared"] > 0) == (False, 0, True)
    with BrokerOperator(stack, run):
        run.signal(Verb.PROCEED)
        there = run.wait_for_phase(Phase.ROLLBACK_WINDOW, LIMIT).figures
        after = _verified(environment)
        assert after["committed"]
        assert after["equal"] > checked["equal"]
        assert after["equal_bytes"] > MOST
        print({name: there[name] for name in ("build", "catch_up_rounds", "left_bytes", "tail", "pause_seconds")})
        assert there["tail"]["copied_bytes"] < TAIL
        # What was copied before is not compared again either.
        assert there["tail"]["compared_entries"] < 100

        _produce(stack, 50 + MESSAGES, 50 + 2 * MESSAGES)
        run.signal(Verb.ROLLBACK)
        report = run.result(LIMIT)
    back = report.figures
    print({name: back[name] for name in ("rollback_build", "rollback_tail", "rollback_brokers_away_seconds")})
    assert report.outcome is Outcome.ROLLED_BACK
    assert back["rollback_build"]["copied_bytes"] > MOST
    assert back["rollback_tail"]["copied_bytes"] < TAIL
    stack["second-bookie-1"].stop()
    assert _read(stack) == list(range(50 + 2 * MESSAGES))


def _input(stack: Stack) -> BookieClusterInput:
    return BookieClusterInput.model_validate(
        {
            "cluster": "held",
            "metadata_url": stack.zk_url,
            "source": {"name": "a", "metadataServiceUri": stack.bookkeeper_uri},
            "target": {"name": "b", "metadataServiceUri": stack.second_bookkeeper_uri},
            "routing": "restart",
            "advance_ids": True,
            "hold_before_cutover": True,
        }
    )


def _verified(environment: Environment) -> dict[str, Any]:
    """Return the certificate of a verification, which the command line starts and waits for."""
    done = run_command(environment, "verify", "bookie-cluster/held", "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _produce(stack: Stack, first: int, end: int) -> None:
    with closing(quiet_client(stack.broker_url)) as client:
        producer = client.create_producer(
            topic_url(TOPIC), batching_enabled=False, block_if_queue_full=True, max_pending_messages=ON_THEIR_WAY
        )
        for number in range(first, end):
            producer.send_async(b"%09d" % number + os.urandom(BODY), _sent)
        producer.flush()


def _read(stack: Stack) -> list[int]:
    """Return the numbers of all messages, in the order in which a new reader gets them."""
    with closing(quiet_client(stack.broker_url)) as client:
        reader = client.create_reader(topic_url(TOPIC), pulsar.MessageId.earliest)
        numbers: list[int] = []
        while reader.has_message_available():
            numbers.append(int(reader.read_next(30_000).data()[:9]))
        return numbers


def _sent(result: object, message: object) -> None:
    """Ignore the result: a missing message is noticed when it is read."""
    del result, message
