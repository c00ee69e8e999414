"""The dry run of a split or a merge, as the command prints it."""

from __future__ import annotations

from cli.topic_controller import preview_lines
from models.segments.layout import SegmentLayout
from models.topic_controller.record import Change, Mutation
from models.topic_controller.state import ChangePreview


def test_a_change_that_fits() -> None:
    """The lines name the segments before and after, the cursors, consumers, the wait, and what undoes the change."""
    layout = SegmentLayout.initial(2, 0)
    makes = tuple(Mutation(change=Change.SPLIT, segments=(0,), epoch=0).new_segments(layout))
    preview = ChangePreview(
        accepted=True, epoch=1, seals=(0,), makes=makes, subscriptions=3, consumers=2, after="merge of 4 and 5"
    )
    assert preview_lines("split", preview) == [
        "the split of 0 would be accepted: epoch 1, 2 (0000-3fff) and 3 (4000-7fff) instead of 0",
        "waits      for the end of: merge of 4 and 5",
        "cursors    of 3 subscriptions on each new segment",
        "consumers  2 with a session get segments again; they read old segments to their end",
        "undo       a merge makes one segment again",
        "nothing was done: this is a dry run",
    ]


def test_a_change_that_does_not_fit() -> None:
    """The lines have the reason of the refusal alone."""
    preview = ChangePreview(
        accepted=False, why="segment 0 is sealed", epoch=1, seals=(0, 1), subscriptions=3, consumers=2
    )
    assert preview_lines("merge", preview) == [
        "the merge of 0 and 1 would be refused: segment 0 is sealed",
        "nothing was done: this is a dry run",
    ]
