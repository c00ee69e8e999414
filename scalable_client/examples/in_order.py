"""Receive each customer's orders in order: `in_order.py [service URL] [topic] [subscription]`.

Start several of them, and they share the customers; stop one, and the others take over.
"""

from __future__ import annotations

import sys

from pulsar_scalable import ScalableClient
from pulsar_scalable.errors import TimedOut


def main(service_url: str, topic: str, subscription: str) -> None:
    """Receive until no message arrives for three seconds."""
    with ScalableClient(service_url) as client, client.subscribe_stream(topic, subscription) as consumer:
        received = 0
        while True:
            try:
                message = consumer.receive(timeout_millis=3000)
            except TimedOut:
                break
            received += 1
            consumer.acknowledge(message)
    sys.stdout.write(f"{received} orders were received\n")


if __name__ == "__main__":
    given = [
        *sys.argv[1:],
        *("pulsar://localhost:6650", "topic://public/default/orders", "billing")[len(sys.argv) - 1 :],
    ]
    main(*given)
