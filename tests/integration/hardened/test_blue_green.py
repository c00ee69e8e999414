"""A blue-green migration of a namespace."""

from __future__ import annotations

from clients.pulsar.names import TopicName
from models.blue_green.input import BlueGreenInput
from models.lifecycle.status import Outcome
from pulsar_devstack.servers.stack import Stack
from pulsar_devstack.traffic.runner import Traffic
from tests.support.hardened import BLUE, GREEN, HardenedEnvironment

NAMESPACE = "moving/space"
TOPICS = [f"persistent://{NAMESPACE}/{name}" for name in ("one", "two")]


def test_clients_follow(hardened: HardenedEnvironment) -> None:
    """Clients of an application's role continue on green, and no secret is seen."""
    hardened.create_namespace(hardened.blue, NAMESPACE)
    input = BlueGreenInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": BLUE,
            # Those of the other bookies, and the address that brokers have for scalable topics.
            "accept": ["path:/second-ledgers", "LISTENERS"],
            "blue": _reached(hardened.blue),
            "green_cluster": GREEN,
            "green": _reached(hardened.green),
            "namespaces": [NAMESPACE],
            "waves": {"gate": "none", "canary": 0},
            "client_credentials": ["application"],
            "complete_cluster": False,
            "grace_window": "PT0S",
        }
    )
    with Traffic.here(hardened.blue.broker_url, TOPICS, options=hardened.client_options()) as traffic:
        traffic.wait_for_more(10)
        report = hardened.operator.run(input)
        assert report.outcome is Outcome.DONE, report.notes
        traffic.wait_for_more(10)
        with hardened.admin(hardened.green) as admin:
            publishers = [
                publisher for topic in TOPICS for publisher in admin.topics.stats(TopicName.parse(topic)).publishers
            ]
        assert len(publishers) == len(TOPICS)
        assert traffic.verify() > 20
    assert (report.certificate["faults"], report.certificate["missing_clients"]) == (0, 0)
    hardened.assert_no_secret_is_seen()


def _reached(stack: Stack) -> dict[str, object]:
    (admin_url,) = stack.admin_urls
    return {
        "metadata_url": stack.metadata_url,
        "admin_urls": [admin_url],
        "service_url_tls": admin_url,
        "broker_service_url_tls": stack.broker_url,
    }
