"""The limit on what may be sent to a namespace while it is flipped: set, waited for, and put back.

A broker that terminates a topic amid writes fences it, so that its clients find neither blue nor green for minutes, or
tells producers that the topic has ended for good (seen). With one byte per second each producer gets one message
through, and its connection is not read again for as long as that message has bytes, or until the limit is changed while
the topic is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from activities.blue_green.context import BlueGreenTask, NamespaceGuard
from activities.blue_green.held_policies import RATE, hold, is_held, keep_topics, put_back
from activities.blue_green.topics import Traffic, look_at, show_blue, topics_of, traffic_of
from clients.errors import StoreConflict
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.names import TopicName
from models.blue_green.claims import FLIPPED, Stage
from models.blue_green.results import Quiet
from models.lifecycle.status import WaitKind

_LOOK_EVERY = 0.25
_SAME_LOOKS = 3
_NAMED = 10


def throttle(task: BlueGreenTask, guard: NamespaceGuard) -> None:
    """Set the limit, after what stood before was noted; harmless when done twice."""
    hold(task.blue.namespaces, guard, RATE, PublishRate(publish_throttling_rate_in_byte=task.input.throttle_bytes))


def let_go(task: BlueGreenTask, guard: NamespaceGuard, *, forget: bool = True) -> str:
    """Put the namespace's own limit back; see `put_back`."""
    return put_back(task.blue.namespaces, guard, RATE, forget=forget)


def quiesce(task: BlueGreenTask, guards: Sequence[NamespaceGuard]) -> Quiet:
    """Throttle the namespaces of a batch, and wait until nothing is sent to any of their topics."""
    begun = time.monotonic()
    # Who was flipped by an earlier run has no writes to hold back.
    held = [guard for guard in guards if guard.require().stage not in FLIPPED]
    for guard in held:
        keep_topics(task.blue.namespaces, guard)
        guard.note(stage=Stage.THROTTLED)
        throttle(task, guard)
    topics = [topic for guard in held for topic in topics_of(task.blue, guard.namespace)]
    return wait_until_quiet(task, topics, begun)


def require_quiet(task: BlueGreenTask, guards: Sequence[NamespaceGuard]) -> None:
    """Right before the flag: the limit still holds, and nothing is sent.

    Raises:
        StoreConflict: somebody has changed the limit, or writes are under way in spite of it.
    """
    for guard in guards:
        if not is_held(task.blue.namespaces, guard, RATE):
            now = task.blue.namespaces.publish_rate(guard.namespace)
            raise StoreConflict(
                f"the publish rate of {guard.namespace} is {now.body() if now else 'none'}, and not what the migration "
                "set to hold writes back: somebody has changed it, so nothing is flipped"
            )
    topics = [topic for guard in guards for topic in topics_of(task.blue, guard.namespace)]
    quiet = wait_until_quiet(task, topics, time.monotonic(), same_looks=1)
    if quiet.busy:
        raise StoreConflict(f"topics take messages in spite of the limit, so nothing is flipped: {_some(quiet.busy)}")


def wait_until_quiet(
    task: BlueGreenTask, topics: Sequence[TopicName], begun: float, *, same_looks: int = _SAME_LOOKS
) -> Quiet:
    """Wait until nothing is sent to any of these topics of blue; gives up after `quiesce_timeout`."""
    end = begun + task.input.quiesce_timeout.total_seconds()
    before: dict[TopicName, Traffic] = {}
    same = 0
    busy: list[TopicName] = []
    while same < same_looks:
        stats = [look.stats for look in task.each(topics, lambda topic: look_at(task.blue, topic))]
        show_blue(task.context, filter(None, stats))
        now = {topic: traffic_of(one) if one else Traffic() for topic, one in zip(topics, stats, strict=True)}
        busy = [topic for topic in topics if before.get(topic, (-1,))[0] != now[topic].sent]
        # Who drains is let do so for a while: a consumer that reaches the end just as the topic is terminated is told
        # that the topic has ended, and not where it goes on.
        draining = any(0 < now[topic].backlog < before[topic].backlog for topic in topics if topic in before)
        patient = time.monotonic() < begun + (end - begun) / 2
        same = 0 if busy or (draining and patient) else same + 1
        if same < same_looks and time.monotonic() > end:
            break
        before = now
        if busy:
            task.context.waiting_for(WaitKind.CLIENTS, f"writes to become quiet: {_some(busy)}")
        task.context.pause(_LOOK_EVERY)
    task.context.waits_no_more()
    return Quiet(
        seconds=round(time.monotonic() - begun, 3), busy=tuple(map(str, busy[:_NAMED])) if same < same_looks else ()
    )


def _some(topics: Sequence[object]) -> str:
    return f"{', '.join(map(str, topics[:3]))}{f' and {len(topics) - 3} more' if len(topics) > 3 else ''}"
