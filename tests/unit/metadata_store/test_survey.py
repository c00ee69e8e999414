"""Findings that PRECHECK derives from a scan of the source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from activities.metadata_store import precheck
from activities.metadata_store.precheck import PrecheckRun
from activities.pulsar.registrations import Service
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.roots import is_nested_store, is_pulsars
from clients.store import Record
from clients.stores import Access
from models.lifecycle.failures import NAMED
from models.metadata_store.input import MetadataStoreInput
from models.store_url import parse_store_url
from spark.metadata_store.equivalence import Equivalence, is_held, is_recreated
from spark.metadata_store.spec import PathSample, Surveyed
from tests.support.bookie_cluster.in_memory import answering

INPUT = MetadataStoreInput.model_validate({"cluster": "blue", "source": "zk:a:1", "target": "oxia://b:1"})
NOTHING = Surveyed(1, 0, 0, (0, b""), {}, 0)


def findings(surveyed: Surveyed) -> list[str]:
    """Return the blockers as text; a scan alone needs no server."""
    run = PrecheckRun(INPUT, "metadata-store/blue", Access(), AdminAccess(), unblock=lambda: None)
    run._surveyed(surveyed)  # pyright: ignore[reportPrivateUsage] - what comes before it asks servers
    return [str(blocker) for blocker in run._findings.blockers]  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "field", ["unreadable", "misplaced", "too_high", "no_version", "no_znode", "nested", "protected"]
)
def test_long_lists_are_counted_whole(field: str) -> None:
    """A blocker says how many there are, names ten, and counts the others, however few of them were kept."""
    samples = [PathSample.of([b"/%d/%d" % (scan, number) for number in range(1_250)]) for scan in range(2)]
    sample = PathSample.joined([*samples, PathSample.of([b"/last", b"/but", b"/not", b"/least", b"/x", b"/y", b"/z"])])
    assert len(sample.paths) == NAMED
    (blocker,) = findings(NOTHING._replace(**{field: sample}))
    assert "2,507 " in blocker
    assert "/0/0, /0/1, " in blocker
    assert "/0/9 and 2,497 more" in blocker


def test_a_version_that_oxia_cannot_keep_is_named() -> None:
    """A znode of version -1 is a blocker with the command that cures it; nothing else is said of a good source."""
    assert findings(NOTHING) == []
    (blocker,) = findings(NOTHING._replace(no_version=PathSample.of([b"/overflowed"])))
    assert blocker.startswith("[VERSION_MINUS_ONE] Oxia takes version -1 for a record that does not exist")
    assert "1 znodes (/overflowed)" in blocker
    assert "zkCli.sh set PATH DATA" in blocker


@pytest.mark.parametrize(
    ("target", "version", "refused"), [("oxia://b:1", -1, True), ("oxia://b:1", -2, False), ("zk:b:1", -1, False)]
)
def test_only_oxia_refuses_that_version(target: str, version: int, refused: bool) -> None:
    """Other negative versions, to which a version overflows first, are kept."""
    record = Record(b"/a", b"", version, 0, 0, 0, 0)
    assert Equivalence(INPUT.source_url, parse_store_url(target)).has_no_version(record) is refused


@pytest.mark.parametrize(
    ("path", "recreated"),
    [
        (b"/locks/mine", True),
        # Ten digits need not be a sequence number: a bookie's own id, BookKeeper's lock of ledger 4711.
        (b"/ledgers/available/bookie-1234567890", True),
        (b"/ledgers/underreplication/locks/urL0000004711", True),
        # A sequence of another client: its session is named, and not recreated in the target: it.
        (b"/ledgers/underreplication/auditorelection/V_0000000003", True),
        (b"/tools/lock/8f2c__lock__0000000000", True),
        (b"/counters/producer-name/-0000000000", False),
        (b"/counters/producer-name/-10000000000", False),
        (b"/ledgers/idgen/ID-0000000007", False),
        (b"/ledgers/idgen-long/HOB-0000000001/ID-0000000007", False),
        (b"/pulsar/migration-coordinator/participants/id-0000000001", False),
        (b".pulsar-oxia-session-canary-0b5b0a5e-6d2f-4c0e-9a6e-7a1d2f1c3e4b", False),
    ],
)
def test_which_ephemerals_are_recreated(path: bytes, recreated: bool) -> None:
    """Pulsar's own sequential ephemerals, the migration's and the canaries of sessions are not recreated."""
    assert is_recreated(path) is recreated


@pytest.mark.parametrize(
    ("path", "held"),
    [
        (b"/locks/mine", True),
        (b"/tools/lock/8f2c__lock__0000000000", True),
        (b"/counters/producer-name/-0000000000", True),
        (b"/pulsar/migration-coordinator/participants/id-0000000001", False),
        (b".pulsar-oxia-session-canary-0b5b0a5e-6d2f-4c0e-9a6e-7a1d2f1c3e4b", False),
    ],
)
def test_which_ephemerals_show_a_client(path: bytes, held: bool) -> None:
    """A sequential ephemeral shows that its client uses the store, whether or not it is recreated."""
    assert is_held(path) is held


@pytest.mark.parametrize(
    ("path", "nested"),
    [
        (b"/ledgers/LAYOUT", False),
        # Of autorecovery, which runs in bookies by default.
        (b"/ledgers/underreplication/LAYOUT", False),
        (b"/ledgers/available", False),
        (b"/ledgers/available/available", False),
        (b"/pulsar/migration-coordinator", False),
        (b"/stream/servers/available", False),
        (b"/ledgers/ledgers/LAYOUT", True),
        (b"/ledgers/ledgers/available", True),
        (b"/pulsar/ledgers/LAYOUT", True),
        (b"/pulsar/pulsar/migration-coordinator", True),
        # A user's names.
        (b"/managed-ledgers/public/default/persistent/LAYOUT", False),
        (b"/managed-ledgers/pulsar/migration-coordinator", False),
        (b"/schemas/public/default/available", False),
        # Copied, and left by the cleanup.
        (b"/other/ledgers/LAYOUT", False),
    ],
)
def test_which_records_show_a_nested_store(path: bytes, nested: bool) -> None:
    """The root of another cluster is found where a cleanup would remove it, and names that users choose are not it."""
    assert is_nested_store(path) is nested


@pytest.mark.parametrize(
    ("path", "pulsars"), [(b"/ledgers", True), (b"/ledgers/x", True), (b"/else", False), (b"x", False), (b"", False)]
)
def test_which_records_are_pulsars(path: bytes, pulsars: bool) -> None:
    """Only what lies below a top-level record of Pulsar is Pulsar's; a key without a slash in front never is."""
    assert is_pulsars(path) is pulsars


@pytest.mark.parametrize(
    ("source", "target", "path", "refused"),
    [
        ("oxia://a:1", "zk:b:1", b"x", True),
        ("oxia://a:1", "zk:b:1", b"/a//b", True),
        ("oxia://a:1", "zk:b:1", b"/a/../b", True),
        ("oxia://a:1", "zk:b:1", b"/a/", True),
        ("oxia://a:1", "zk:b:1", b"/a\x00b", True),
        ("oxia://a:1", "zk:b:1", b"/a\xff", True),
        ("oxia://a:1", "zk:b:1", "/a/..b/ü😀".encode(), False),
        ("oxia://a:1", "oxia://b:1", b"x", False),
    ],
)
def test_names_that_no_znode_can_have(source: str, target: str, path: bytes, refused: bool) -> None:
    """A record of Oxia whose key cannot be a znode's path is refused where ZooKeeper is the target."""
    rules = Equivalence(parse_store_url(source), parse_store_url(target))
    assert rules.has_no_znode(Record(path, b"", 0, 0, 0, 0, 0)) is refused


def test_a_count_of_acls_says_what_was_read() -> None:
    """ACLs are read of a sample, and the count of protected znodes does not claim to be of all."""
    (blocker,) = findings(NOTHING._replace(protected=PathSample.of([b"/a"])))
    assert "of the znodes whose ACL was read, 1 znodes (/a) do not give everyone all permissions" in blocker


@pytest.mark.parametrize(
    ("earlier", "target", "same"),
    [
        ("zk:b:2181,c:2181/new", "zk:c:2181,d:2181/new", True),
        ("zk:b:2181,c:2181/new", "zk:b:2181,c:2181/newer", False),
        ("zk:b:2181/new", "zk:b:2181/new/inner", False),
        ("zk:b:2181/new", "zk:d:2181/new", False),
        ("oxia://b:6648/new", "oxia://b:6648/new", True),
        ("no address", "oxia://b:6648/new", False),
    ],
)
def test_a_failed_attempt_had_the_same_target(earlier: str, target: str, *, same: bool) -> None:
    """Services of a failed attempt follow to the same tree, whichever of its servers the address names."""
    plan = MetadataStoreInput.model_validate({"cluster": "blue", "source": "zk:a:1", "target": target})
    run = PrecheckRun(plan, "metadata-store/blue", Access(), AdminAccess(), unblock=lambda: None)
    run._earlier_target = earlier  # pyright: ignore[reportPrivateUsage]
    run._check_earlier_attempt([])  # pyright: ignore[reportPrivateUsage]
    assert [blocker.code for blocker in run._findings.blockers] == ([] if same else ["OTHER_TARGET"])  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("bookies", "refused"),
    [((), ["CONFIGURATION_STORE"]), ((Service("bookie one", 7, b""),), [])],
    ids=["none", "some"],
)
def test_a_store_with_bookies_is_a_clusters_own(
    monkeypatch: pytest.MonkeyPatch, bookies: tuple[Service, ...], refused: list[str]
) -> None:
    """A store without brokers is taken for a shared configuration store only where no bookie is registered either."""
    reader: Any = SimpleNamespace(children=answering(lambda: [b"/admin/clusters/blue"]))
    run = PrecheckRun(INPUT, "metadata-store/blue", Access(), AdminAccess(), unblock=lambda: None)
    monkeypatch.setattr(precheck, "registered", answering(lambda: bookies))
    monkeypatch.setattr(run, "_running", answering(lambda: False))
    run._check_configuration_store(reader, {8})  # pyright: ignore[reportPrivateUsage]
    assert [blocker.code for blocker in run._findings.blockers] == refused  # pyright: ignore[reportPrivateUsage]
