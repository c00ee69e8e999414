"""Mutants of the bookie cluster migration: registry, tail, executors, order of the steps, and cleanup."""

from __future__ import annotations

from tests.mutants.marks import any_version, becomes, drop, swap, unfiltered, without, without_last_argument
from tests.mutants.mutant import Known, mutants

_BOOKIE_REGISTRY = "tests/unit/clients/test_bookie_registry.py"
_BOOKIES = "tests/unit/clients/test_bookies.py"
_BOOKKEEPER_COPY = "tests/integration/clients/test_bookkeeper_copy.py"
_EXISTING_COPIES = "tests/integration/clients/test_existing_copies.py"
_LEDGER_DIRECTORY = "tests/integration/clients/test_ledger_directory.py"
_TAIL = "tests/unit/bookie_cluster/test_tail.py"
_LEDGERS = "tests/unit/bookie_cluster/test_ledgers.py"
_PULSAR_FORMATS = "tests/unit/clients/test_pulsar_formats.py"
_TASKS = "tests/unit/bookie_cluster/test_tasks.py"
_RECOVERY = "tests/unit/clients/test_recovery.py"
_PROGRESS = "tests/unit/bookie_cluster/test_progress.py"
_PRECHECK_BROKERS = "tests/unit/bookie_cluster/test_precheck_brokers.py"
_BROKER_STEPS = "tests/unit/bookie_cluster/test_broker_steps.py"
_MISROUTED = "tests/unit/bookie_cluster/test_misrouted_ledgers.py"
_CLEANUP = "tests/unit/bookie_cluster/test_cleanup.py"
_LEDGER_METADATA = "tests/unit/clients/test_ledger_metadata.py"
_CLEANUP_TARGETS = "tests/unit/bookie_cluster/test_cleanup_targets.py"
_PATHS = "tests/workflows/bookie_cluster/test_paths.py"
_ROLLBACK = "tests/workflows/bookie_cluster/test_rollback.py"
_MISROUTED_STEPS = "tests/workflows/bookie_cluster/test_misrouted.py"
_GIVEN_UP = "tests/workflows/bookie_cluster/test_given_up.py"

MUTANTS = mutants(
    {
        _BOOKIE_REGISTRY: {
            "bookie-cluster/a-third-active-is-flipped-over": drop,
            "bookie-cluster/two-active-are-flipped": becomes("not active & wanted.keys()"),
            "bookie-cluster/a-flip-without-the-others": drop,
            "bookie-cluster/a-flip-of-any-version": swap("clusters[name].version", "-1"),
            "bookie-cluster/a-lock-of-any-version": Known(
                any_version, "each of our writers changes the claim too, whose version is in the same transaction"
            ),
            "bookie-cluster/a-registration-without-the-lock": Known(
                swap("lock, ", ""),
                "each of our writers changes the claim too, whose version is in the same transaction",
            ),
            "bookie-cluster/a-registration-without-the-claim": becomes("self.store.transaction([lock, *creations])"),
            "bookie-cluster/a-second-active-is-registered": drop,
            "bookie-cluster/a-write-without-the-claim": becomes("self.store.transaction(parts)"),
            "bookie-cluster/a-node-of-any-version": Known(
                any_version, "only the claim's holder writes these nodes, and its version is in the same transaction"
            ),
            "bookie-cluster/parents-without-the-claim": drop,
            "bookie-cluster/a-run-that-turned-back-goes-forward": drop,
            "bookie-cluster/a-directive-without-the-claim": becomes("self.store.transaction([lock, change])"),
            "bookie-cluster/a-repeated-directive-is-a-new-one": drop,
        },
        _BOOKIES: {
            "bookie-cluster/another-bookie-answers-for-a-lost-one": becomes(
                "return '127.0.0.1', int(bookie_id.rpartition(':')[2])"
            ),
            "bookie-cluster/a-registration-counts-after-its-end": becomes(
                "bookie_id in self._known or self._look_up()"
            ),
            "bookie-cluster/batches-of-a-bookie-that-refuses-them": becomes("True"),
            "bookie-cluster/batches-of-a-bookie-that-ends-the-connection": becomes("True"),
            "bookie-cluster/a-ledger-of-a-false-length-is-read-as-a-whole": drop,
        },
        f"{_BOOKKEEPER_COPY}::test_entries_on_a_dead_bookie_fail_one_ledger_only": {
            "bookie-cluster/an-id-that-is-written-again-is-deleted": drop,
        },
        f"{_EXISTING_COPIES}::test_a_rollback_leaves_originals_that_were_never_closed": {
            "bookie-cluster/open-originals-are-taken-for-copies": without(0),
        },
        f"{_EXISTING_COPIES}::test_a_copy_that_another_client_has_closed_is_completed": {
            "bookie-cluster/what-was-closed-before-is-deleted": becomes("False"),
            "bookie-cluster/a-later-worker-forgets-what-was-closed": becomes("None"),
        },
        f"{_LEDGER_DIRECTORY}::test_an_id_that_was_deleted_is_not_created_again": {
            "bookie-cluster/a-deleted-id-is-created-again": drop,
        },
        f"{_LEDGER_DIRECTORY}::test_a_deletion_in_flight_is_refused_after_a_takeover": {
            "bookie-cluster/a-late-deletion-without-a-permit": without_last_argument,
        },
        _TAIL: {
            "bookie-cluster/a-tail-leaves-permits-of-earlier-attempts": drop,
            "bookie-cluster/a-ledger-that-cannot-be-decoded-counts-as-lost": drop,
            "bookie-cluster/no-last-check-for-brokers": drop,
            "bookie-cluster/no-check-for-brokers-after-the-copy": Known(
                drop, "the last look finds the same, later; this one only spares the comparison"
            ),
            "bookie-cluster/references-are-not-read-again": becomes("not self._stores.references()"),
            "bookie-cluster/a-late-tail-deletes": without_last_argument,
            "bookie-cluster/a-late-tail-starts-again": Known(
                drop, "the copy looks at the claim before its first act too"
            ),
            "bookie-cluster/copies-that-are-referred-to-are-deleted": drop,
            "bookie-cluster/ledgers-of-others-are-deleted": drop,
            "bookie-cluster/copies-of-living-ledgers-are-deleted": without(0),
            "bookie-cluster/copies-of-undecodable-ledgers-are-deleted": drop,
            "bookie-cluster/open-copies-without-a-record-are-copied-back": becomes("False"),
            "bookie-cluster/half-made-copies-are-compared-with-their-originals": becomes("return True"),
            "bookie-cluster/what-the-source-has-in-part-is-left-out": becomes("is_whole = unfinished"),
            "bookie-cluster/what-is-referred-to-is-not-copied-back": becomes("return not was_there"),
            "bookie-cluster/deleted-ledgers-are-copied-back": becomes("return True"),
            "bookie-cluster/originals-that-brokers-never-left-are-compared": becomes("return True"),
            "bookie-cluster/what-an-earlier-switch-left-is-copied-back": becomes("was_there"),
            "bookie-cluster/lost-copies-count-as-deleted": becomes("True"),
            "bookie-cluster/the-tail-does-not-wait-for-brokers": drop,
            "bookie-cluster/the-change-counter-from-before-the-last-broker-left": becomes("stores.brokers()"),
            "bookie-cluster/a-broker-that-came-and-went-is-overlooked": becomes("self._stores.brokers()"),
            "bookie-cluster/nothing-but-ids-is-compared": swap(
                "not verified.holds(ledger, target.get(ledger.ledger_id))", "ledger.ledger_id not in target"
            ),
        },
        _LEDGERS: {
            "bookie-cluster/any-ledger-that-cannot-be-decoded-stops-all": unfiltered,
            "bookie-cluster/open-ledgers-count-as-equal": without(1),
            "bookie-cluster/other-content-counts-as-equal": without(2),
            "bookie-cluster/a-changed-copy-counts-as-equal": becomes("record.ledger_id in self.copies"),
            "bookie-cluster/a-changed-original-counts-as-equal": becomes("record.ledger_id in self.originals"),
            "bookie-cluster/a-ledger-that-was-created-again-is-the-same": swap("self.czxid <= zxid <=", "zxid <="),
            "bookie-cluster/zxids-of-another-zookeeper": swap(" <= self.mzxid", ""),
            "bookie-cluster/ledgers-of-others-move": without(1),
            "bookie-cluster/ledgers-of-the-target-move": without(1),
        },
        _PULSAR_FORMATS: {
            "bookie-cluster/a-damaged-topic-counts-as-a-parent": becomes("True"),
        },
        _TASKS: {
            "bookie-cluster/recovery-without-a-check-of-the-claim": drop,
            "bookie-cluster/a-copy-without-a-check-of-the-claim": drop,
            "bookie-cluster/what-could-not-be-recovered-is-copied": swap(" - lost", ""),
        },
        _RECOVERY: {
            "bookie-cluster/a-writer-that-continues-is-closed": drop,
            "bookie-cluster/a-silent-bookie-counts-as-fenced": swap("not in _ABSENT", "is None"),
            "bookie-cluster/a-silent-bookie-counts-as-without-the-entry": becomes("len(flaws)"),
            "bookie-cluster/one-that-lacks-an-entry-is-enough": becomes("absent >= 1"),
            "bookie-cluster/damaged-entries-are-taken": drop,
            "bookie-cluster/the-end-is-what-was-confirmed": becomes("break"),
            "bookie-cluster/the-end-is-not-written-again": drop,
            "bookie-cluster/fewer-than-the-ack-quorum-are-enough": drop,
        },
        _PROGRESS: {
            "bookie-cluster/progress-of-a-late-attempt": becomes(
                "self._store.set(_node(top, number), chunk, -1) if stored "
                "else self._store.create(_node(top, number), chunk)"
            ),
            "bookie-cluster/a-late-attempt-forgets-failures": drop,
            "bookie-cluster/another-scope-keeps-what-was-compared": drop,
            "bookie-cluster/deletions-are-counted-from-zero": becomes("0"),
        },
        _PRECHECK_BROKERS: {
            "bookie-cluster/a-broker-without-a-known-release": without(2),
        },
        _BROKER_STEPS: {
            "bookie-cluster/a-late-attempt-stops-brokers": drop,
            "bookie-cluster/a-late-attempt-starts-brokers": drop,
            "bookie-cluster/a-stop-only-where-brokers-are-registered": becomes(
                "not controller.by_hand and brokers(store)"
            ),
            "bookie-cluster/not-registered-is-stopped": becomes("list[str]()"),
            "bookie-cluster/a-registration-without-a-session-is-stopped": without(0),
            "bookie-cluster/each-attempt-counts-its-own-pause": without(0),
            "bookie-cluster/a-stop-after-the-longest-pause": drop,
            "bookie-cluster/a-directive-though-a-broker-came": drop,
            "bookie-cluster/a-broker-that-comes-with-the-directive": becomes("True"),
            "bookie-cluster/a-directive-forward-after-the-one-back": without_last_argument,
            "bookie-cluster/a-directive-of-a-late-attempt": Known(
                becomes("registry.claim.require().directed"), "the directive's own transaction renews the claim too"
            ),
            "bookie-cluster/some-brokers-are-enough": drop,
            "bookie-cluster/a-broker-elsewhere-is-enough": becomes("not seen.text"),
            "bookie-cluster/a-brokers-word-is-enough": swap("is None", "is False"),
            "bookie-cluster/the-claim-of-a-later-run-is-released": drop,
        },
        _MISROUTED: {
            "bookie-cluster/ledgers-from-before-the-directive-are-not-checked": becomes("False"),
            "bookie-cluster/a-target-that-brokers-never-used-is-waited-for": becomes(
                "[self._doubt] if self._doubt else []"
            ),
            "bookie-cluster/a-target-that-brokers-never-used-is-not-read-again": drop,
            "bookie-cluster/misrouted-ledgers-are-not-checked-before-the-start": drop,
            "bookie-cluster/misrouted-ledgers-are-not-checked-after-the-start": drop,
            "bookie-cluster/misrouted-ledgers-are-not-checked-while-their-broker-runs": without(1),
            "bookie-cluster/misrouted-ledgers-of-a-silent-broker-are-not-checked": without(2),
            "bookie-cluster/a-rollback-waits-for-a-broker-with-misrouted-ledgers": without(0),
            "bookie-cluster/moved-copies-are-early-ledgers": becomes("newer"),
            "bookie-cluster/open-copies-are-early-ledgers": without(1),
        },
        f"{_BROKER_STEPS}::test_brokers_that_run_are_asked_again_before_the_directive": {
            "bookie-cluster/a-directive-to-brokers-with-other-settings": drop,
        },
        f"{_BROKER_STEPS}::test_the_census_precedes_the_order": {
            "bookie-cluster/a-stop-without-a-second-census": drop,
        },
        f"{_BROKER_STEPS}::test_brokers_are_not_stopped_once_their_metadata_move": {
            "bookie-cluster/a-stop-though-the-metadata-moved": drop,
            "bookie-cluster/a-directive-though-the-metadata-moved": drop,
        },
        f"{_BROKER_STEPS}::test_a_broker_that_registers_at_the_directive_is_asked_after_it": {
            "bookie-cluster/brokers-that-come-with-the-directive-are-not-asked": drop,
        },
        f"{_BROKER_STEPS}::test_a_broker_in_a_restart_is_waited_for": {
            "bookie-cluster/a-broker-in-a-restart-ends-the-switch": becomes("blockers"),
        },
        _CLEANUP: {
            "bookie-cluster/one-damaged-replica-ends-the-cleanup": swap(
                "StoreUnreachable(why, ledger_id=ledger_id", "cause.saying(why"
            ),
            "bookie-cluster/a-cleanup-that-waits-scans-everything": drop,
            "bookie-cluster/originals-are-deleted-while-a-bookie-is-away": drop,
            "bookie-cluster/originals-are-deleted-though-a-replica-is-lost": drop,
            "bookie-cluster/a-cleanup-before-the-flip": drop,
            "bookie-cluster/a-cleanup-next-to-an-earlier-attempt": drop,
            "bookie-cluster/copies-are-deleted-next-to-an-earlier-attempt": drop,
            "bookie-cluster/a-late-attempt-deletes": becomes("progress.note_deleted = lambda *_: None"),
            "bookie-cluster/a-repeated-step-deletes-more": swap("max(0, most - before)", "most"),
            "bookie-cluster/references-are-read-before-ledgers-only": drop,
            "bookie-cluster/ledgers-of-any-version-are-deleted": swap("record.version", "None"),
            "bookie-cluster/copies-are-deleted-while-brokers-are-directed-there": drop,
            "bookie-cluster/copies-are-deleted-while-brokers-are-there": swap(
                "not cluster.url.overlaps(source.root)", "False"
            ),
            "bookie-cluster/copies-are-deleted-while-brokers-say-nothing": swap("cluster.url is None", "False"),
        },
        _LEDGER_METADATA: {
            "bookie-cluster/last-entries-are-not-compared": swap("self.last_entry, ", ""),
        },
        _CLEANUP_TARGETS: {
            "bookie-cluster/a-cleanup-while-brokers-run": drop,
            "bookie-cluster/a-lost-copy-is-enough": becomes("_compared(facts, record)"),
            "bookie-cluster/a-copy-that-was-never-compared-is-enough": without(0),
            "bookie-cluster/referred-ledgers-are-deleted": drop,
            "bookie-cluster/attributed-ledgers-are-deleted": becomes(
                "all((one.cluster in (None, source) for one in mentioned)) and mentioned"
            ),
            "bookie-cluster/unattributed-ledgers-are-deleted": swap("in (None, source)", "== source"),
            "bookie-cluster/compacted-ledgers-are-deleted": drop,
            "bookie-cluster/compacted-ledgers-that-failed-are-deleted": drop,
            "bookie-cluster/ledgers-that-differ-by-now-are-deleted": without(1),
            "bookie-cluster/open-ledgers-are-deleted": drop,
            "bookie-cluster/ledgers-of-others-are-deleted-with-force": drop,
            "bookie-cluster/the-last-copy-goes": drop,
            "bookie-cluster/promoted-copies-are-deleted": drop,
            "bookie-cluster/different-ledgers-are-copies": drop,
            "bookie-cluster/the-targets-own-ledgers-are-deleted": without(1),
            "bookie-cluster/open-ledgers-of-others-are-deleted": without(2),
        },
        f"{_PATHS}::test_low_ids_at_the_switch": {
            "bookie-cluster/ids-are-not-checked": drop,
        },
        f"{_ROLLBACK}::test_rollback_in_each_step": {
            "bookie-cluster/ids-of-the-source-are-not-lifted": drop,
            "bookie-cluster/a-directive-whose-answer-is-lost-is-not-undone": drop,
        },
        f"{_ROLLBACK}::test_rollback_in_the_window": {
            "bookie-cluster/the-rollback-stops-no-brokers": drop,
        },
        f"{_GIVEN_UP}::test_a_source_that_is_dead_is_named_before_brokers_stop": {
            "bookie-cluster/a-source-that-is-dead-takes-brokers-back": without(0),
        },
        f"{_MISROUTED_STEPS}::test_the_copy_back_is_repeated": {
            "bookie-cluster/brokers-stay-though-a-ledger-is-misrouted": drop,
            "bookie-cluster/a-rollback-is-given-up-though-brokers-are-back": without(0),
        },
        f"{_MISROUTED_STEPS}::test_what_a_broker_wrote_to_the_target_during_the_copy_is_copied_back": {
            "bookie-cluster/the-rollback-forgets-what-was-written-too-early": drop,
        },
        f"{_MISROUTED_STEPS}::test_a_proof_at_the_end_of_the_hold_is_kept": {
            "bookie-cluster/a-proof-at-the-end-of-the-hold-is-lost": becomes("False"),
        },
        f"{_MISROUTED_STEPS}::test_a_broker_that_the_rollback_notices_first_is_not_overlooked": {
            "bookie-cluster/what-was-written-too-early-stays-in-the-target": drop,
        },
        f"{_MISROUTED_STEPS}::test_a_copy_back_that_is_repeated_is_not_given_up": {
            "bookie-cluster/a-copy-back-that-is-repeated-is-given-up": becomes("self._giving_up"),
        },
        f"{_ROLLBACK}::test_ids_of_the_source_must_be_lifted": {
            "bookie-cluster/low-ids-are-accepted-in-the-rollback": drop,
        },
        f"{_ROLLBACK}::test_longest_pause": {
            "bookie-cluster/no-longest-pause": swap("self.input.pause_deadline", "self.input.pause_deadline * 1_000"),
        },
        f"{_ROLLBACK}::test_copy_is_repeated_if_a_broker_registered": {
            "bookie-cluster/a-broker-that-came-before-the-directive-is-ignored": becomes("directive"),
        },
        f"{_ROLLBACK}::test_copies_are_removed_in_parts": {
            "bookie-cluster/copies-are-removed-indefinitely": without(2),
        },
        f"{_GIVEN_UP}::test_a_target_that_answers_is_not_given_up": {
            "bookie-cluster/gives-up-a-target-that-answers": drop,
        },
        f"{_GIVEN_UP}::test_a_target_that_is_lost_is_given_up": {
            "bookie-cluster/goes-back-without-consent": without(1),
        },
    }
)
