"""Conclusions of PRECHECK from the state of two BookKeeper clusters."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from activities.bookie_cluster.cluster_inspection import ClusterInspection, check_pair, check_space, needed_bytes
from activities.lifecycle.precheck import Findings
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.ledgers import Bookie
from clients.errors import StoreDenied, StoreProtocolError, StoreUnreachable
from tests.support.bookie_cluster.records import by_id, input, ledger

DISK = 1_000_000


def seen(name: str, records: Iterable[LedgerFacts] = (), *, bookies: int = 2, free: int = DISK) -> ClusterInspection:
    """Return a cluster whose bookies have this much free space each."""
    cluster = input().source if name == "a" else input().target
    root = ClusterInspection(cluster, by_id(records), {}, f"id of {name}")
    root.free = {f"bookie-{number}": free for number in range(bookies)}
    root.total = dict.fromkeys(root.free, DISK)
    return root


def codes(findings: Findings) -> list[str]:
    """Return the codes of the blockers."""
    return [blocker.code for blocker in findings.blockers]


def space(target: ClusterInspection, records: Iterable[LedgerFacts], largest: int = 2) -> Findings:
    """Return the findings about the target's space."""
    findings = Findings()
    check_space(target, by_id(records), largest, findings)
    return findings


def test_one_cluster_under_two_names() -> None:
    """Two addresses of one cluster are found out by the id that it got when it was made."""
    findings, other = Findings(), seen("b")
    other.instance_id = "id of a"
    check_pair(seen("a"), other, {}, findings)

    assert codes(findings) == ["SAME_CLUSTER"]


def test_two_unrelated_clusters_pass() -> None:
    """Two clusters that have nothing to do with each other are fine."""
    findings = Findings()
    check_pair(seen("a", [ledger(1)]), seen("b"), {}, findings)

    assert not findings.blockers
    assert not findings.warnings


@pytest.mark.parametrize(
    ("ids", "bookies", "reused"),
    [
        ({"h1:3181"}, {}, ["h1:3181"]),
        ({"h2:3181", "bookie-7"}, {}, []),
        ({"bookie-7"}, {"bookie-7": Bookie("bookie-7", "h1", 3181, writable=True)}, ["h1:3181"]),
    ],
)
def test_addresses_of_the_source_are_not_used_again(
    ids: set[str], bookies: dict[str, Bookie], reused: list[str]
) -> None:
    """A bookie of the target at an address of the source, in use or only in its ledgers or cookies, is a blocker."""
    source, target, findings = seen("a"), seen("b"), Findings()
    source.bookie_ids, source.bookies = frozenset(ids), bookies
    target.bookies = {"bookie-7": Bookie("bookie-7", "h1", 3181, writable=True)}
    check_pair(source, target, {}, findings)

    assert codes(findings) == ["ADDRESS_REUSED"] * bool(reused)
    assert all(address in findings.blockers[0].cause for address in reused)


@pytest.mark.parametrize(
    ("bookie_id", "reused"),
    [("10.0.0.1:3181", True), ("10.0.0.1:3182", False), ("gone.example:3181", False), ("bookie-7", False)],
)
def test_one_address_may_be_spelled_in_two_ways(bookie_id: str, reused: bool) -> None:
    """A host name and its IP address are one address; names that are gone count only as they are written."""
    source, target, findings = seen("a"), seen("b"), Findings()
    # Some resolvers give one answer for every name that does not exist.
    resolved = {"new.example": {"10.0.0.1"}, "gone.example": {"10.9.9.9"}, "lost.example": {"10.9.9.9"}}
    source.bookie_ids, source.bookies = frozenset({bookie_id}), {}
    target.bookie_ids = frozenset({"lost.example:3181"})
    target.bookies = {"bookie-7": Bookie("bookie-7", "new.example", 3181, writable=True)}
    check_pair(source, target, resolved, findings)

    assert codes(findings) == ["ADDRESS_REUSED"] * reused
    assert all(f"{bookie_id} (as new.example:3181)" in blocker.cause for blocker in findings.blockers)


def test_ledgers_that_the_target_already_has_are_a_warning() -> None:
    """Ids that both clusters have may be copies: they are a warning, not a blocker, as are ledgers of others."""
    findings = Findings()
    check_pair(seen("a", [ledger(1)]), seen("b", [ledger(1), ledger(2), ledger(3)]), {}, findings)

    assert not findings.blockers
    assert findings.warnings[0].startswith("1 ids of a")
    assert findings.warnings[1].startswith("b has 2 ledgers")


def test_needed_space_counts_every_replica() -> None:
    """Each entry is counted with its header, as often as it is written."""
    assert needed_bytes([ledger(1, length=100)]) == 2 * (100 + 10 * 84)


def test_space_for_what_the_target_lacks() -> None:
    """Only ledgers that are missing there need space."""
    records = [ledger(1, length=DISK), ledger(2, length=10)]

    assert codes(space(seen("b", free=DISK // 2), records)) == ["NO_SPACE"]
    assert codes(space(seen("b", [ledger(1, length=DISK)], free=DISK // 2), records)) == []


def test_nearly_full_disks_are_a_warning() -> None:
    """Bookies that would become read-only before they are full are a warning, because that limit is configurable."""
    findings = space(seen("b", free=DISK // 25), [ledger(1, length=DISK // 26)])

    assert not findings.blockers
    assert "read-only" in findings.warnings[0]


def test_no_bookies_or_too_few() -> None:
    """A target without a writable bookie takes nothing, and one with too few not the largest ensemble."""
    assert codes(space(seen("b", bookies=0), [ledger(1)])) == ["NO_WRITABLE_BOOKIES"]
    assert codes(space(seen("b", bookies=2), [ledger(1)], largest=3)) == ["ENSEMBLE_TOO_LARGE"]


def test_failed_checks_are_blockers() -> None:
    """A check that cannot be done is a blocker with the code of its cause, and keeps none from running."""
    findings = Findings()

    def fail(error: Exception) -> None:
        raise error

    for error in (StoreUnreachable("down"), StoreDenied("no"), StoreProtocolError("what")):
        assert not findings.check("the store", lambda error=error: fail(error))
    assert findings.check("the store", lambda: None)

    assert codes(findings) == ["UNREACHABLE", "DENIED", "UNREADABLE"]
    assert "the store cannot be used: down" in findings.blockers[0].cause
