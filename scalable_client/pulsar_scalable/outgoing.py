"""Messages on their way, and which of them a sealed segment has stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

from pulsar_scalable.backends import Content
from pulsar_scalable.errors import ScalableError
from pulsar_scalable.messages import MessageId, RawMessage

OnOutcome = Callable[[ScalableError | None, MessageId | None], None]
"""Gets an error, or the id of a message that is stored."""


class Stage(Enum):
    """Where a message is."""

    WAITING = auto()
    SENT = auto()


class Outgoing:
    """A message that an application sends.

    Attributes:
        number: its place among all of its producer.
        content: what is sent.
        hash: 0 to 65535, by which it goes to a segment.
        wanted_sequence_id: that the application gave; None for none.
        deadline: by the monotonic clock.
        on_outcome: called once, with an error or an id.
        stage: where it is.
        sent_ms: when it was handed over, in milliseconds since 1970.
        outcome: what the application is told.
        lane: which holds it; None once nothing does.
        raw_id: its id in the segment, once that is told.
    """

    __slots__ = (
        "content",
        "deadline",
        "hash",
        "lane",
        "number",
        "on_outcome",
        "outcome",
        "raw_id",
        "sent_ms",
        "stage",
        "wanted_sequence_id",
    )

    def __init__(
        self,
        number: int,
        content: Content,
        hash_: int,
        *,
        wanted_sequence_id: int | None,
        deadline: float,
        on_outcome: OnOutcome,
    ) -> None:
        self.number = number
        self.content = content
        self.hash = hash_
        self.wanted_sequence_id = wanted_sequence_id
        self.deadline = deadline
        self.on_outcome = on_outcome
        self.stage = Stage.WAITING
        self.sent_ms = 0
        self.outcome: ScalableError | MessageId | None = None
        self.lane: object = None
        self.raw_id: object = None


def stored_of(sent: Sequence[Outgoing], tail: Iterable[RawMessage]) -> list[RawMessage]:
    """Which of the messages that were sent in this order stand in the segment: the first so many, with their copies.

    What a producer sends is stored in order, and after a lost connection it sends all again that it has no answer for;
    so its part of the segment is a run of messages from the first one on, or several such runs. Where equal messages
    leave more than one reading of it, the shortest counts: then a message may be stored twice, and none is lost.

    Args:
        sent: all since the last one that is known to be stored.
        tail: what the segment holds of this producer since then.
    """
    # Each reading: messages of the present run, and the most of any run with the messages that show it.
    readings: dict[int, list[RawMessage]] = {0: []}
    runs: dict[int, list[RawMessage]] = {0: []}
    for found in tail:
        following: dict[int, list[RawMessage]] = {}
        following_runs: dict[int, list[RawMessage]] = {}
        for length, best in readings.items():
            for extended in _extended(sent, length, found):
                run = [*runs[length], found] if extended > 1 else [found] if extended else []
                longest = run if len(run) > len(best) else best
                if extended not in following or len(longest) < len(following[extended]):
                    following[extended], following_runs[extended] = longest, run
        readings, runs = following, following_runs
    return min(readings.values(), key=len)


def _extended(sent: Sequence[Outgoing], length: int, found: RawMessage) -> list[int]:
    """How long the present run may be with one more message."""
    lengths: list[int] = []
    if length < len(sent) and _is(sent[length], found):
        lengths.append(length + 1)
    if length and sent and _is(sent[0], found):
        lengths.append(1)
    return lengths or [0]


def _is(one: Outgoing, found: RawMessage) -> bool:
    content = one.content
    return (
        found.publish_timestamp() >= one.sent_ms
        and found.data() == content.data
        and found.partition_key() == (content.partition_key or "")
        and found.ordering_key() == (content.ordering_key or "")
        and found.properties() == (content.properties or {})
        and found.event_timestamp() == (content.event_timestamp or 0)
    )
