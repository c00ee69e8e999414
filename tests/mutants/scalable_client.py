"""Mutants of the client library: acknowledgements, the queues of messages, and assignments."""

from __future__ import annotations

from tests.mutants.marks import becomes, drop, swap, unfiltered
from tests.mutants.mutant import mutants

_SCALABLE_CONSUMERS = "scalable_client/tests/unit/test_scalable_consumers.py"
_SCALABLE_PRODUCER = "scalable_client/tests/unit/test_scalable_producer.py"
_PENDING_MESSAGE = "scalable_client/tests/unit/test_pending_message.py"
_AIO = "scalable_client/tests/unit/test_aio.py"
_SESSIONS = "scalable_client/tests/unit/test_sessions.py"

MUTANTS = mutants(
    {
        f"{_SCALABLE_CONSUMERS}::test_a_cumulative_acknowledgement_that_is_lost": {
            "scalable-client/a-lost-acknowledgement-stays-lost": swap("receiver.is_drained is not None", "receiver"),
        },
        f"{_SCALABLE_CONSUMERS}::test_a_stream_takes_the_order_of_the_broker": {
            "scalable-client/what-comes-again-comes-last": drop,
        },
        f"{_SCALABLE_CONSUMERS}::test_a_stream_is_slower_than_a_redelivery": {
            "scalable-client/what-was-queued-before-comes-first": drop,
        },
        (
            f"{_SCALABLE_CONSUMERS}::test_a_subscription_that_is_made",
            f"{_SCALABLE_CONSUMERS}::test_a_subscription_that_is_refused",
        ): {
            "scalable-client/subscribe-returns-at-once": drop,
        },
        f"{_SCALABLE_PRODUCER}::test_a_defect_in_the_search_of_a_sealed_segment": {
            "scalable-client/a-defect-is-tried-again": becomes("()"),
        },
        f"{_PENDING_MESSAGE}::test_duplicates_are_not_kept": {
            "scalable-client/what-deduplication-drops-is-kept": drop,
        },
        f"{_AIO}::test_a_call_that_is_cancelled_while_it_subscribes": {
            "scalable-client/what-a-cancelled-call-makes-stays": drop,
        },
        f"{_SCALABLE_PRODUCER}::test_a_timed_out_message_is_not_stored_later": {
            "scalable-client/what-timed-out-is-stored-later": drop,
        },
        f"{_SCALABLE_PRODUCER}::test_a_message_stored_before_a_timeout_is_not_stored_again": {
            "scalable-client/what-is-sent-again-has-another-id": becomes("True"),
            "scalable-client/what-replaces-a-sender-has-another-name": swap(
                "last.producer_name if last else None", "None"
            ),
        },
        f"{_SCALABLE_PRODUCER}::test_a_split_after_a_timeout": {
            "scalable-client/what-was-given-up-is-searched": unfiltered,
        },
        f"{_SCALABLE_CONSUMERS}::test_a_topic_that_comes_back_as_it_was": {
            "scalable-client/a-topic-that-comes-back-is-not-read": drop,
        },
        f"{_SCALABLE_CONSUMERS}::test_a_stream_is_attached_again_soon": {
            "scalable-client/a-stream-that-was-left-waits-long": drop,
        },
        f"{_SESSIONS}::test_a_topic_that_is_deleted": {
            "scalable-client/a-deletion-is-not-reported": drop,
        },
    }
)
