"""Results of the copies of backlogs to green."""

from __future__ import annotations

from models.base import Result


class CopyFigures(Result):
    """Figures of one copying step.

    Attributes:
        topics: topics with a copy; each partition counts.
        entries: entries that were copied, or that a lost attempt had copied and this one checked. A batch is one entry.
        messages: messages in these entries.
        size: bytes of these entries.
        already_copied: entries that a lost attempt had copied.
    """

    topics: int = 0
    entries: int = 0
    messages: int = 0
    size: int = 0
    already_copied: int = 0


class CursorFigures(Result):
    """Subscriptions of topics that have a copy.

    Attributes:
        copied: subscriptions that continue in the copy at their position on blue.
        unacknowledged: entries of the copy that these have not acknowledged.
        after_copy: subscriptions that start after the copy, because they consume its messages on blue.
    """

    copied: int = 0
    unacknowledged: int = 0
    after_copy: int = 0


class CopyProof(Result):
    """Result of the comparison of copies with blue.

    Attributes:
        topics: topics that were compared.
        entries: entries that are equal in every byte.
        messages: messages in these entries.
        size: bytes of these entries.
        subscriptions: subscriptions with the same unacknowledged entries on both clusters.
        unacknowledged: number of these entries.
        differences: differences in words, at most 100.
    """

    topics: int = 0
    entries: int = 0
    messages: int = 0
    size: int = 0
    subscriptions: int = 0
    unacknowledged: int = 0
    differences: tuple[str, ...] = ()


class FinalCopy(Result):
    """Result of the final copy, which is made while writes are held back.

    Attributes:
        seconds: duration.
        copied: entries that were sent since SEED.
        cursors: subscriptions whose cursors were placed.
        proof: comparison of all copied entries.
        in_time: it was complete within `quiesce_timeout`. If not, nothing may be flipped.
    """

    seconds: float
    copied: CopyFigures = CopyFigures()
    cursors: CursorFigures = CursorFigures()
    proof: CopyProof = CopyProof()
    in_time: bool = True
