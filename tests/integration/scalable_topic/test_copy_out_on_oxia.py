"""A copy of a scalable topic whose brokers use Oxia: in a file of its own, since a process has one Spark session."""

from __future__ import annotations

import pytest

from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.client import PulsarAdmin
from pulsar_devstack.servers.stack import StackSpec
from tests.support.scalable_topic.copies import (
    APP,
    make_space,
    native,
    open_copier,
    received,
    require_all,
    require_certificate,
    send_to_segments,
    topic,
)
from tests.support.stacks import MakeStack


@pytest.mark.exhaustive
def test_brokers_on_oxia(make_stack: MakeStack) -> None:
    """Claim, records and registrations are in Oxia; all else is the same."""
    stack = make_stack(StackSpec(metadata="oxia", oxias=1, bookies=1, brokers=1))
    target = topic("oxia-copy")
    with PulsarAdmin.open(AdminAccess(), stack.admin_urls) as admin:
        make_space(admin)
        name = native(stack, admin, "oxia", 30)
        with open_copier(stack) as copier:
            assert copier.copy(name, target, partitions=2, subscriptions=(APP,)).entries == 30
            admin.scalable_topics.split(name, 0)
            send_to_segments(stack, admin, name, range(30, 60))
            require_certificate(copier.copy(name, target, partitions=2), 60)
            require_all(received(stack, target, APP, 60), range(60))
            copier.finish_copy(target)
