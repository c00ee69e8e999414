"""Services that are there and should not, or that come at the wrong moment, on a real ZooKeeper and a real Oxia."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest
from temporalio.exceptions import ApplicationError

from activities.metadata_store import cutover, pre_copy, preparation, rollback
from activities.metadata_store.occupied import used_by_others
from activities.metadata_store.precheck import PrecheckRun
from activities.pulsar import registrations
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access, open_reader
from models.lifecycle.failures import FailureKind
from models.metadata_store.results import PreCopy
from models.migration_flag import FLAG, PARTICIPANTS
from models.store_url import parse_store_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.metadata_store.steps import Place, open_place
from tests.support.stacks import MakeStack

BROKER = "/loadbalance/brokers/broker-1:8080"


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A source, and a target."""
    return make_stack(StackSpec(zookeepers=1, oxias=1))


@pytest.fixture
def place(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A source with some records at the root of its ZooKeeper, and an empty target."""
    monkeypatch.setattr(rollback, "REBROADCAST_AFTER", 0.0)
    monkeypatch.setattr(registrations, "AWAY_SECONDS", 0.5)
    with open_place(stack, "", ["/tenants/a", "/tenants/b"]) as opened:
        yield opened
        for path in ("/loadbalance", "/ledgers", "/pulsar", "/managed-ledgers", "/tenants", "/target"):
            if opened.zookeeper.exists(path):
                opened.zookeeper.delete(path, recursive=True)


def codes(place: Place, **more: object) -> dict[str, str]:
    """Return the causes of blockers of a later run by their code."""
    task = place.task(run=9, **{"allow_no_brokers": True, "cleanup": "leave", **more})
    unblock = partial(rollback.release, task)
    check = PrecheckRun(task.input, task.workflow_id, Access(), AdminAccess(), unblock)
    return {blocker.code: blocker.cause for blocker in check.run(task.engine, task.pair, tag="precheck").blockers}


def up_to_the_commit(place: Place) -> PreCopy:
    """Run every step before COMPLETED."""
    pre = place.run(pre_copy.pre_copy, 0)
    assert not place.run(preparation.prepare).gap
    place.run(cutover.copy_changes, pre)
    verified = place.run(cutover.verify, pre)
    return pre.model_copy(update={"version_floor": verified.version_floor})


def phase(place: Place) -> str:
    """Return the phase of the flag."""
    return json.loads(place.zookeeper.get(FLAG)[0])["phase"]


def participant(place: Place) -> str:
    """Register as what opens Pulsar's metadata store does."""
    return place.zookeeper.create(f"{PARTICIPANTS}/id-", ephemeral=True, sequence=True, makepath=True)


@pytest.mark.parametrize("mode", ["live", "offline"])
@pytest.mark.parametrize("path", [BROKER, "/ledgers/available/bookie-1", "/ledgers/available/readonly/bookie-1"])
def test_a_registration_that_no_session_holds_is_a_blocker(place: Place, path: str, mode: str) -> None:
    """Whether its process lives is not known: the precheck names the node, and `readonly` itself is none."""
    place.set("/ledgers/available/readonly")
    assert "PERSISTENT_REGISTRATION" not in codes(place, mode=mode)
    place.set(path)
    assert path in codes(place, mode=mode)["PERSISTENT_REGISTRATION"]


def test_offline_every_participant_must_be_stopped(place: Place) -> None:
    """A participant that is neither a broker nor a bookie blocks an offline migration, at its start and at its end."""
    assert codes(place, mode="offline") == {}
    pre = place.run(pre_copy.copy_whole, 0, mode="offline")
    node = participant(place)
    session = f"0x{place.zookeeper.client_id[0]:x}"
    assert session in codes(place, mode="offline", replace_target=True)["SERVICES_RUNNING"]
    with pytest.raises(ApplicationError, match=session):
        place.run(cutover.complete, pre, mode="offline")
    place.zookeeper.delete(node)
    place.run(cutover.verify, pre, mode="offline")
    place.run(cutover.complete, pre, mode="offline")


def test_ledgers_in_another_store_are_not_forgotten(place: Place) -> None:
    """Topics without ledgers are those of a cluster with two stores; `leave_ledgers` says that this is known."""
    place.set("/managed-ledgers/public/default/persistent/topic")
    assert place.source in codes(place, mode="offline")["LEDGERS_ELSEWHERE"]
    assert codes(place, mode="offline", leave_ledgers=True) == {}


def test_nothing_is_committed_while_a_late_service_has_not_joined(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that came while writes were blocked, and does not join, ends the migration before its commit."""
    monkeypatch.setattr(cutover, "LATE_PARTICIPANTS_SECONDS", 0.5)
    pre = up_to_the_commit(place)
    node = participant(place)
    with pytest.raises(ApplicationError, match="did not join the migration: session 0x") as refused:
        place.run(cutover.complete, pre)
    assert refused.value.type == FailureKind.NOT_READY
    assert phase(place) == "COPYING"
    place.zookeeper.delete(node)
    place.run(cutover.complete, pre)
    assert phase(place) == "COMPLETED"
    place.zookeeper.delete(FLAG)


def test_a_service_that_registers_again_is_recognized(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service in the target that is briefly missing in the source does not make the target a foreign one."""
    target = f"{place.source}/target"
    looks: list[int] = []

    def of_the_source() -> set[str]:
        looks.append(1)
        if len(looks) == 2:
            place.zookeeper.create(BROKER, ephemeral=True, makepath=True)
        with open_reader(parse_store_url(place.source), Access()) as reader:
            return {service.name for service in registrations.registered(reader)}

    place.zookeeper.create(f"/target{BROKER}", ephemeral=True, makepath=True)
    with open_reader(parse_store_url(target), Access()) as reader:
        blocker = used_by_others(reader, set)
        assert blocker is not None
        assert "broker broker-1:8080" in blocker.cause
        monkeypatch.setattr(registrations, "AWAY_SECONDS", 20.0)
        assert used_by_others(reader, of_the_source) is None
    assert len(looks) >= 2
