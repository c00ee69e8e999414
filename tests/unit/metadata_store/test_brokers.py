"""Which brokers' ledgers would follow a live migration of the metadata, by their own configuration."""

from __future__ import annotations

import pytest

from activities.lifecycle.precheck import Findings
from activities.lifecycle.releases import SeenBroker
from activities.metadata_store.brokers import check_ledgers
from clients.stores import Access
from models.metadata_store.input import MetadataStoreInput

PLAN = {"cluster": "blue", "source": "zk:a:1,b:1/pulsar", "target": "oxia://c:1"}


def blockers(*uris: str | None, metadata: str = "zk:a:1,b:1/pulsar", **more: object) -> list[str]:
    """Codes for brokers with these `bookkeeperMetadataServiceUri`; None for one that does not tell."""
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
    """What would not follow is refused; what lies elsewhere only until `leave_ledgers` says that this is known."""
    assert blockers(uri) == ([code] if code else [])
    known = [code] if code not in ("", "LEDGERS_ELSEWHERE") else []
    assert blockers(uri, leave_ledgers=True) == known


def test_a_broker_may_name_its_servers_otherwise() -> None:
    """What counts is also whether the ledgers are in the store that the broker itself calls its own."""
    assert blockers("zk://zk-1.prod:1/pulsar/ledgers", metadata="zk:zk-1.prod:1/pulsar") == ["BOOKKEEPER_STAYS"]
    assert blockers("metadata-store:zk:zk-1.prod:1/pulsar", metadata="zk:zk-1.prod:1/pulsar") == []
