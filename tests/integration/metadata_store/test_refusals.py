"""Refusals of a metadata store migration to start, on real stores with a bookie that cannot follow it."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome
from models.metadata_store.claims import SourceClaim
from models.metadata_store.input import MetadataStoreInput
from models.migration_flag import PARTICIPANTS, FlagPhase
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.clients.old_oxia import OldOxia
from tests.support.lifecycle.environment import Environment
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import wait_until_equal

# The library has no types.
security: Any = importlib.import_module("kazoo.security")

CLUSTER = "refused"
SECRET, OWNER = "/schemas/secret", "owner:password"


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """One bookie on BookKeeper's own ZooKeeper driver, which knows of no migration; and an Oxia that is not empty."""
    made = make_stack(StackSpec(zookeepers=1, oxias=1, bookies=1, cluster=CLUSTER))
    hosts = made.zk_url.removeprefix("zk:")
    made.reconfigure("bookie-1", metadataServiceUri=f"zk+null://{hosts}/ledgers")
    with stores.kazoo(made.zk_url) as client:

        def participants() -> list[str]:
            return client.get_children(PARTICIPANTS) if client.exists(PARTICIPANTS) else []

        # The end of its old session is a write, too.
        wait_until_equal("the participants", participants, [], 60)
    return made


@pytest.fixture(scope="module")
def source(stack: Stack) -> Generator[Any]:
    """A client of the source."""
    with stores.kazoo(stack.zk_url) as client:
        yield client


def input(stack: Stack, **more: object) -> MetadataStoreInput:
    """Return the plan from ZooKeeper to Oxia; no broker runs here."""
    plan = {"cluster": CLUSTER, "source": stack.zk_url, "target": stack.oxia_url, "accept": stores.OTHER_ROOTS}
    return MetadataStoreInput.model_validate({"hold_before_cutover": False, **plan, "allow_no_brokers": True, **more})


def contents(stack: Stack) -> tuple[int, stores.Records]:
    """Return what a write to either store would change."""
    records = stores.read_oxia(stack.oxia_url, without_coordinator=False)
    return stores.last_zxid(stack.zk_url, digest=OWNER), records


@contextmanager
def flag(source: Any, phase: FlagPhase) -> Generator[None]:
    """Set the migration flag as Pulsar's own coordinator leaves it."""
    value = json.dumps({"phase": phase, "targetUrl": "oxia://127.0.0.1:1"}).encode()
    source.create(stores.FLAG, value, makepath=True)
    try:
        yield
    finally:
        source.delete(stores.FLAG)


@contextmanager
def record_in_target(stack: Stack) -> Generator[None]:
    """Create a record of another cluster in the target."""
    stores.put_oxia(stack.oxia_url, "/foreign/root", b"1")
    try:
        yield
    finally:
        stores.delete_oxia(stack.oxia_url, "/foreign/root")


@contextmanager
def secret(source: Any) -> Generator[None]:
    """Create a node that only its owner may read."""
    acl = security.make_digest_acl(*OWNER.split(":"), all=True)
    source.ensure_path(SECRET.rpartition("/")[0])
    source.create(SECRET, b"x", acl=[acl])
    try:
        yield
    finally:
        source.delete(SECRET)


def test_all_blockers_come_in_one_answer(stack: Stack, source: Any, environment: Environment) -> None:
    """Every blocker is named with its cure in one failure, and neither store is changed by it."""
    with flag(source, FlagPhase.PREPARATION), record_in_target(stack), secret(source):
        before = contents(stack)
        failure = environment.operator.refusal(input(stack))
        assert contents(stack) == before
    assert failure.type == FailureKind.PRECHECK_FAILED
    text = str(failure)
    for code in ("FLAG_HELD", "NOT_PARTICIPATING", "TARGET_NOT_EMPTY", "UNREADABLE"):
        assert text.count(f"[{code}]") == 1, text
    assert "4 blocker(s)" in text
    assert text.count("Cure: ") == 4
    assert "bookie bookie-1" in text
    assert "/foreign/root" in text
    assert SECRET in text
    assert "PREPARATION" in text


@pytest.mark.parametrize(
    ("phase", "code"),
    [
        (FlagPhase.PREPARATION, "FLAG_HELD"),
        (FlagPhase.COPYING, "FLAG_HELD"),
        (FlagPhase.COMPLETED, "ALREADY_COMPLETED"),
    ],
)
def test_a_flag_of_others_is_respected(
    stack: Stack, source: Any, environment: Environment, phase: FlagPhase, code: str
) -> None:
    """A flag that Pulsar's own coordinator set is named with its target, and stays as it is."""
    with flag(source, phase):
        failure = environment.operator.refusal(input(stack))
        assert source.get(stores.FLAG)[1].version == 0
    assert f"[{code}]" in str(failure)
    assert f"{phase} (target oxia://127.0.0.1:1)" in str(failure)


@contextmanager
def left_blocked(source: Any, workflow_id: str) -> Generator[None]:
    """Leave flag and claim as a migration does that is terminated while writes are blocked."""
    claim = SourceClaim(workflow_id=workflow_id, run_id="ended", flag_version=0)
    with flag(source, FlagPhase.COPYING):
        source.create(CLAIM, claim.encode())
        try:
            yield
        finally:
            if source.exists(CLAIM):
                source.delete(CLAIM)


def test_writes_are_unblocked_despite_blockers(stack: Stack, source: Any, environment: Environment) -> None:
    """Writes of a terminated run are unblocked, although the target does not answer; a dry run only reports it."""
    away = input(stack, target="oxia://127.0.0.1:1")
    with left_blocked(source, away.workflow_id):
        environment.operator.run(away.model_copy(update={"dry_run": True}))
        assert b"COPYING" in source.get(stores.FLAG)[0]
        assert "[TARGET_UNREACHABLE]" in str(environment.operator.refusal(away))
        assert b"FAILED" in source.get(stores.FLAG)[0]
        assert source.exists(CLAIM) is None


def test_writes_that_another_migration_blocks_stay_its_own(stack: Stack, source: Any, environment: Environment) -> None:
    """The blocker names who blocks writes, and says that only this one can give them back."""
    with left_blocked(source, "metadata-store/another"):
        failure = str(environment.operator.refusal(input(stack)))
        assert b"COPYING" in source.get(stores.FLAG)[0]
    assert "[FLAG_HELD] the migration flag is COPYING: 'metadata-store/another' blocks metadata writes" in failure
    assert "start it again, which unblocks writes" in failure
    assert "[SOURCE_CLAIMED]" in failure


@contextmanager
def claim_in_target(stack: Stack) -> Generator[None]:
    """Create an invalid record at the path of the target's claim."""
    stores.put_oxia(stack.oxia_url, CLAIM, b"garbage")
    try:
        yield
    finally:
        stores.delete_oxia(stack.oxia_url, CLAIM)


def test_a_record_in_place_of_a_claim_is_named(stack: Stack, environment: Environment) -> None:
    """An invalid record at the path of the target's claim is a blocker like any other."""
    with claim_in_target(stack):
        report = environment.operator.run(input(stack, dry_run=True))
    assert f"[TARGET_CONFLICT] the target cannot be used: {CLAIM} in {stack.oxia_url} holds no claim" in report.summary


@pytest.mark.parametrize("more", [{}, {"replace_target": True}, {"mode": "offline"}], ids=str)
def test_a_target_in_use_is_refused(stack: Stack, environment: Environment, more: dict[str, Any]) -> None:
    """A target in which another cluster's broker runs is refused, also where its records may be replaced."""
    own, taken = f"{stack.zk_url}/own", f"{stack.zk_url}/taken"
    with stores.kazoo(stack.zk_url) as client:
        client.ensure_path("/own/admin/clusters")
        client.create("/taken/loadbalance/brokers/another:8080", b"{}", ephemeral=True, makepath=True)
        report = environment.operator.run(input(stack, source=own, target=taken, dry_run=True, **more))
    assert "[TARGET_IN_USE]" in report.summary
    assert "another:8080" in report.summary


def test_an_offline_migration_wants_services_stopped(stack: Stack, environment: Environment) -> None:
    """An offline migration names the services that run."""
    failure = environment.operator.refusal(input(stack, mode="offline"))
    assert "[SERVICES_RUNNING]" in str(failure)
    assert "bookie bookie-1" in str(failure)


def test_wrong_addresses(stack: Stack, environment: Environment) -> None:
    """A chroot without metadata and a target without a server are refused with different errors."""
    wrong = input(stack, source=f"{stack.zk_url}/nothing/here", target="oxia://127.0.0.1:1", dry_run=True)
    report = environment.operator.run(wrong)
    assert report.outcome is Outcome.PLANNED
    assert report.summary.startswith("not ready: ")
    for text in ("[SOURCE_EMPTY]", "/nothing/here holds no metadata", "[TARGET_UNREACHABLE]", "127.0.0.1:1"):
        assert text in report.summary, report.summary


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry-run", "for-real"])
def test_an_old_oxia_is_refused(stack: Stack, environment: Environment, dry_run: bool) -> None:
    """An Oxia that cannot keep versions is refused by its address and the version that can, and left clean."""
    stack["bookie-1"].stop()
    with OldOxia(stack.oxia_url) as old:
        wanted = input(stack, target=old.url, mode="offline", dry_run=dry_run)
        text = environment.operator.run(wanted).summary if dry_run else str(environment.operator.refusal(wanted))
    assert "[TARGET_UNSUPPORTED]" in text
    assert "0.16" in text
    assert old.url.removeprefix("oxia://").partition("/")[0] in text
    assert stores.read_oxia(stack.oxia_url, without_coordinator=False) == {}


@pytest.mark.parametrize(("source", "target"), [("/a", ""), ("/a", "/a/b"), ("", "/a"), ("/a", "/a")])
def test_one_store_under_two_names(stack: Stack, environment: Environment, source: str, target: str) -> None:
    """A target that holds the source, or lies in it, under another name of its server is refused, and not emptied."""
    own, other = stack.zk_url, stack.zk_url.replace("127.0.0.1", "localhost")
    assert own != other
    with stores.kazoo(stack.zk_url) as client:
        client.ensure_path("/a/admin/clusters")
    before = stores.persistent(stores.read_zookeeper(own))
    stack["bookie-1"].stop()
    nested = input(stack, source=own + source, target=other + target, mode="offline", replace_target=True)
    failure = environment.operator.refusal(nested)
    assert "source and target are the same store, or one contains the other" in str(failure)
    assert stores.persistent(stores.read_zookeeper(own)) == before


def test_records_that_a_copy_would_lose_are_refused(stack: Stack, environment: Environment) -> None:
    """Indexed records, ACLs and nested stores are named in one answer, and nothing of a store that has none."""
    own = f"{stack.zk_url}/losses"
    with stores.kazoo(stack.zk_url) as client:
        for path in ("admin/clusters/refused", "topics/public/default", "txn/id", "txn/tc/parallelism"):
            client.ensure_path(f"/losses/{path}")
        client.create("/losses/topics/public/default/orders", b'{"epoch":0,"properties":{}}')
        clean = environment.operator.run(input(stack, source=own, dry_run=True)).summary
        client.set("/losses/topics/public/default/orders", b'{"epoch":0,"properties":{"team":"a"}}')
        client.create("/losses/txn/id/1", b"{}")
        client.create("/losses/ledgers/ledgers/LAYOUT", b"2", makepath=True)
        client.create("/losses/admin/open", acl=[*security.READ_ACL_UNSAFE, *security.OPEN_ACL_UNSAFE])
        client.create("/losses/admin/protected", acl=security.READ_ACL_UNSAFE)
        losses = environment.operator.run(input(stack, source=own, dry_run=True)).summary
        other = environment.operator.run(
            input(stack, source=own, target=f"{stack.zk_url}/other", mode="offline", dry_run=True)
        ).summary
    codes = ("[TRANSACTIONS]", "[TOPIC_PROPERTIES]", "[NESTED_STORE]", "[ACL_LOST]")
    assert [code for code in codes if code in clean] == []
    assert [code for code in codes if code in losses] == list(codes)
    assert "below /txn/id;" in losses
    assert "1 scalable topics have properties (/topics/public/default/orders)" in losses
    assert "1 records (/ledgers/ledgers/LAYOUT)" in losses
    assert "1 znodes (/admin/protected)" in losses
    # Another ZooKeeper keeps what ZooKeeper emulates, and has no ACLs either.
    assert [code for code in codes if code in other] == ["[NESTED_STORE]", "[ACL_LOST]"]


def test_a_configuration_store_is_refused_live(stack: Stack, environment: Environment) -> None:
    """A store with participants, tenants and no broker is not migrated live; other clusters must not use it."""
    own = f"{stack.zk_url}/configuration"
    with stores.kazoo(stack.zk_url) as client:
        client.ensure_path("/configuration/admin/clusters/refused")
        client.create(f"/configuration{PARTICIPANTS}/id-", ephemeral=True, sequence=True, makepath=True)
        summary = environment.operator.run(input(stack, source=own, dry_run=True)).summary
        client.ensure_path("/configuration/admin/clusters/global")
    gone = environment.operator.run(input(stack, source=own, dry_run=True)).summary
    assert "[CONFIGURATION_STORE] 1 services use " in summary
    assert "CONFIGURATION_" not in gone
    with stores.kazoo(stack.zk_url) as client:
        client.ensure_path("/configuration/admin/clusters/another")
    for mode in ("live", "offline"):
        shared = environment.operator.run(input(stack, source=own, mode=mode, dry_run=True)).summary
        assert "[CONFIGURATION_SHARED]" in shared
        assert "knows other clusters (another)" in shared
    summary = environment.operator.run(input(stack, source=own, ignore_other_clusters=True, dry_run=True)).summary
    assert "CONFIGURATION_SHARED" not in summary


def test_services_of_a_failed_attempt_must_be_able_to_follow(
    stack: Stack, source: Any, environment: Environment
) -> None:
    """After a failed attempt another target is refused, and services that are not participants are named."""
    failed = {"phase": FlagPhase.FAILED, "targetUrl": stack.oxia_url}
    bookie = "/ledgers/available/failed:3181"
    with flag(source, FlagPhase.FAILED):
        source.create(bookie, b"", ephemeral=True, makepath=True)
        try:
            assert "[OTHER_TARGET]" in environment.operator.run(input(stack, dry_run=True)).summary
            source.set(stores.FLAG, json.dumps(failed).encode())
            missing = environment.operator.run(input(stack, dry_run=True))
            source.create(f"{PARTICIPANTS}/id-", ephemeral=True, sequence=True, makepath=True)
            takes_part = environment.operator.run(input(stack, dry_run=True))
        finally:
            source.delete(bookie)
            source.delete(PARTICIPANTS, recursive=True)
    assert "OTHER_TARGET" not in missing.summary
    assert any("PREPARATION will show" in note and "bookie failed:3181" in note for note in missing.notes)
    assert not any("bookie failed:3181" in note for note in takes_part.notes)


def test_ephemerals_of_unknown_clients_are_refused(stack: Stack, environment: Environment) -> None:
    """A client that takes no part and holds an ephemeral, sequential or not, is named by its session and node."""
    own = f"{stack.zk_url}/unknown-clients"
    with stores.kazoo(stack.zk_url) as client:
        client.ensure_path("/unknown-clients/admin/clusters")
        client.create("/unknown-clients/locks/mine", b"", ephemeral=True, makepath=True)
        client.create("/unknown-clients/locks/other-", b"", ephemeral=True, sequence=True)
        report = environment.operator.run(input(stack, source=own, dry_run=True))
        client.delete("/unknown-clients/locks/mine")
        locked = environment.operator.run(input(stack, source=own, dry_run=True))
        session = client.client_id[0]
    cause = (
        "[FOREIGN_EPHEMERALS] 1 clients that do not take part in the migration have ephemerals: "
        f"session 0x{session:x} with"
    )
    assert f"{cause} /locks/" in report.summary
    # A lock, or BookKeeper's own autorecovery, holds a sequential one.
    assert f"{cause} /locks/other-0000000001" in locked.summary
    assert environment.operator.run(input(stack, source=own, dry_run=True)).summary.count("FOREIGN_EPHEMERALS") == 0


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("zk:no-such-host.invalid:2181", "the name no-such-host.invalid does not resolve"),
        ("zk:127.0.0.1:1", "no server listens on port 1 of 127.0.0.1"),
        ("OXIA", "does not speak ZooKeeper's protocol"),
    ],
)
def test_addresses_without_a_zookeeper(stack: Stack, environment: Environment, source: str, why: str) -> None:
    """A host that does not resolve, a refused port, and Oxia's port given as ZooKeeper are reported within seconds."""
    oxia = stack.oxia_url.removeprefix("oxia://").partition("/")[0]
    wanted = input(stack, source=f"zk:{oxia}" if source == "OXIA" else source, dry_run=True)
    begun = time.monotonic()
    summary = environment.operator.run(wanted).summary
    assert (
        f"[SOURCE_UNREACHABLE] the source cannot be used: no ZooKeeper server answers ({wanted.source[3:]}: " in summary
    )
    assert why in summary
    assert "Kazoo" not in summary
    # A whole migration on a busy machine, and the time that its resolver takes.
    assert time.monotonic() - begun < 30


def test_addresses_without_an_oxia(stack: Stack, environment: Environment) -> None:
    """A namespace that Oxia does not have, and ZooKeeper's port given as Oxia, are reported with one cure each."""
    missing = environment.operator.run(
        input(stack, target=f"{stack.oxia_url.rpartition('/')[0]}/nowhere", dry_run=True)
    )
    assert "has no namespace 'nowhere'; create it" in missing.summary
    assert "0.16" not in missing.summary
    hosts = stack.zk_url.removeprefix("zk:")
    swapped = environment.operator.run(input(stack, target=f"oxia://{hosts}", dry_run=True))
    assert f"if {hosts} is the port of another server, such as ZooKeeper, correct it" in swapped.summary
