"""Pending messages, and how to find those that a sealed segment has stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto

from pulsar_scalable.errors import ScalableError
from pulsar_scalable.messages import MessageId, RawMessage
from pulsar_scalable.ports import Content

OnOutcome = Callable[[ScalableError | None, MessageId | None], None]
"""Callback that receives an error, or the id of a stored message."""

# Content, keys, properties and time of a message; a stored copy has the same.
_Fingerprint = tuple[bytes, str, str, Mapping[str, str], int]


class Stage(Enum):
    """Stage of a pending message."""

    WAITING = auto()
    SENT = auto()


class PendingMessage:
    """A message that an application sends.

    Attributes:
        number: its number among all messages of its producer.
        content: content of the message.
        hash: 32-bit hash of its key, or any hash of its segment.
        deadline: monotonic time at which it fails.
        on_outcome: called once, with an error or an id.
        stage: whether it waits or was sent.
        sent_ms: time of sending, in milliseconds since 1970.
        outcome: outcome that is reported to the application.
        queue: queue that holds it; None if none does.
        raw_id: its id in the segment, once known.
        sequence_id: sequence id of its first send to the segment of its queue; -1 if it was not sent there.
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
        """True if it failed after its sender was lost: nothing holds it any more."""
        return self.outcome is not None and self.queue is None and self.raw_id is None


def match_stored(sent: Sequence[PendingMessage], tail: Iterable[RawMessage]) -> list[RawMessage]:
    """Return the stored copies of the first messages in `sent`, as many as the segment contains.

    A producer's messages are stored in order. After a lost connection it resends all unconfirmed ones. So its messages
    in the segment form one run that starts with the first, or several such runs. If equal messages allow several
    interpretations, the shortest run counts: then a message may be stored twice, but none is lost.

    Args:
        sent: messages sent since the last one that is known to be stored, without those that were given up.
        tail: messages of this producer in the segment since then.
    """
    wanted, copies = [_fingerprint_of_content(message.content) for message in sent], [*tail]
    # Possible interpretations, by the length of the current run at the end: start and end of their longest run.
    readings = {0: (0, 0)}
    for end, fingerprint in enumerate(map(_fingerprint_of_message, copies), 1):
        following: dict[int, tuple[int, int]] = {}
        for length, best in readings.items():
            for extended in _extended(wanted, length, fingerprint):
                longest = (end - extended, end) if extended > _size(best) else best
                if extended not in following or _size(longest) < _size(following[extended]):
                    following[extended] = longest
        readings = following
    start, end = min(readings.values(), key=_size)
    return copies[start:end]


def _extended(wanted: Sequence[_Fingerprint], length: int, fingerprint: _Fingerprint) -> list[int]:
    """Return the possible lengths of the current run after one more message."""
    lengths: list[int] = []
    if length < len(wanted) and wanted[length] == fingerprint:
        lengths.append(length + 1)
    if length and wanted and wanted[0] == fingerprint:
        lengths.append(1)
    return lengths or [0]


def _size(run: tuple[int, int]) -> int:
    return run[1] - run[0]


def _fingerprint_of_content(content: Content) -> _Fingerprint:
    return (
        content.data,
        content.partition_key or "",
        content.ordering_key or "",
        content.properties or {},
        content.event_timestamp or 0,
    )


def _fingerprint_of_message(message: RawMessage) -> _Fingerprint:
    return (
        message.data(),
        message.partition_key(),
        message.ordering_key(),
        message.properties(),
        message.event_timestamp(),
    )
