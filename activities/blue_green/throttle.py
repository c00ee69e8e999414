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
from activities.blue_green.topics import Traffic, look_at, show_blue, topics_of, traffic_of
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.names import TopicName
from models.blue_green.claims import Changed, Stage
from models.blue_green.results import Quiet
from models.lifecycle.status import WaitKind

_LOOK_EVERY = 0.25
_SAME_LOOKS = 3
_NAMED = 10


def throttle(task: BlueGreenTask, guard: NamespaceGuard) -> None:
    """Set the limit, after what stood before was noted; harmless when done twice."""
    limit = PublishRate(publish_throttling_rate_in_byte=task.input.throttle_bytes)
    namespaces = task.blue.namespaces
    before = namespaces.publish_rate(guard.namespace)
    if guard.require().publish_rate is None:
        noted = Changed(before=before.body() if before else None, ours=limit.body())
        guard.note(publish_rate=noted, stage=Stage.THROTTLED)
    if before != limit:
        guard.require()
        namespaces.set_publish_rate(guard.namespace, limit)


def put_back(task: BlueGreenTask, guard: NamespaceGuard) -> str:
    """Put the namespace's own limit back; what somebody else has set meanwhile stays, and is returned."""
    changed = guard.require().publish_rate
    if changed is None:
        return ""
    namespaces, kept = task.blue.namespaces, ""
    now = namespaces.publish_rate(guard.namespace)
    if (now.body() if now else None) == changed.ours:
        guard.require()
        if changed.before is None:
            namespaces.remove_publish_rate(guard.namespace)
        else:
            namespaces.set_publish_rate(guard.namespace, PublishRate.model_validate(changed.before))
    elif (now.body() if now else None) != changed.before:
        kept = f"publish rate of {guard.namespace}: {now.body() if now else 'none'} was set by somebody else, and stays"
    guard.note(publish_rate=None)
    return kept


def quiesce(task: BlueGreenTask, guards: Sequence[NamespaceGuard]) -> Quiet:
    """Throttle the namespaces of a batch, and wait until nothing is sent to any of their topics."""
    begun = time.monotonic()
    for guard in guards:
        throttle(task, guard)
    topics = [topic for guard in guards for topic in topics_of(task.blue, guard.namespace)]
    return wait_until_quiet(task, topics, begun)


def wait_until_quiet(task: BlueGreenTask, topics: Sequence[TopicName], begun: float) -> Quiet:
    """Wait until nothing is sent to any of these topics of blue; gives up after `quiesce_timeout`."""
    end = begun + task.input.quiesce_timeout.total_seconds()
    before: dict[TopicName, Traffic] = {}
    same = 0
    busy: list[TopicName] = []
    while same < _SAME_LOOKS:
        stats = [look.stats for look in task.each(topics, lambda topic: look_at(task.blue, topic))]
        show_blue(task.context, filter(None, stats))
        now = {topic: traffic_of(one) if one else Traffic() for topic, one in zip(topics, stats, strict=True)}
        busy = [topic for topic in topics if before.get(topic, (-1,))[0] != now[topic].sent]
        # Who drains is let do so for a while: a consumer that reaches the end just as the topic is terminated is told
        # that the topic has ended, and not where it goes on.
        draining = any(0 < now[topic].backlog < before[topic].backlog for topic in topics if topic in before)
        patient = time.monotonic() < begun + (end - begun) / 2
        same = 0 if busy or (draining and patient) else same + 1
        if same < _SAME_LOOKS and time.monotonic() > end:
            break
        before = now
        if busy:
            task.context.waiting_for(WaitKind.CLIENTS, f"writes to become quiet: {_some(busy)}")
        task.context.pause(_LOOK_EVERY)
    task.context.waits_no_more()
    return Quiet(
        seconds=round(time.monotonic() - begun, 3), busy=tuple(map(str, busy[:_NAMED])) if same < _SAME_LOOKS else ()
    )


def _some(topics: Sequence[TopicName]) -> str:
    return f"{', '.join(map(str, topics[:3]))}{f' and {len(topics) - 3} more' if len(topics) > 3 else ''}"
