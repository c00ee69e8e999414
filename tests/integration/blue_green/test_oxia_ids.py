"""Ledger ids of a cluster that keeps its metadata in Oxia: raised above those of another cluster."""

from __future__ import annotations

import pytest

from clients.bookkeeper.idgen import IdGenerator
from clients.bookkeeper.oxia_idgen import raise_oxia_generator, read_oxia_generator
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.names import TopicName
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.environment import OXIA_SPEC
from tests.support.blue_green.namespaces import create_namespace, create_topic
from tests.support.stacks import SharedStack

_LIMIT = 10.0


@pytest.mark.exhaustive
def test_ids_are_raised_in_oxia(shared_stack: SharedStack) -> None:
    """Ledgers that brokers create from then on have ids above, and messages come and go as before."""
    stack = shared_stack(OXIA_SPEC)
    url = parse_store_url(stack.metadata_url)
    with PulsarAdmin.open(AdminAccess(timeout=30), stack.admin_urls) as admin:
        create_namespace(admin, "ids/oxia")
        low = create_topic(admin, "persistent://ids/oxia/low")
        before = _read(url)
        # Another test may have raised them on this cluster.
        high_before = before.high or 0
        assert _last_ledger(admin, low) == before.next_id - 1

        above = ((high_before + 5) << 32) + 17
        raised = raise_oxia_generator(url, above, timeout=_LIMIT)
        assert raised == _read(url) == IdGenerator(((high_before + 6) << 32) + 1, high_before + 6, before.short_next)
        assert raise_oxia_generator(url, above, timeout=_LIMIT) == raised

        high = create_topic(admin, "persistent://ids/oxia/high")
        admin.topics.unload(low)
        with Traffic.here(stack.broker_url, [str(low), str(high)]) as traffic:
            traffic.wait_for_more(10)
            traffic.verify()
        assert _last_ledger(admin, low) > above
        assert _last_ledger(admin, high) == raised.next_id
        assert _read(url).next_id > raised.next_id


def _read(url: StoreUrl) -> IdGenerator:
    generator = read_oxia_generator(url, timeout=_LIMIT)
    assert generator is not None
    return generator


def _last_ledger(admin: PulsarAdmin, topic: TopicName) -> int:
    return admin.topics.internal_info(topic).ledgers[-1].ledger_id
