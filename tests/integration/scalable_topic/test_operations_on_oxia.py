"""Operations where brokers keep their metadata in Oxia, which has no transactions over several records."""

from __future__ import annotations

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.scalable_topics import AutoScalePolicy
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import RecordState, read_scalable, recorded_subscriptions
from clients.stores import Access, open_cas
from models.lifecycle.claim import CLAIM
from models.scalable_topic.claims import OPERATIONS
from models.scalable_topic.operation_input import Operation
from models.segments.layout_check import layout_faults
from models.segments.segment import SubscriptionKind
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import StackSpec
from tests.support.scalable_topic.operations import Operations, carried_out
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_until_equal

SPACE = "public/default"
OWN = AutoScalePolicy(enabled=True, min_segments=2)


@pytest.mark.exhaustive
def test_operations_on_oxia(make_stack: MakeStack) -> None:
    """Splits, audits and empty records are as on ZooKeeper, and a run that died is found and tidied up."""
    stack = make_stack(StackSpec(oxias=1, bookies=1, brokers=1, metadata="oxia"))
    with (
        PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin,
        open_cas(parse_store_url(stack.metadata_url), Access()) as store,
    ):
        name = TopicName.parse(f"{SPACE}/native")
        admin.scalable_topics.create(name, 2)
        admin.scalable_topics.set_auto_scale_policy(name, OWN)
        for segment in admin.scalable_topics.layout(name).active:
            admin.scalable_topics.create_segment(name, segment.descriptor, ["unrecorded"])
        assert carried_out(stack, Operation.AUDIT, f"{SPACE}/nat*").with_findings == 1
        dead = Operations(stack, Operation.SPLIT, str(name), segment=0)
        assert dead.operate().failures == ()
        assert store.children(OPERATIONS)
        done = carried_out(stack, Operation.MERGE, str(name), segments=(1, 3), run_id="run-2")
        assert (done.changed, done.failures) == (1, ())
        assert layout_faults(admin.scalable_topics.layout(name)) == []
        wait_until_equal("the broker's cache follows", lambda: admin.scalable_topics.auto_scale_policy(name), OWN, 10)
        assert recorded_subscriptions(store, name) == {"unrecorded": SubscriptionKind.QUEUE}
        empty = TopicName.parse(f"{SPACE}/empty")
        store.create(empty.scalable_path, b"")
        store.create(f"{empty.scalable_path}/segments/2/load", b"{}")
        assert carried_out(stack, Operation.CLEAR_EMPTY, f"{SPACE}/*").changed == 1
        assert read_scalable(store, empty).state is RecordState.ABSENT
        assert store.get(CLAIM) is None
        assert store.children(OPERATIONS) == []
