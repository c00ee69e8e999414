"""Connections of this process's clients that break, as those of a host whose network fails for a moment."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from pathlib import Path

from pulsar_devstack.servers.stack import Stack


def drop_connections(stack: Stack, dice: random.Random) -> int:
    """Break about half of the connections of this process to brokers; return how many."""
    ports = {int(server.address.rpartition(":")[2]) for server in stack if server.kind == "broker"}
    dropped = 0
    for entry in sorted(Path("/proc/self/fd").iterdir()):
        # Other threads open and close files at the same time.
        with suppress(OSError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                to_a_broker = connection.family == socket.AF_INET and connection.getpeername()[1] in ports
                if to_a_broker and dice.random() < 0.5:
                    connection.shutdown(socket.SHUT_RDWR)
                    dropped += 1
    return dropped
