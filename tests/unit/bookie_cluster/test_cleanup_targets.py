"""Choice of the ledgers that a cleanup or a rollback may delete."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from activities.bookie_cluster.cleanup import (
    Facts,
    Judgement,
    judge_copies,
    judge_source,
    misrouted_ledgers,
    target_only,
)
from clients.bookkeeper.ledger_table import LedgerFacts
from clients.bookkeeper.metadata import LedgerState
from clients.pulsar.reference_table import ReferenceTable
from clients.pulsar.references import LedgerReference, ReferenceKind
from models.bookie_cluster.input import Routing
from tests.support.bookie_cluster.records import by_id, input, ledger, reference

RESTART, ATTRIBUTION = Routing.RESTART, Routing.ATTRIBUTION
USERS = ("broker one uses it",)


def facts(
    routing: Routing,
    source: Iterable[LedgerFacts],
    target: Iterable[LedgerFacts] = (),
    named: Iterable[LedgerReference] = (),
    *,
    verified: Iterable[int] = (),
    line: int | None = 100,
    users: tuple[str, ...] = (),
    exclusive: bool = True,
    failed: Iterable[int] = (),
) -> Facts:
    """Return facts in which the verified ledgers were compared with the target's current znodes."""
    by_number = by_id(target)
    copies = {number: by_number[number].mzxid if number in by_number else 5 for number in verified}
    return Facts(
        input(routing, exclusive=exclusive),
        by_id(source),
        by_number,
        ReferenceTable(named),
        copies,
        line,
        users,
        frozenset(failed),
    )


def deleted(judgement: Judgement) -> list[int]:
    """Return the ids of the ledgers that may be deleted."""
    return list(judgement.delete)


class TestSource:
    """Tests of what a cleanup deletes from the old cluster."""

    @pytest.mark.parametrize("routing", Routing)
    def test_verified_ledgers_are_targets(self, routing: Routing) -> None:
        """A ledger may be deleted if the target has a verified copy and references point to that copy."""
        judgement = judge_source(
            facts(routing, [ledger(1)], [ledger(1)], [reference(1, cluster="b")], verified=[1]), force=False
        )

        assert deleted(judgement) == [1]
        assert not judgement.retained

    @pytest.mark.parametrize("force", [False, True])
    def test_referred_but_unverified_stays(self, force: bool) -> None:
        """A ledger that is referred to and not verified in the target is never deleted, not even by force."""
        judgement = judge_source(facts(RESTART, [ledger(1)], [ledger(1)], [reference(1)]), force=force)

        assert not judgement.delete
        assert list(judgement.retained) == ["are referred to, and are not verified in b"]

    @pytest.mark.parametrize("routing", Routing)
    @pytest.mark.parametrize("force", [False, True])
    def test_the_last_comparison_counts(self, routing: Routing, force: bool) -> None:
        """A ledger that was verified once, and differed when it was compared again, stays: the copy may be bad."""
        named = [reference(1, cluster="b")]
        judgement = judge_source(facts(routing, [ledger(1)], [ledger(1)], named, verified=[1], failed=[1]), force=force)

        assert not judgement.delete

    @pytest.mark.parametrize("force", [False, True])
    @pytest.mark.parametrize("verified", [[], [1]])
    def test_compacted_ledgers_that_failed_stay(self, force: bool, verified: list[int]) -> None:
        """A compacted ledger that was not copied is never deleted: a cursor's ledger may name it."""
        compacted = ledger(1, component="compacted-ledger")
        judgement = judge_source(facts(RESTART, [compacted], verified=verified, failed=[1]), force=force)

        assert list(judgement.retained) == ["may be referred to by a cursor's ledger (compacted topics)"]

    @pytest.mark.parametrize("force", [False, True])
    def test_changed_copy_is_not_verified(self, force: bool) -> None:
        """A copy whose content is another one now does not count, though it was verified once."""
        judgement = judge_source(
            facts(RESTART, [ledger(1)], [ledger(1, length=7)], [reference(1)], verified=[1]), force=force
        )

        assert not judgement.delete

    def test_copy_with_moved_replicas_is_verified(self) -> None:
        """When replicas of the copy have moved, which changes its znode, it is the same ledger still."""
        moved = ledger(1, mzxid=99)
        state = facts(RESTART, [ledger(1)], [moved], [reference(1)])._replace(copies={1: 5})

        assert deleted(judge_source(state, force=False)) == [1]

    def test_lost_copy_keeps_the_original(self) -> None:
        """A ledger that is referred to, and whose copy has vanished from the target, is kept."""
        judgement = judge_source(facts(RESTART, [ledger(1)], [], [reference(1)], verified=[1]), force=True)

        assert not judgement.delete

    def test_copy_that_pulsar_deleted(self) -> None:
        """A ledger that was verified, and that Pulsar has deleted from the target since, may go."""
        judgement = judge_source(facts(RESTART, [ledger(1)], [], [], verified=[1]), force=False)

        assert deleted(judgement) == [1]

    def test_brokers_on_the_source_keep_all(self) -> None:
        """While a broker uses the source, or may use it, nothing is deleted unless it is forced."""
        state = facts(RESTART, [ledger(1)], [ledger(1)], verified=[1], users=USERS)

        assert not judge_source(state, force=False).delete
        assert "broker one uses it" in next(iter(judge_source(state, force=False).retained))
        assert deleted(judge_source(state, force=True)) == [1]

    def test_never_copied_needs_force(self) -> None:
        """A ledger that was never copied and has no reference is deleted by force only, even if it is misrouted."""
        state = facts(RESTART, [ledger(1), ledger(101)])

        assert judge_source(state, force=False).retained == {
            "were never copied, although nothing refers to them": 1,
            "were created in a after brokers were directed away from it": 1,
        }
        assert deleted(judge_source(state, force=True)) == [1, 101]

    @pytest.mark.parametrize("routing", Routing)
    def test_others_ledgers_stay(self, routing: Routing) -> None:
        """If others may use the source, a ledger that was never copied is not deleted, not even by force."""
        judgement = judge_source(facts(routing, [ledger(1), ledger(101)], exclusive=False), force=True)

        assert not judgement.delete
        assert judgement.retained == {"are not known to be this cluster's: others may use a too": 2}

    @pytest.mark.parametrize("routing", Routing)
    def test_open_ledgers_stay(self, routing: Routing) -> None:
        """The writer of an open ledger that was never copied is unknown, so that even a forced cleanup keeps it."""
        judgement = judge_source(facts(routing, [ledger(1, state=LedgerState.OPEN)]), force=True)

        assert not judgement.delete

    @pytest.mark.parametrize("cluster", [None, "a"])
    def test_attributed_to_the_source(self, cluster: str | None) -> None:
        """With attributions, a ledger that is said to be in the source, or nowhere, is kept even if it is verified."""
        state = facts(ATTRIBUTION, [ledger(1)], [ledger(1)], [reference(1, cluster=cluster)], verified=[1])

        assert not judge_source(state, force=True).delete

    def test_one_of_two_references_keeps_a_ledger(self) -> None:
        """A ledger that two positions refer to is kept until both say that it is in the target."""
        named = [reference(1, cluster="b"), reference(1, ReferenceKind.CURSOR, cluster="a")]

        assert not judge_source(facts(ATTRIBUTION, [ledger(1)], [ledger(1)], named, verified=[1]), force=True).delete

    def test_compacted_ledgers_with_attributions(self) -> None:
        """With attributions, compacted ledgers are kept: what refers to them may lie in a cursor's ledger."""
        compacted = ledger(1, component="compacted-ledger")
        judgement = judge_source(facts(ATTRIBUTION, [compacted], [compacted], verified=[1]), force=True)

        assert list(judgement.retained) == ["may be referred to by a cursor's ledger (compacted topics)"]

    def test_listing(self) -> None:
        """The listing counts ledgers and bytes, and says how many are kept for which reason."""
        state = facts(RESTART, [ledger(2), ledger(1), ledger(3)], [ledger(1), ledger(2)], verified=[1, 2])

        listed = judge_source(state, force=False).listed("a")

        assert (listed.cluster, listed.ledgers, listed.entry_bytes, listed.examples) == ("a", 2, 200, (1, 2))
        assert (listed.retained, listed.reasons) == (1, ("1 were never copied, although nothing refers to them",))


class TestCopies:
    """Tests of what a rollback deletes from the target."""

    def test_verified_unfinished_and_unrecorded_copies(self) -> None:
        """Copies go: verified ones, unfinished ones, and those that were finished but not recorded."""
        source = [ledger(1), ledger(2), ledger(3)]
        target = [ledger(1), ledger(2, state=LedgerState.OPEN, is_copy=True), ledger(3)]

        assert deleted(judge_copies(facts(RESTART, source, target, verified=[1]))) == [1, 2, 3]

    def test_own_ledgers_stay(self) -> None:
        """The target's own ledgers stay, those with an id of the source included."""
        target = [
            ledger(1, length=7),
            ledger(2, state=LedgerState.OPEN, component="else", is_copy=True),
            ledger(3, state=LedgerState.OPEN),
            ledger(50),
        ]

        judgement = judge_copies(facts(RESTART, [ledger(1), ledger(2), ledger(3)], target))

        assert not judgement.delete
        assert judgement.retained == {"are not copies of this switch": 4}

    def test_ledger_that_was_found_different_stays(self) -> None:
        """A ledger of the target whose entries differ is not a copy, although its metadata are the same."""
        state = facts(RESTART, [ledger(1), ledger(2)], [ledger(1), ledger(2)])

        assert deleted(judge_copies(state._replace(failed=[2]))) == [1]

    def test_referred_to_there(self) -> None:
        """A copy that is attributed to the target is kept."""
        state = facts(ATTRIBUTION, [ledger(1)], [ledger(1)], [reference(1, cluster="b")], verified=[1])

        assert not judge_copies(state).delete

    def test_last_copy_stays(self) -> None:
        """A copy whose source has vanished is kept while something refers to it, and goes when nothing does."""
        assert not judge_copies(facts(RESTART, [], [ledger(1)], [reference(1)], verified=[1])).delete
        assert deleted(judge_copies(facts(RESTART, [], [ledger(1)], verified=[1]))) == [1]


def test_misrouted_ledgers_are_above_the_cutover() -> None:
    """Misrouted are ledgers that the source got after the cut-over, and that were not copied."""
    source = [ledger(100), ledger(101), ledger(102)]

    assert list(misrouted_ledgers(facts(RESTART, source, [ledger(102)], verified=[102]))) == [101]
    assert misrouted_ledgers(facts(RESTART, source, line=None)) == {}


def test_others_ledgers_are_neither_misrouted_nor_gained() -> None:
    """If others may use both clusters, only ledgers that this cluster refers to count as its new ones."""
    named = [reference(102), reference(502)]
    source, target = [ledger(101), ledger(102)], [ledger(501), ledger(502)]
    state = facts(RESTART, source, target, named, exclusive=False)

    assert list(misrouted_ledgers(state)) == [102]
    assert list(target_only(state)) == [502]


def test_gained_ledgers() -> None:
    """The target has gained what neither the source has nor was copied from it."""
    assert list(target_only(facts(RESTART, [ledger(1)], [ledger(1), ledger(2), ledger(500)], verified=[2]))) == [500]
