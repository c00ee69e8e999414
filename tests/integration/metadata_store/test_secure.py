"""A live migration between ZooKeepers that take only TLS with client certificates and logins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.store import COORDINATOR
from clients.stores import Access, StoreAccess, open_cas_reader
from models.lifecycle.claim import CLAIM
from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from models.store_url import parse_store_url
from pulsar_devstack.servers.admin import StackAdmin
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.runner import Traffic
from tests.support.clients.secure_zookeeper import SecureZooKeeper
from tests.support.clients.zookeeper_records import contents
from tests.support.lifecycle.environment import written_texts
from tests.support.lifecycle.marks import marked
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.releases import live_migrations
from tests.support.stacks import MakeStack

pytestmark = pytest.mark.exhaustive

CLUSTER = "secure-zookeepers"


@pytest.fixture
def secure(toolchain: Toolchain, tmp_path: Path) -> SecureZooKeeper:
    """Certificates and accesses."""
    (folder := tmp_path / "certificates").mkdir()
    return SecureZooKeeper(toolchain, folder)


@pytest.fixture
def operator(toolchain: Toolchain, secure: SecureZooKeeper, tmp_path: Path) -> Iterator[Operator]:
    """Temporal and a worker with the credentials, which writes them nowhere."""
    access = secure.access
    assert access.tls
    assert access.login
    password = tmp_path / "password"
    password.write_text(access.login.password)
    (temporary := tmp_path / "temporary").mkdir()
    settings: dict[str, Any] = {
        "PULSAR_MIGRATE_HOSTS": "127.0.0.1,localhost",
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "PULSAR_MIGRATE_ZOOKEEPER_SASL_USERNAME": access.login.username,
        "PULSAR_MIGRATE_ZOOKEEPER_SASL_PASSWORD_FILE": str(password),
        "PULSAR_MIGRATE_ZOOKEEPER_TLS_CA": str(access.tls.ca_file),
        "PULSAR_MIGRATE_ZOOKEEPER_TLS_CERTIFICATE": str(access.tls.cert_file),
        "PULSAR_MIGRATE_ZOOKEEPER_TLS_KEY": str(access.tls.key_file),
    }
    with (
        Stack(StackSpec(temporal=True), tmp_path / "temporal", toolchain) as stack,
        WorkerProcess(stack.temporal_address, tmp_path, **settings) as worker,
        Operator(stack.temporal_address) as operator,
    ):
        yield operator
        assert marked(written_texts(worker, operator, tmp_path / "temporary"), [access.login.password]) == []


@live_migrations
def test_live_migration_over_tls(make_stack: MakeStack, secure: SecureZooKeeper, operator: Operator) -> None:
    """Every step gets in: the copy is complete, the cluster works on the target, and only the claim is protected."""
    spec = StackSpec(
        zookeepers=1,
        second_zookeepers=1,
        bookies=1,
        brokers=1,
        cluster=CLUSTER,
        zookeeper_security=secure.security,
    )
    stack = make_stack(spec)
    target = parse_store_url(f"{stack.second_zk_url}/new")
    input = MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "source": stack.zk_url,
            "target": str(target),
            "validation_window": "PT0S",
        }
    )
    with StackAdmin(stack.admin_urls[0]) as admin, Traffic.here(stack.broker_url, ["flow"]) as traffic:
        for number in range(4):
            admin.create_topic(f"old-{number}")
        traffic.wait_for_more(10)
        assert operator.run(input).outcome is Outcome.DONE
        source = contents(parse_store_url(stack.zk_url), secure.access)
        copied = contents(target, secure.access)
        lasting = {path for path in source if path.startswith((b"/admin/", b"/managed-ledgers/"))}
        assert len(lasting) > 10
        assert lasting <= copied.keys()
        assert COORDINATOR in source
        admin.create_topic("new")
        traffic.wait_for_more(10)
        assert traffic.verify() > 20
    with open_cas_reader(parse_store_url(stack.zk_url), Access(StoreAccess(secure.other))) as reader:
        assert reader.get(CLAIM)
