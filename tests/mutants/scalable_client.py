"""Mutants of the client of scalable topics: acknowledgements, order, and what subscribing means."""

from __future__ import annotations

from tests.mutants.quoted import Quoted

_CLIENT = "scalable_client/pulsar_scalable"
_CONSUMERS = "scalable_client/tests/unit/test_scalable_consumers.py"
_PRODUCER = "scalable_client/tests/unit/test_scalable_producer.py"

MUTANTS = (
    Quoted(
        "scalable-client/a-lost-acknowledgement-stays-lost",
        f"{_CLIENT}/stream_consumer.py",
        "        if receiver.is_drained is not None or not idle or not self._is_sealed(source):\n",
        "        if receiver or not idle or not self._is_sealed(source):\n",
        (f"{_CONSUMERS}::test_a_cumulative_acknowledgement_that_is_lost",),
    ),
    Quoted(
        "scalable-client/what-comes-again-comes-last",
        f"{_CLIENT}/consumers.py",
        "            if waiting and not self._is_ordered(source):\n",
        "            if waiting:\n",
        (f"{_CONSUMERS}::test_a_stream_takes_the_order_of_the_broker",),
    ),
    Quoted(
        "scalable-client/subscribe-returns-at-once",
        f"{_CLIENT}/queue_consumer.py",
        "        if not self._await_subscribed(subscribe_limit):\n",
        "        if False:\n",
        (f"{_CONSUMERS}::test_a_subscription_that_is_made", f"{_CONSUMERS}::test_a_subscription_that_is_refused"),
    ),
    Quoted(
        "scalable-client/a-defect-is-tried-again",
        f"{_CLIENT}/producer.py",
        "_DEFECTS = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)\n",
        "_DEFECTS = ()\n",
        (f"{_PRODUCER}::test_a_defect_in_the_search_of_a_sealed_segment",),
    ),
    Quoted(
        "scalable-client/what-deduplication-drops-is-kept",
        f"{_CLIENT}/send_queue.py",
        "        elif len(stored) >= _MOST_WITHOUT_POSITION:\n",
        "        elif False:\n",
        ("scalable_client/tests/unit/test_pending_message.py::test_what_deduplication_drops_is_not_kept",),
    ),
    Quoted(
        "scalable-client/what-a-cancelled-call-makes-stays",
        f"{_CLIENT}/aio.py",
        "            making.add_done_callback(_close_made)\n",
        "",
        ("scalable_client/tests/unit/test_aio.py::test_a_call_that_is_cancelled_while_it_subscribes",),
    ),
    Quoted(
        "scalable-client/what-timed-out-is-stored-later",
        f"{_CLIENT}/send_queue.py",
        "                if queue.is_open and queue.sender is not None and not queue.sender.is_connected:\n",
        "                if False:\n",
        (f"{_PRODUCER}::test_what_timed_out_is_not_stored_later",),
    ),
    Quoted(
        "scalable-client/what-is-sent-again-has-another-id",
        f"{_CLIENT}/send_queue.py",
        "        if message.sequence_id < 0:\n            wanted",
        "        if True:\n            wanted",
        (f"{_PRODUCER}::test_what_was_stored_before_a_timeout_is_not_stored_again",),
    ),
    Quoted(
        "scalable-client/what-replaces-a-sender-has-another-name",
        f"{_CLIENT}/producer.py",
        "self._open(send_queue, queue, last.producer_name if last else None)",
        "self._open(send_queue, queue, None)",
        (f"{_PRODUCER}::test_what_was_stored_before_a_timeout_is_not_stored_again",),
    ),
    Quoted(
        "scalable-client/what-was-given-up-is-looked-for",
        f"{_CLIENT}/send_queue.py",
        "[message for message in queue.sent if not message.is_given_up]",
        "[message for message in queue.sent]",
        (f"{_PRODUCER}::test_a_split_after_a_timeout",),
    ),
    Quoted(
        "scalable-client/a-topic-that-comes-back-is-not-read",
        f"{_CLIENT}/stream_consumer.py",
        "            if not layout.is_deleted:\n",
        "            if False:\n",
        (f"{_CONSUMERS}::test_a_topic_that_comes_back_as_it_was",),
    ),
    Quoted(
        "scalable-client/a-stream-that-was-left-waits-long",
        f"{_CLIENT}/stream_consumer.py",
        "        source.left = False\n",
        "",
        (f"{_CONSUMERS}::test_a_stream_is_attached_again_soon",),
    ),
    Quoted(
        "scalable-client/a-deletion-is-not-told",
        f"{_CLIENT}/native/watch.py",
        "            self._tell(replace(self._layout, deleted=True))\n",
        "            pass\n",
        ("scalable_client/tests/unit/test_sessions.py::test_a_topic_that_is_deleted",),
    ),
)
