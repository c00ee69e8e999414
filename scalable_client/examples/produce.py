"""Send orders to a scalable topic, each customer's in order: `produce.py [service URL] [topic] [messages]`."""

from __future__ import annotations

import sys

from pulsar_scalable import MessageId, ProducerOptions, ScalableClient, ScalableError


def main(service_url: str, topic: str, messages: int) -> None:
    """Send numbered orders of ten customers, without waiting for each."""
    failed: list[ScalableError] = []

    def stored(error: ScalableError | None, message_id: MessageId | None) -> None:
        del message_id
        if error is not None:
            failed.append(error)

    with (
        ScalableClient(service_url) as client,
        client.create_producer(topic, ProducerOptions(block_if_queue_full=True, batching_enabled=True)) as producer,
    ):
        for number in range(messages):
            customer = f"customer-{number % 10}"
            producer.send_async(f"order {number}".encode(), stored, partition_key=customer)
    sys.stdout.write(f"{messages - len(failed)} of {messages} orders are stored\n")


if __name__ == "__main__":
    given = [*sys.argv[1:], *("pulsar://localhost:6650", "topic://public/default/orders", "100")[len(sys.argv) - 1 :]]
    main(given[0], given[1], int(given[2]))
