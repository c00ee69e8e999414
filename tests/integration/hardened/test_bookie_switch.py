"""A switch to other bookies by a restart of the broker."""

from __future__ import annotations

from clients.pulsar.names import TopicName
from models.bookie_cluster.input import BookieClusterInput
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.backlogs import received, require_sent, sent
from tests.support.bookie_cluster.broker_operator import BrokerOperator
from tests.support.hardened import BLUE, HardenedEnvironment

NAMESPACE = "ledgers/space"
TOPIC = f"persistent://{NAMESPACE}/topic"


def test_messages_are_on_the_other_bookies(hardened: HardenedEnvironment) -> None:
    """Messages continue, a backlog is complete without the old bookies, and no secret is seen."""
    stack = hardened.blue
    hardened.create_namespace(stack, NAMESPACE)
    input = BookieClusterInput.model_validate(
        {
            "hold_before_cutover": True,
            "cluster": BLUE,
            "metadata_url": stack.zk_url,
            "source": {"name": "a", "metadataServiceUri": stack.bookkeeper_uri},
            "target": {"name": "b", "metadataServiceUri": stack.second_bookkeeper_uri},
            "routing": "restart",
            "advance_ids": True,
            "rollback_window": "PT0S",
            "cleanup": "remove",
            "cleanup_at_window_end": True,
        }
    )
    with hardened.admin(stack) as admin:
        admin.create_topic(TOPIC)
        admin.subscriptions.create(TopicName.parse(TOPIC), "idle")
    with Traffic.here(stack.broker_url, [TOPIC], options=hardened.client_options()) as traffic:
        traffic.wait_for_more(10)
        run = hardened.operator.start(input)
        run.wait_until_it_waits_for(WaitKind.HOLD)
        hardened.assert_equal_sides(input.workflow_id)
        run.steer(Verb.PROCEED)
        with BrokerOperator(stack, run):
            report = run.result()
        assert report.outcome is Outcome.DONE, report.notes
        assert report.figures["deleted_from_source"] > 0
        traffic.wait_for_more(10)
        assert traffic.verify() > 20
    expected = sent(traffic, TOPIC)
    backlog = received(stack.broker_url, TOPIC, "idle", least=len(expected), **hardened.client_options())
    # The restart ends connections: a client sends again what no broker had acknowledged, though it may be stored.
    require_sent(backlog, expected, traffic)
    hardened.assert_no_secret_is_seen()
