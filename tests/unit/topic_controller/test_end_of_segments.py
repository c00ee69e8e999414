"""The end of a segment, where its broker takes messages again after it said that the segment has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.lifecycle.parallel import map_sequential
from activities.topic_controller.context import ControllerTask
from activities.topic_controller.segments import reload_segments
from clients.errors import RetryableError
from clients.pulsar.names import TopicName
from models.segments.layout import SegmentLayout


class Broker:
    """Has one segment.

    Args:
        ended: whether it has ended.
        stubborn: whether it takes messages again at once.
        fenced: whether it takes none and cannot be ended, until it is loaded again.
    """

    def __init__(self, *, ended: bool, stubborn: bool = False, fenced: bool = False) -> None:
        self.calls: list[str] = []
        self._ended = ended
        self._stubborn = stubborn
        self._fenced = fenced

    def internal_stats(self, _: TopicName) -> Any:
        """Return whether it has ended."""
        state = "Fenced" if self._fenced else "Terminated" if self._ended else "LedgerOpened"
        return SimpleNamespace(terminated=self._ended, state=state)

    def terminate(self, _: TopicName) -> None:
        """End it."""
        self.calls.append("terminate")
        self._ended = not self._stubborn

    def unload(self, _: TopicName) -> None:
        """Give it up."""
        self.calls.append("unload")
        self._fenced = False

    def task(self) -> ControllerTask:
        """Return an attempt that has this broker."""
        admin = SimpleNamespace(topics=self)

        def change_or_never(*, connect: Any, fence: Any, change: Any) -> None:
            connect(admin)
            fence()
            change(admin)

        return cast(
            "ControllerTask",
            SimpleNamespace(
                name=TopicName.parse("persistent://acme/shop/orders"),
                admin=admin,
                require=lambda: None,
                cluster=SimpleNamespace(change_or_never=change_or_never),
                each=map_sequential,
            ),
        )


@pytest.mark.parametrize(("ended", "calls"), [(True, ["unload"]), (False, ["terminate", "unload"])])
def test_a_segment_that_takes_messages_again_is_ended_again(ended: bool, calls: list[str]) -> None:
    """A segment is ended again right before it is loaded again, if its broker has opened it again."""
    broker = Broker(ended=ended)
    reload_segments(broker.task(), SegmentLayout.initial(1, 0).active)
    assert broker.calls == calls


def test_a_segment_that_does_not_end_stays_loaded() -> None:
    """A segment that continues taking messages is not unloaded; the step is tried again."""
    broker = Broker(ended=False, stubborn=True)
    with pytest.raises(RetryableError, match="still takes messages"):
        reload_segments(broker.task(), SegmentLayout.initial(1, 0).active)
    assert broker.calls == ["terminate"]


def test_a_segment_that_is_fenced_is_loaded_again_first() -> None:
    """Its broker refuses to end it before; the next try ends it."""
    broker, active = Broker(ended=False, fenced=True), SegmentLayout.initial(1, 0).active
    with pytest.raises(RetryableError, match="is fenced"):
        reload_segments(broker.task(), active)
    reload_segments(broker.task(), active)
    assert broker.calls == ["unload", "terminate", "unload"]
