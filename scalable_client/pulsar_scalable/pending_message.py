"""Messages on their way, and which of them a sealed segment has stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto

from pulsar_scalable.errors import ScalableError
from pulsar_scalable.messages import MessageId, RawMessage
from pulsar_scalable.ports import Content

OnOutcome = Callable[[ScalableError | None, MessageId | None], None]
"""Gets an error, or the id of a message that is stored."""

# Content, keys, properties and time of a message: by these a stored copy is known.
_Said = tuple[bytes, str, str, Mapping[str, str], int]


class Stage(Enum):
    """Where a message is."""

    WAITING = auto()
    SENT = auto()


class PendingMessage:
    """A message that an application sends.

    Attributes:
        number: its place among all of its producer.
        content: what is sent.
        hash: 32 bits, of its key, or any that its segment takes.
        deadline: by the monotonic clock.
        on_outcome: called once, with an error or an id.
        stage: where it is.
        sent_ms: when it was handed over, in milliseconds since 1970.
        outcome: what the application is told.
        queue: which holds it; None once nothing does.
        raw_id: its id in the segment, once that is known.
        sequence_id: with which it was sent to the segment of its queue; -1 for one that was not sent there.
    """

    __slots__ = (
        "content",
        "deadline",
        "hash",
        "number",
        "on_outcome",
        "outcome",
        "queue",
        "raw_id",
        "sent_ms",
        "sequence_id",
        "stage",
    )

    def __init__(
        self,
        number: int,
        content: Content,
        hash_: int,
        *,
        deadline: float,
        on_outcome: OnOutcome,
    ) -> None:
        self.number = number
        self.content = content
        self.hash = hash_
        self.deadline = deadline
        self.on_outcome = on_outcome
        self.stage = Stage.WAITING
        self.sent_ms = 0
        self.outcome: ScalableError | MessageId | None = None
        self.queue: object = None
        self.raw_id: object = None
        self.sequence_id = -1

    @property
    def is_given_up(self) -> bool:
        """Return whether it failed while its sender was lost: nothing holds it any more."""
        return self.outcome is not None and self.queue is None and self.raw_id is None


def stored_of(sent: Sequence[PendingMessage], tail: Iterable[RawMessage]) -> list[RawMessage]:
    """Which of the messages that were sent in this order stand in the segment: the first so many, with their copies.

    What a producer sends is stored in order, and after a lost connection it sends all again that it has no answer for;
    so its part of the segment is a run of messages from the first one on, or several such runs. Where equal messages
    leave more than one reading of it, the shortest counts: then a message may be stored twice, and none is lost.

    Args:
        sent: all since the last one that is known to be stored, but for those that were given up.
        tail: what the segment holds of this producer since then.
    """
    wanted, found = [_wanted(one.content) for one in sent], [*tail]
    # Each reading, by how many messages its present run has, which are the last ones: begin and end of its longest run.
    readings = {0: (0, 0)}
    for end, one in enumerate(map(_said, found), 1):
        following: dict[int, tuple[int, int]] = {}
        for length, best in readings.items():
            for extended in _extended(wanted, length, one):
                longest = (end - extended, end) if extended > _size(best) else best
                if extended not in following or _size(longest) < _size(following[extended]):
                    following[extended] = longest
        readings = following
    begin, end = min(readings.values(), key=_size)
    return found[begin:end]


def _extended(wanted: Sequence[_Said], length: int, found: _Said) -> list[int]:
    """How long the present run may be with one more message."""
    lengths: list[int] = []
    if length < len(wanted) and wanted[length] == found:
        lengths.append(length + 1)
    if length and wanted and wanted[0] == found:
        lengths.append(1)
    return lengths or [0]


def _size(run: tuple[int, int]) -> int:
    return run[1] - run[0]


def _wanted(content: Content) -> _Said:
    """What a stored copy says."""
    return (
        content.data,
        content.partition_key or "",
        content.ordering_key or "",
        content.properties or {},
        content.event_timestamp or 0,
    )


def _said(found: RawMessage) -> _Said:
    return (
        found.data(),
        found.partition_key(),
        found.ordering_key(),
        found.properties(),
        found.event_timestamp(),
    )
