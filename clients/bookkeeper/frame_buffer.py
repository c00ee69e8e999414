"""What has arrived on a connection, cut into frames."""

from __future__ import annotations

from clients.bookkeeper import wire_v2
from clients.errors import StoreProtocolError

_SIZE = 1 << 20
_LONGEST = 1 << 30


class FrameBuffer:
    """A buffer that grows with the largest frame.

    Attributes:
        view: the buffer.
        start: where the first frame that was not taken begins.
        end: where what has arrived ends; whoever receives into `room` moves it.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SIZE))
        self.start = self.end = 0

    @property
    def held(self) -> int:
        """Bytes that were not taken."""
        return self.end - self.start

    def room(self) -> memoryview:
        """Where to receive to: at least the rest of the frame that is begun."""
        held = self.held
        if not held:
            self.start = self.end = 0
        wanted = wire_v2.LENGTH + (self._size() if held >= wire_v2.LENGTH else 0)
        if self.start + wanted > len(self.view) or self.end == len(self.view):
            rest = bytes(self.view[self.start : self.end])
            if wanted >= len(self.view):
                self.view = memoryview(bytearray(wanted + _SIZE))
            self.view[:held] = rest
            self.start, self.end = 0, held
        return self.view[self.end :]

    def take(self) -> memoryview | None:
        """The next frame without its length, good until the next `room`; None if it is not whole yet.

        Raises:
            StoreProtocolError: it is longer than any answer.
        """
        start = self.start + wire_v2.LENGTH
        end = start + self._size()
        if end > self.end:
            return None
        self.start = end
        return self.view[start:end]

    def _size(self) -> int:
        size = int.from_bytes(self.view[self.start : self.start + wire_v2.LENGTH])
        if size > _LONGEST:
            raise StoreProtocolError(f"a frame of {size} bytes")
        return size
