"""Read all orders, and continue at the next start: `replay.py [service URL] [topic] [file of the checkpoint]`."""

from __future__ import annotations

import sys
from pathlib import Path

from pulsar_scalable import Checkpoint, ScalableClient
from pulsar_scalable.errors import TimedOut


def main(service_url: str, topic: str, file: Path) -> None:
    """Read until no message arrives for three seconds, and store the positions."""
    start = Checkpoint.deserialize(file.read_bytes()) if file.exists() else "earliest"
    with ScalableClient(service_url) as client, client.create_checkpoint_consumer(topic, start) as consumer:
        read = 0
        while True:
            try:
                consumer.receive(timeout_millis=3000)
            except TimedOut:
                break
            read += 1
        file.write_bytes(consumer.checkpoint().serialize())
    sys.stdout.write(f"{read} orders were read\n")


if __name__ == "__main__":
    given = [
        *sys.argv[1:],
        *("pulsar://localhost:6650", "topic://public/default/orders", "checkpoint")[len(sys.argv) - 1 :],
    ]
    main(given[0], given[1], Path(given[2]))
