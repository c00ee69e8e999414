"""A capture of all packets of the loopback interface, in which tests look for secrets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.waiting import wait_for

_ALL_PROTOCOLS = 3
_CAPTURE = """
import socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)
packets.bind(("lo", 0))
sys.stdout.write("ready\\n"), sys.stdout.flush()
with open(sys.argv[1], "wb") as file:
    while True:
        frame, address = packets.recvfrom(1 << 17)
        # The kernel shows each packet of this interface twice: as it leaves, and as it arrives.
        if address[2] != socket.PACKET_OUTGOING:
            file.write(len(frame).to_bytes(4, "big") + frame)
            file.flush()
"""
_ETHERNET, _SHORTEST_IP = 14, 20
_IPV4, _TCP = 0x0800, 6


def why_not() -> str:
    """Return why packets cannot be captured here; empty if they can."""
    if not hasattr(socket, "AF_PACKET"):
        return "packets can be captured on Linux only"
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)).close()
    except PermissionError:
        return "packets can be captured by root, or with the capability CAP_NET_RAW"
    return ""


class PacketCapture:
    """Captures packets of the loopback interface into a file; a context manager.

    Args:
        file: takes the packets.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tails: dict[bytes, bytes] = {}
        self._read = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CAPTURE, str(self._file)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process
        self._process.terminate()
        self._process.communicate()

    def find(self, secrets: Sequence[bytes]) -> set[bytes]:
        """Return which of these occur in packets since the last call, also where they are split over packets.

        A mark that is sent in plain text must be among what is seen: it proves that the capture works.
        """
        mark = b"mark-" + os.urandom(16).hex().encode()
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as client,
            server.accept()[0] as accepted,
        ):
            for text in (mark[:10], mark[10:]):
                client.sendall(text)
                assert accepted.recv(len(text)) == text
        seen: set[bytes] = set()

        def mark_is_there() -> bool:
            seen.update(self._search([*secrets, mark]))
            return mark in seen

        wait_for("the mark in the capture", mark_is_there, limit=60)
        return seen - {mark}

    def _search(self, wanted: Sequence[bytes]) -> set[bytes]:
        longest = max(map(len, wanted))
        seen: set[bytes] = set()
        with self._file.open("rb") as file:
            file.seek(self._read)
            while len(size := file.read(4)) == 4 and len(frame := file.read(length := int.from_bytes(size))) == length:
                self._read += 4 + length
                stream, data = _stream(frame)
                # Retransmissions do not occur on this interface, so packets are in the order of the stream.
                text = self._tails.get(stream, b"") + data
                seen.update(each for each in wanted if each in text)
                self._tails[stream] = text[-longest:]
        return seen


def _stream(frame: bytes) -> tuple[bytes, bytes]:
    """Return ends and data of a TCP packet; other packets are data as a whole."""
    header = frame[_ETHERNET:]
    if len(header) < _SHORTEST_IP or int.from_bytes(frame[12:14]) != _IPV4 or header[9] != _TCP:
        return b"", frame
    tcp = header[4 * (header[0] & 15) :]
    return header[12:20] + tcp[:4], tcp[4 * (tcp[12] >> 4) :]
