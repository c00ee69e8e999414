"""What is told of the backlogs that were copied to green."""

from __future__ import annotations

from models.base import Result


class CopyFigures(Result):
    """What one step copied.

    Attributes:
        topics: that have a copy; partitions count.
        entries: that were copied or, after a lost attempt, found and checked; a batch is one.
        messages: in the entries that were copied.
        size: their bytes.
        already_copied: entries that a lost attempt had copied.
    """

    topics: int = 0
    entries: int = 0
    messages: int = 0
    size: int = 0
    already_copied: int = 0


class CursorFigures(Result):
    """What was done with the subscriptions of topics that have a copy.

    Attributes:
        copied: that go on with the copy where they were, and `unacknowledged`, the entries that they have left of it.
        after_copy: that begin behind the copy, since they consume it on blue.
    """

    copied: int = 0
    unacknowledged: int = 0
    after_copy: int = 0


class CopyProof(Result):
    """What comparing copies with blue showed.

    Attributes:
        topics: that were compared.
        entries: that are equal in every byte, with the `messages` in them, and their `size`.
        subscriptions: that have the same entries left on both sides, and `unacknowledged`, how many those are.
        differences: what differs, 100 at most.
    """

    topics: int = 0
    entries: int = 0
    messages: int = 0
    size: int = 0
    subscriptions: int = 0
    unacknowledged: int = 0
    differences: tuple[str, ...] = ()


class FinalCopy(Result):
    """Result of the end of a copy, while writes are quiet.

    Attributes:
        seconds: that it took.
        copied: the entries that were sent since SEED.
        cursors: what was done with subscriptions.
        proof: what was compared, from the first entry on.
        in_time: whether it came to its end within `quiesce_timeout`; nothing may be flipped if not.
    """

    seconds: float
    copied: CopyFigures = CopyFigures()
    cursors: CursorFigures = CursorFigures()
    proof: CopyProof = CopyProof()
    in_time: bool = True
