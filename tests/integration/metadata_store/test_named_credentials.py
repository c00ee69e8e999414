"""An offline migration between two ZooKeepers with authorities and logins of their own, which hooks follow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from models.lifecycle.report import Report
from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from models.store_url import StoreUrl, parse_store_url
from pulsar_devstack.servers.provision import Toolchain
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.secure_zookeeper import SecureZooKeeper
from tests.support.clients.zookeeper_records import contents, record, write
from tests.support.lifecycle.hook_receiver import SECRET, HookReceiver, Response
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.self_signed import self_signed
from tests.support.stacks import MakeStack

CLUSTER = "two-authorities"
NAMES = ("old", "new")


@pytest.fixture
def secured(toolchain: Toolchain, tmp_path: Path) -> dict[str, SecureZooKeeper]:
    """Certificates and accesses of each store, by the name of its credentials."""
    for name in NAMES:
        (tmp_path / name).mkdir()
    return {name: SecureZooKeeper(toolchain, tmp_path / name) for name in NAMES}


@pytest.fixture
def urls(make_stack: MakeStack, secured: dict[str, SecureZooKeeper]) -> dict[str, StoreUrl]:
    """Both stores, of which the first has the records of a cluster."""
    specs = {name: StackSpec(zookeepers=1, zookeeper_security=each.security) for name, each in secured.items()}
    urls = {name: parse_store_url(make_stack(spec).zk_url) for name, spec in specs.items()}
    records = [record("/admin"), record("/admin/clusters"), record(f"/admin/clusters/{CLUSTER}", b"{}")]
    write(urls["old"], records, access=secured["old"].access)
    return urls


@pytest.fixture
def pager(tmp_path: Path) -> Iterator[HookReceiver]:
    """An endpoint with TLS that asks for the worker's certificate."""
    with HookReceiver(tmp_path, self_signed(tmp_path, "worker")) as running:
        yield running


@pytest.fixture
def operator(
    toolchain: Toolchain, secured: dict[str, SecureZooKeeper], pager: HookReceiver, tmp_path: Path
) -> Iterator[Operator]:
    """Temporal and a worker with two sets of credentials, no common ones, and two hooks."""
    (tmp_path / "hook.secret").write_text(SECRET)
    settings: dict[str, Any] = {
        "PULSAR_MIGRATE_HOOKS__PAGER__URL": pager.url,
        "PULSAR_MIGRATE_HOOKS__PAGER__SECRET_FILE": str(tmp_path / "hook.secret"),
        "PULSAR_MIGRATE_HOOKS__PAGER__TLS_CA": pager.ca,
        "PULSAR_MIGRATE_HOOKS__PAGER__TLS_CERTIFICATE": str(tmp_path / "worker.crt"),
        "PULSAR_MIGRATE_HOOKS__PAGER__TLS_KEY": str(tmp_path / "worker.key"),
        "PULSAR_MIGRATE_HOOKS__PAGER__VETO": "true",
        # A slow answer of this busy machine is not a veto.
        "PULSAR_MIGRATE_HOOKS__PAGER__TIMEOUT": "PT1M",
        "PULSAR_MIGRATE_HOOKS__JOURNAL__TIMEOUT": "PT1M",
        "PULSAR_MIGRATE_HOOKS__JOURNAL__COMMAND": json.dumps(
            ["sh", "-c", 'cat >> "$0"; echo >> "$0"', str(tmp_path / "journal")]
        ),
    }
    for name, each in secured.items():
        assert each.access.tls
        assert each.access.login
        (password := tmp_path / f"{name}.password").write_text(each.access.login.password)
        prefix = f"PULSAR_MIGRATE_CREDENTIALS__{name.upper()}__"
        settings |= {
            f"{prefix}HOSTS": "127.0.0.1",
            f"{prefix}ZOOKEEPER_SASL_USERNAME": each.access.login.username,
            f"{prefix}ZOOKEEPER_SASL_PASSWORD_FILE": str(password),
            f"{prefix}ZOOKEEPER_TLS_CA": str(each.access.tls.ca_file),
            f"{prefix}ZOOKEEPER_TLS_CERTIFICATE": str(each.access.tls.cert_file),
            f"{prefix}ZOOKEEPER_TLS_KEY": str(each.access.tls.key_file),
        }
    with (
        Stack(StackSpec(temporal=True), tmp_path / "temporal", toolchain) as stack,
        WorkerProcess(stack.temporal_address, tmp_path, **settings),
        Operator(stack.temporal_address) as operator,
    ):
        yield operator


def test_each_store_gets_its_own_credentials(
    urls: dict[str, StoreUrl],
    secured: dict[str, SecureZooKeeper],
    operator: Operator,
    pager: HookReceiver,
    tmp_path: Path,
) -> None:
    """Each store refuses the other one's certificate; a name that the worker lacks is a blocker. Hooks get events."""

    def input(**fields: Any) -> MetadataStoreInput:
        return MetadataStoreInput.model_validate(
            {
                "hold_before_cutover": False,
                "cluster": CLUSTER,
                "mode": "offline",
                "validation_window": "PT0S",
                "source": str(urls["old"]),
                "target": str(urls["new"]),
                **fields,
            }
        )

    unknown = str(operator.refusal(input(credentials="old", target_credentials="gone")))
    assert "[TARGET_CREDENTIALS] the worker's settings have no credentials called 'gone'" in unknown
    same = str(operator.refusal(input(credentials="old")))
    assert "[TARGET_" in same
    assert "[SOURCE_" not in same
    answers = iter([Response(409, "freeze until Monday", {"Retry-After": "5"})])
    pager.respond = lambda event: next(answers, Response()) if event["type"].endswith("asked") else Response()
    report = operator.run(input(credentials="old", target_credentials="new", hooks=["pager", "journal"]))
    assert report.outcome is Outcome.DONE
    source, target = (contents(urls[name], secured[name].access) for name in NAMES)
    wanted = f"/admin/clusters/{CLUSTER}".encode()
    assert source[wanted] == target[wanted]
    _check_hooks(pager, tmp_path, report)


def _check_hooks(pager: HookReceiver, folder: Path, report: Report[Any, Any]) -> None:
    """Check that the endpoint and the command got the same signed events, and that the first veto held the copy."""
    assert pager.faults == []
    assert pager.texts("cutover.asked")[0] == "may the cut-over start?"
    asked = [event for event in pager.events if event["type"].endswith("cutover.asked")]
    assert len(asked) > 1
    assert any("the cut-over does not start: veto of pager: freeze until Monday" in note for note in report.notes)
    got = _distinct(event for event in pager.events if event not in asked)
    journal = _distinct(json.loads(line) for line in (folder / "journal").read_text().splitlines())
    assert [event["id"] for event in journal] == [event["id"] for event in got]
    assert [event["data"]["number"] for event in journal] == [*range(1, len(journal) + 1)]
    started = [event["data"]["text"] for event in got if event["type"].endswith("phase.started")]
    assert started == [f"phase {entry.phase} starts" for entry in report.history]
    vetoed = [event["data"]["waiting"]["kind"] for event in journal if event["type"].endswith("wait.started")]
    assert vetoed.count("veto") == 1
    assert journal[-1]["data"]["outcome"] == Outcome.DONE
    log = (folder / "worker.log").read_text()
    assert SECRET.removeprefix("whsec_") not in log


def _distinct(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events in the order of their first deliveries: a delivery whose answer was late is repeated."""
    first: dict[str, dict[str, Any]] = {}
    for event in events:
        first.setdefault(event["id"], event)
    return [*first.values()]
