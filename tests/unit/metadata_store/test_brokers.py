"""Checks whether brokers' ledgers would follow a live migration of the metadata, by their own configuration."""

from __future__ import annotations

import pytest

from activities.lifecycle.precheck import Findings
from activities.metadata_store import brokers as asked
from activities.metadata_store.brokers import check_ledgers, check_settings
from activities.pulsar.releases import SeenBroker
from clients.stores import Access
from models.metadata_store.input import MetadataStoreInput

PLAN = {"cluster": "blue", "source": "zk:a:1,b:1/pulsar", "target": "oxia://c:1"}


def blockers(*uris: str | None, metadata: str = "zk:a:1,b:1/pulsar", **more: object) -> list[str]:
    """Return codes for brokers with these `bookkeeperMetadataServiceUri`; None for one that does not report it."""
    findings = Findings()
    brokers = [
        SeenBroker(
            f"broker-{number}",
            "5.0.1",
            None if uri is None else {"metadataStoreUrl": metadata, "bookkeeperMetadataServiceUri": uri},
            "it does not answer",
        )
        for number, uri in enumerate(uris)
    ]
    check_ledgers(MetadataStoreInput.model_validate({**PLAN, **more}), brokers, Access(), findings)
    return [blocker.code for blocker in findings.blockers]


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        # Pulsar's driver on the brokers' own store follows, however the store is written.
        ("", ""),
        ("metadata-store:zk:a:1,b:1/pulsar", ""),
        ("metadata-store:zk:b:1;c:1/pulsar?batchingMaxDelayMillis=10", ""),
        ("metadata-store:a:1, b:1/pulsar", ""),
        # BookKeeper's drivers know of no migration.
        ("zk+hierarchical://a:1/pulsar/ledgers", "BOOKKEEPER_STAYS"),
        ("zk://a:1;b:1/pulsar/ledgers", "BOOKKEEPER_STAYS"),
        # Another chroot of the same tree has a flag of its own.
        ("metadata-store:zk:a:1/pulsar/ledgers", "BOOKKEEPER_STAYS"),
        ("metadata-store:zk:a:1", "BOOKKEEPER_STAYS"),
        # Another tree does not move.
        ("metadata-store:zk:a:1/bookkeeper", "LEDGERS_ELSEWHERE"),
        ("metadata-store:oxia://c:1/bookkeeper", "LEDGERS_ELSEWHERE"),
        ("zk+null://z:1/ledgers", "LEDGERS_ELSEWHERE"),
        ("nonsense", "BROKERS_UNKNOWN"),
        (None, "BROKERS_UNKNOWN"),
    ],
)
def test_where_a_brokers_ledgers_are(uri: str | None, code: str) -> None:
    """Ledgers that would not follow are refused; ledgers elsewhere only until `leave_ledgers` confirms them."""
    assert blockers(uri) == ([code] if code else [])
    expected = [code] if code not in ("", "LEDGERS_ELSEWHERE") else []
    assert blockers(uri, leave_ledgers=True) == expected


def test_a_broker_may_name_its_servers_otherwise() -> None:
    """Ledgers also follow if they are in the store that the broker itself calls its own."""
    assert blockers("zk://zk-1.prod:1/pulsar/ledgers", metadata="zk:zk-1.prod:1/pulsar") == ["BOOKKEEPER_STAYS"]
    assert blockers("metadata-store:zk:zk-1.prod:1/pulsar", metadata="zk:zk-1.prod:1/pulsar") == []


STORE = "zk:a:1,b:1/pulsar"


def of_settings(settings: dict[str, str]) -> list[str]:
    """Return the codes for a broker with these settings."""
    findings = Findings()
    broker = SeenBroker("broker-1", "5.0.1", {"metadataStoreUrl": STORE, **settings})
    check_settings(MetadataStoreInput.model_validate(PLAN), [broker], Access(), findings)
    return [blocker.code for blocker in findings.blockers]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, ""),
        ({"configurationMetadataStoreUrl": STORE, "metadataSyncEventTopic": ""}, ""),
        ({"configurationMetadataStoreUrl": "zk:b:1/pulsar"}, ""),
        # The older names of the setting count only where the newer one is not set.
        ({"configurationMetadataStoreUrl": STORE, "globalZookeeperServers": "z:1/other"}, ""),
        ({"configurationStoreServers": "a:1,b:1/pulsar"}, ""),
        ({"configurationMetadataStoreUrl": "zk:z:1/other"}, "CONFIGURATION_ELSEWHERE"),
        ({"configurationMetadataStoreUrl": "zk:a:1/configuration"}, "CONFIGURATION_ELSEWHERE"),
        # The whole tree is not the store within it.
        ({"configurationMetadataStoreUrl": "zk:a:1"}, "CONFIGURATION_ELSEWHERE"),
        ({"configurationMetadataStoreUrl": "nonsense"}, "CONFIGURATION_ELSEWHERE"),
        ({"globalZookeeperServers": "a:1/configuration"}, "CONFIGURATION_ELSEWHERE"),
        ({"metadataSyncEventTopic": "persistent://public/default/sync"}, "METADATA_SYNC"),
        ({"configurationMetadataSyncEventTopic": "persistent://public/default/sync"}, "METADATA_SYNC"),
    ],
)
def test_settings_that_keep_a_broker_on_the_source(settings: dict[str, str], code: str) -> None:
    """A configuration store of its own, and the exchange of metadata with other clusters, are refused."""
    assert of_settings(settings) == ([code] if code else [])


@pytest.mark.parametrize(
    ("enabled", "of_topics", "scalable", "refused"),
    [
        ("true", "true", True, True),
        ("true", "true", False, False),
        ("false", "true", True, False),
        ("true", "false", True, False),
        # Brokers of 4.x have no such setting.
        ("true", "", True, False),
    ],
)
def test_transactions_on_scalable_topics(
    monkeypatch: pytest.MonkeyPatch, enabled: str, of_topics: str, scalable: bool, refused: bool
) -> None:
    """Brokers whose segments take part in transactions are refused where the source has scalable topics."""

    def has_scalable_topics(*_: object) -> bool:
        return scalable

    monkeypatch.setattr(asked, "_has_scalable_topics", has_scalable_topics)
    settings = {
        "transactionCoordinatorEnabled": enabled,
        "transactionCoordinatorScalableTopicsEnabled": of_topics,
        "scalableTopicsEnabled": "true",
    }
    assert of_settings(settings) == (["TRANSACTIONS"] if refused else [])
