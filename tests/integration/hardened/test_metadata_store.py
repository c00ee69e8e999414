"""A metadata store migration from one ZooKeeper to another."""

from __future__ import annotations

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from models.store_url import parse_store_url
from pulsar_devstack.traffic.runner import Traffic
from tests.support.clients.zookeeper_records import contents
from tests.support.hardened import GREEN, HardenedEnvironment

NAMESPACE = "stores/space"
TOPIC = f"persistent://{NAMESPACE}/topic"


def test_live_to_another_zookeeper(hardened: HardenedEnvironment) -> None:
    """Messages continue, the copy is complete, brokers write to the target, and no secret is seen."""
    stack = hardened.green
    hardened.create_namespace(stack, NAMESPACE)
    target = f"{stack.second_zk_url}/new"
    input = MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": GREEN,
            "source": stack.zk_url,
            "target": target,
            "validation_window": "PT0S",
        }
    )
    with (
        hardened.admin(stack) as admin,
        Traffic.here(stack.broker_url, [TOPIC], options=hardened.client_options()) as traffic,
    ):
        traffic.wait_for_more(10)
        report = hardened.operator.run(input)
        assert report.outcome is Outcome.DONE, report.notes
        admin.create_topic(f"{NAMESPACE}/new")
        traffic.wait_for_more(10)
        assert traffic.verify() > 20
    hardened.assert_equal_sides(input.workflow_id)
    access = hardened.access.common.zookeeper
    source, copied = (contents(parse_store_url(url), access) for url in (stack.zk_url, target))
    lasting = {path for path in source if path.startswith((b"/admin/", b"/managed-ledgers/"))}
    assert len(lasting) > 10
    assert lasting <= copied.keys()
    new = f"/managed-ledgers/{NAMESPACE}/persistent/new".encode()
    assert (new in copied, new in source) == (True, False)
    hardened.assert_no_secret_is_seen()
