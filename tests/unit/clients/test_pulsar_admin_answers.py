"""Answers of the admin interface that say in another way what is usual."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.admin.topics import EntryHead, TopicsReader, TopicStats
from clients.pulsar.names import TopicName


def test_a_tenant_without_roles() -> None:
    """A tenant whose lists are null, as it was created, has none of either."""
    assert Tenant.model_validate({"adminRoles": None, "allowedClusters": None}) == Tenant()
    assert Tenant.model_validate({"adminRoles": ["boss"], "allowedClusters": ["blue"]}) == Tenant(
        admin_roles=("boss",), allowed_clusters=("blue",)
    )


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-Infinity"])
def test_a_rate_of_no_time(rate: str) -> None:
    """A rate that Java has divided by no time counts as no traffic: no number of ours becomes as odd."""
    client = f'{{"msgRateIn": "{rate}", "msgThroughputIn": "{rate}"}}'
    stats = TopicStats.model_validate_json(f'{{"msgRateIn": "{rate}", "msgRateOut": 2.5, "publishers": [{client}]}}')
    (publisher,) = stats.publishers
    assert (stats.msg_rate_in, stats.msg_rate_out) == (0.0, 2.5)
    assert (publisher.msg_rate_in, publisher.msg_throughput_in) == (0.0, 0.0)


@pytest.mark.parametrize("published", ["+292278994-08-17T07:12:55.807Z", "-0001-01-01T00:00:00Z", ""])
def test_a_message_of_an_impossible_time(published: str) -> None:
    """A producer can send any time, also one that Python lacks; the message is read all the same."""

    def head(_path: str) -> Mapping[str, str]:
        return {"X-Pulsar-producer-name": "odd", "X-Pulsar-publish-time": published}

    reader = TopicsReader(cast("Any", SimpleNamespace(head=head)))
    assert reader.entry_head(TopicName.parse("persistent://t/n/a"), (1, 2)) == EntryHead("odd")
