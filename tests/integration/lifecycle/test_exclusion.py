"""Two migrations of one cluster exclude each other by name, of any kinds, and a refused one leaves nothing.

The tests share one cluster and run in their order: the last one moves its metadata to another store.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.bookie_cluster.input import BookieClusterInput
from models.bookie_cluster.phases import Phase as SwitchPhase
from models.bookie_registry import REGISTRY
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from models.lifecycle.verbs import Verb
from models.metadata_store.input import MetadataStoreInput
from models.metadata_store.phases import Phase as StorePhase
from models.migration_flag import FLAG, FlagPhase
from pulsar_devstack.servers.admin import topic_url
from pulsar_devstack.servers.stack import Stack, StackSpec
from pulsar_devstack.traffic.pulsar_client import quiet_client
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_until_equal

CLUSTER = "exclusive"
_BROKERS_OWN = (
    "/loadbalance",
    "/admin/local-policies",
    "/admin/policies",
    "/namespace",
    "/managed-ledgers",
    "/ledgers",
)


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """A broker with bookies and a ledger, other bookies, and an empty Oxia: both kinds of migration could start."""
    made = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, second_bookies=1, brokers=1, cluster=CLUSTER))
    client = quiet_client(made.broker_url)
    try:
        # With an id in use, the new bookies' ids are too low.
        client.create_producer(topic_url("orders")).send(b"x")
    finally:
        client.close()
    return made


def move(stack: Stack, **more: object) -> MetadataStoreInput:
    """Move the metadata; the copy is slow enough to be met."""
    plan = {
        "cluster": CLUSTER,
        "accept": stores.OTHER_ROOTS,
        "source": stack.zk_url,
        "target": stack.oxia_url,
        "validation_window": "PT0S",
    }
    return MetadataStoreInput.model_validate({"hold_before_cutover": False, **plan, **more})


def switch(stack: Stack, **more: object) -> BookieClusterInput:
    """Switch the bookies; it waits for brokers that an operator must stop."""
    plan = {
        "cluster": CLUSTER,
        "metadata_url": stack.zk_url,
        "source": {"name": "a", "metadataServiceUri": stack.bookkeeper_uri},
        "target": {"name": "b", "metadataServiceUri": stack.second_bookkeeper_uri},
        "routing": "restart",
        "advance_ids": True,
    }
    return BookieClusterInput.model_validate({"hold_before_cutover": False, **plan, **more})


def ours(stack: Stack) -> dict[str, Any]:
    """Return the records that brokers and bookies do not change by themselves."""
    tree = stores.read_zookeeper(stack.zk_url, without_coordinator=False)
    return {path: node.value for path, node in tree.items() if not node.ephemeral and not path.startswith(_BROKERS_OWN)}


def holder(stack: Stack) -> str | None:
    """Return the migration that holds the cluster."""
    with stores.kazoo(stack.zk_url) as client:
        return json.loads(client.get(CLAIM)[0])["workflow_id"] if client.exists(CLAIM) else None


def test_a_switch_that_precheck_refuses_leaves_nothing(stack: Stack, environment: Environment) -> None:
    """Blockers that PRECHECK finds after REGISTER take back what that wrote: registrations, parents, the claim."""
    before = ours(stack)
    failure = environment.operator.refusal(switch(stack, advance_ids=False))
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert "[TARGET_IDS_TOO_LOW]" in failure.message
    assert ours(stack) == before
    corrected = switch(stack, source={"name": "other-name", "metadataServiceUri": stack.bookkeeper_uri})
    assert environment.operator.run(corrected.model_copy(update={"dry_run": True})).summary.startswith("ready:")


def test_a_wrong_chroot_is_refused(stack: Stack, environment: Environment) -> None:
    """Without registered brokers neither kind starts, unless that is allowed; a chroot is never created."""
    with stores.kazoo(stack.zk_url) as client:
        client.create("/elsewhere", b"")
        client.create("/elsewhere/node", b"x")
    elsewhere = f"{stack.zk_url}/elsewhere"
    for plan in (switch(stack, metadata_url=elsewhere), move(stack, source=elsewhere)):
        failure = environment.operator.refusal(plan)
        assert failure.type == FailureKind.PRECHECK_FAILED
        assert "[NO_BROKERS]" in failure.message
        allowed = plan.model_copy(update={"allow_no_brokers": True, "dry_run": True})
        assert "[NO_BROKERS]" not in environment.operator.run(allowed).summary
    nowhere = environment.operator.refusal(switch(stack, metadata_url=f"{stack.zk_url}/nope"))
    assert nowhere.type == FailureKind.CONFLICT
    assert "/nope does not exist" in nowhere.message
    with stores.kazoo(stack.zk_url) as client:
        assert client.get_children("/elsewhere") == ["node"]
        assert client.exists("/nope") is None
        client.delete("/elsewhere", recursive=True)


def test_a_switch_is_refused_while_metadata_move(stack: Stack, environment: Environment) -> None:
    """During a metadata migration's copy, any switch is rejected with the holder's name, and writes nothing."""
    # On BookKeeper's own driver it could not follow to Oxia, and PRECHECK would say so.
    stack["second-bookie-1"].stop()
    before = ours(stack)
    # The hold keeps the claim where the copy ends before all of this.
    run = environment.operator.start(move(stack, throttle=0.002, hold_before_cutover=True))
    run.wait_for_phase(StorePhase.PRE_COPY)
    run.wait_until("the copy", lambda _: holder(stack) == f"metadata-store/{CLUSTER}")
    for plan in (switch(stack), switch(stack, cluster="rival", registry_path="/admin/other-registry")):
        refused = environment.operator.refusal(plan)
        assert refused.type == FailureKind.CONFLICT
        assert f"held by the migration 'metadata-store/{CLUSTER}'" in refused.message
        planned = environment.operator.run(plan.model_copy(update={"dry_run": True}))
        assert "[CLUSTER_CLAIMED]" in planned.summary
        assert f"metadata-store/{CLUSTER}" in planned.summary
    run.steer(Verb.ROLLBACK)
    assert run.result().outcome is Outcome.ROLLED_BACK
    assert ours(stack) == before
    assert holder(stack) is None
    stack["second-bookie-1"].start()


def test_a_metadata_migration_is_refused_while_bookies_switch(stack: Stack, environment: Environment) -> None:
    """During a switch, metadata migrations of this store, live or offline, are rejected with the holder's name."""
    run = environment.operator.start(switch(stack))
    run.wait_for_phase(SwitchPhase.SWITCH)
    run.wait_until("the wait for the broker's stop", lambda status: "to stop" in str(status.waiting))
    oxia = stores.read_oxia(stack.oxia_url, without_coordinator=False)
    for plan in (move(stack), move(stack, cluster="rival"), move(stack, mode="offline")):
        refused = environment.operator.refusal(plan)
        assert refused.type == FailureKind.PRECHECK_FAILED
        assert "[SOURCE_CLAIMED]" in refused.message
        assert f"held by the migration 'bookie-cluster/{CLUSTER}'" in refused.message
    assert stores.read_oxia(stack.oxia_url, without_coordinator=False) == oxia == {}
    run.steer(Verb.ROLLBACK)
    assert run.result().outcome is Outcome.ROLLED_BACK
    assert holder(stack) is None


def test_claims_of_earlier_versions_exclude(stack: Stack, environment: Environment) -> None:
    """A switch's claim of an older version, and a flag that Pulsar's own command moved, exclude the other kind."""
    claim = {"workflow_id": "bookie-cluster/old", "run_id": "r", "attempt": 3}
    path = f"{REGISTRY}/orchestrator/x-to-y/claim"
    with stores.kazoo(stack.zk_url) as client:
        client.create(path, json.dumps(claim).encode(), makepath=True)
    for plan in (move(stack, dry_run=True), switch(stack, dry_run=True)):
        summary = environment.operator.run(plan).summary
        assert "[SWITCH_OPEN]" in summary
        assert "x-to-y by bookie-cluster/old" in summary
    with stores.kazoo(stack.zk_url) as client:
        client.delete(f"{REGISTRY}/orchestrator/x-to-y", recursive=True)


def test_a_switch_on_a_store_that_was_left_is_refused(stack: Stack, environment: Environment) -> None:
    """After the metadata moved to Oxia, a switch on the old ZooKeeper is rejected, although no migration holds it."""
    # This bookie keeps to ZooKeeper and does not take part, so its registration would hold PREPARATION up.
    stack["second-bookie-1"].stop()
    with stores.kazoo(stack.zk_url) as client:
        bookies = "/second-ledgers/available"
        wait_until_equal("its registration is gone", lambda: client.get_children(bookies), ["readonly"], 30)
    assert environment.operator.run(move(stack)).outcome is Outcome.DONE
    with stores.kazoo(stack.zk_url) as client:
        assert json.loads(client.get(FLAG)[0])["phase"] == FlagPhase.COMPLETED
    refused = environment.operator.refusal(switch(stack))
    assert refused.type == FailureKind.CONFLICT
    assert f"COMPLETED (target {stack.oxia_url}" in refused.message
    assert "[METADATA_MOVED]" in environment.operator.run(switch(stack, dry_run=True)).summary
    with stores.kazoo(stack.zk_url) as client:
        client.delete(CLAIM)
    assert "[METADATA_MOVED]" in environment.operator.run(switch(stack, dry_run=True)).summary
