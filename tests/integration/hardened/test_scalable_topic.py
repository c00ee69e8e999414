"""A regular topic becomes scalable."""

from __future__ import annotations

from pathlib import Path

from clients.pulsar.names import TopicName
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from models.scalable_topic.input import ScalableTopicInput
from pulsar_devstack.hardening import APPLICATION
from pulsar_devstack.servers.provision import with_scalable_clients
from pulsar_devstack.servers.pulsar_security import listeners
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.scalable_plan import ScalableTopicPlan
from pulsar_devstack.traffic.scalable_traffic import Absence, ScalableTraffic
from tests.support.hardened import ADMINISTRATOR, BLUE, HardenedEnvironment

NAMESPACE = "scaling/space"
PARTITIONS = 2
PLAN = ScalableTopicPlan(f"persistent://{NAMESPACE}/topic", PARTITIONS, ordered=True, interval=0.05)


def test_brokers_with_tls_only_are_refused(hardened: HardenedEnvironment) -> None:
    """Such brokers could not answer lookups of the topic: its clients would be without it."""
    stack = hardened.blue
    stack.reconfigure("broker-1", advertisedListeners="", internalListenerName="")
    failure = hardened.operator.refusal(_input(stack))
    stack.reconfigure("broker-1", **listeners(stack["broker-1"].address))
    assert "[NO_PLAIN_ADDRESS]" in failure.message


def test_clients_of_a_topic_continue(hardened: HardenedEnvironment, toolchain: Toolchain, tmp_path: Path) -> None:
    """V5 clients of an application's role, ordered ones too, get all messages, old and new, and no secret is seen.

    Roles below superuser, as those of the application and of the tenant's administrator, cannot start it.
    """
    stack = hardened.blue
    hardened.create_namespace(stack, NAMESPACE)
    input = _input(stack)
    for role in (APPLICATION, ADMINISTRATOR):
        failure = hardened.operator.refusal(input.model_copy(update={"credentials": role}))
        assert failure.type == FailureKind.PRECHECK_FAILED
        assert f"clientAppId [{role}]" in failure.message
        assert "superuser's credentials" in failure.message
    with hardened.admin(stack) as admin:
        admin.topics.create_partitioned(TopicName.parse(PLAN.topic), PARTITIONS)
        with ScalableTraffic(
            stack.broker_url,
            admin,
            [PLAN],
            tmp_path,
            with_scalable_clients(toolchain),
            absence=Absence(returns=1, waits=2),
            access=hardened.hardening.client_access(),
        ) as traffic:
            traffic.wait_for_more(10)
            traffic.step_aside()
            report = hardened.operator.run(input)
            assert report.outcome is Outcome.DONE, report.notes
            assert traffic.wait_until_all_are_back() == {}
            traffic.wait_for_more(10)
            assert traffic.stop().faults() == []
    assert report.certificate["segments"] == PARTITIONS
    hardened.assert_no_secret_is_seen()


def _input(stack: Stack) -> ScalableTopicInput:
    return ScalableTopicInput.model_validate(
        {
            "cluster": BLUE,
            # Those of the other bookies.
            "accept": ["path:/second-ledgers"],
            "metadata_url": stack.metadata_url,
            "admin_urls": stack.admin_urls,
            "topic": PLAN.topic,
            "hold_before_cutover": False,
            "grace_window": "PT0S",
        }
    )
