"""What PRECHECK asks of green where that is a cluster that was left: whether its clients can come back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from activities.blue_green.context import AnyBlueGreenTask
from activities.blue_green.flags import led_elsewhere
from activities.blue_green.listing import namespaces_of
from activities.blue_green.way_back import ended_topics
from activities.lifecycle.precheck import Findings
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import flag_time
from models.lifecycle.failures import some

_SWEEP = "clusterMigrationCheckDurationSeconds"


def check_way_back(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> frozenset[TopicName]:
    """Look for what an earlier migration has left on green; returns topics of green that are made anew."""
    green = task.input.green_cluster
    known = task.green.clusters.migration(green)
    if known is None:
        _check_later(task, findings)
        return frozenset()
    there = set(namespaces_of(task.green))
    with task.green_store() as store:
        times = {name: at for name in there if (at := flag_time(store, name)) is not None}
    if times or known.migrated:
        if why := led_elsewhere(task, known.migrated_cluster_url, task.input.blue, task.input.cluster):
            findings.block("GREEN_FLAG_SET", f"{green} sends its clients away: {why}", "take its flags off")
        _check_restarted(task, findings, max(times.values(), default=0))
        findings.warn(
            f"{green} was left by an earlier migration, and sends clients of {len(times) or 'all'} namespaces "
            f"to {task.input.cluster}; this is their way back. Each is served by {green} again from the begin of its "
            "batch on"
        )
    return _check_ended(task, findings, [name for name in namespaces if name in there])


def _check_later(task: AnyBlueGreenTask, findings: Findings) -> None:
    """What the way back will need one day, and what now takes no restart under traffic."""
    for broker, admin in task.green_brokers():
        if int(admin.brokers.runtime_configuration().get(_SWEEP) or 0) <= 0:
            findings.warn(
                f"{broker} of {task.input.green_cluster} could not send clients back: {_SWEEP} is 0. For a way back, "
                "set it to 1 before clients come; later it takes restarts under their traffic"
            )


def _check_restarted(task: AnyBlueGreenTask, findings: Findings, flagged_ms: int) -> None:
    """Brokers keep a producer that they sent away, and refuse it on the same connection indefinitely (5.0.1, seen).

    Those that were started after the flags were set have sent producers away without loading their topics, which
    leaves nothing behind.
    """
    started = [(broker, admin.brokers.started_ms()) for broker, admin in task.green_brokers()]
    if old := [broker for broker, at in started if at < flagged_ms]:
        since = datetime.fromtimestamp(flagged_ms / 1000, UTC).isoformat(timespec="seconds")
        findings.block(
            "GREEN_NOT_RESTARTED",
            f"brokers of {task.input.green_cluster} that were started before {since}, when they were told to send "
            f"clients away, would refuse these on the connections that they still have: {some(old)}",
            "restart each of them once; no client is served there now",
        )


def _check_ended(task: AnyBlueGreenTask, findings: Findings, namespaces: Sequence[str]) -> frozenset[TopicName]:
    ended = [found for name in namespaces for found in ended_topics(task, name).items()]
    if waiting := [f"{topic} ({one.needed_by})" for topic, one in ended if one.needed_by]:
        findings.block(
            "GREEN_ENDED_TOPICS",
            f"{len(waiting)} topics of {task.input.green_cluster} were ended by an earlier migration, and still have "
            f"messages for others: {some(waiting)}",
            "take the flag of their namespace off and consume what is left, or give it up: pulsar-admin topics delete",
        )
    if refused := [f"{topic} ({one.refusal})" for topic, one in ended if one.refusal and not one.needed_by]:
        findings.block(
            "GREEN_RETAINED_MESSAGES",
            f"{len(refused)} topics of {task.input.green_cluster} that an earlier migration has ended would be deleted "
            f"with messages that no other cluster has: {some(refused)}",
            'copy what you need of them, then set "discard_retained": true; or exclude their namespaces',
        )
    if empty := [str(topic) for topic, one in ended if not one.refusal]:
        findings.warn(
            f"{len(empty)} topics of {task.input.green_cluster} that an earlier migration has ended are deleted, with "
            f"the messages that they still hold, and created again: {some(empty)}"
        )
    return frozenset(topic for topic, _ in ended)
