"""Copy the messages of a scalable topic to a regular topic of the same cluster, in order per key.

    copied = copy_out(task, source, target, partitions=2)

`task` belongs to any activity about scalable topics whose workflow holds the claim (`claim`, by default the claim of
the cluster); this attempt renews it. `source` is the scalable topic. `target` is created with its partitions if it is
missing; it must be empty, or hold the copy of an earlier call. A call copies the stored messages and those that arrive
during the copy, and verifies them. It can be repeated: each call continues where the previous one ended. If `caught_up`
is false, producers still send: stop them, and call again. When consumers have their own subscriptions, `finish_copy`
ends the copy.

During the copy, the caller overrides the retention and auto-scale policies of the namespace (`cluster.take`): messages
that brokers delete too early cannot be copied, and cause an error if that is noticed.

Preserved: each message once, with payload, key, ordering key, properties, event and publish time, schema version,
compression, encryption, delivery time, chunks and batches. Also the order of each key, because a segment is copied only
after all its parents. A key goes to the partition to which producers of the target send it, by `hashing`. Batches are
split if their messages belong to several partitions.

Not preserved: message ids, producer names, sequence ids and transactions. Only committed messages are copied, and the
copy fails while transactions are open. Cursors are not preserved either: `subscriptions` are created before the first
message, and get all messages.

Only one attempt copies a segment: it owns the only producer with the name of that segment on each partition. By that
name it finds what a lost attempt has sent.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from activities.scalable_topic.context import ClusterTask
from activities.scalable_topic.operations.copy_out.proof import prove
from activities.scalable_topic.operations.copy_out.rounds import CopyRounds
from activities.scalable_topic.operations.copy_out.source import CopySource, parents_of
from activities.scalable_topic.operations.copy_out.target import CopyTarget
from clients.cas.claims import ClaimKeeper
from clients.cas.store import CasStore
from clients.errors import StoreConflict
from clients.pulsar.admin.late_requests import FencedAdmin
from clients.pulsar.names import TopicName
from models.lifecycle.claim import CLAIM, PacedClaim
from models.scalable_topic.copies import CopiedOut, KeyHash
from models.scalable_topic.input import ClusterInput
from models.segments.layout import SegmentLayout
from spark.scalable_topic.copy_record import CopyRecord, read_stored, record_path
from spark.scalable_topic.spec import CopyOut


def copy_out(
    task: ClusterTask[ClusterInput],
    source: TopicName,
    target: TopicName,
    *,
    partitions: int = 0,
    hashing: KeyHash = KeyHash.JAVA,
    subscriptions: Collection[str] = (),
    throttle: float | None = None,
    brokers_url: str = "",
    claim: str = CLAIM,
    dry_run: bool = False,
) -> CopiedOut:
    """Copy the messages of a scalable topic to a regular topic, and prove that they are there.

    Args:
        task: the activity.
        source: the scalable topic; its domain is ignored.
        target: the regular topic, not a partition.
        partitions: of the target; 0 for an unpartitioned one.
        hashing: how its producers choose a partition for a key.
        subscriptions: to create on the target before its first message.
        throttle: megabytes per second, of all tasks together; None for no limit.
        brokers_url: addresses of brokers, `pulsar://…`, as executors reach them; empty for those that are registered.
        claim: path of the claim that the caller holds.
        dry_run: only count.

    Raises:
        StoreConflict: the target holds something else, other clients send to it, or it differs from the copied
            messages; or segments were pruned before they were copied, or lost messages since the last call.
        StoreNotFound: the source is not a scalable topic.
        StoreUnsupported: a message cannot be copied.
        ClaimHeld, Superseded: another migration, or a newer attempt, holds the claim.
        StoreContention: transactions that have written to the source are open.
        StoreError: a store or a broker failed; the call can be repeated, and continues.
    """
    _require_whole(source, target)
    begun = time.monotonic()
    with task.cluster.store() as store:
        keeper = ClaimKeeper(store, PacedClaim, task.attempt, path=claim)
        regular = _target(task, store, target, partitions, keeper)
        job = _job(task, regular, hashing, brokers_url=brokers_url, claim=claim)
        segments = CopySource(store, source, job.brokers_url, job.wire)
        layout = segments.layout()
        _require_other(layout, regular)
        wanted = _record(source, layout, job)
        if dry_run:
            regular.require_ready(wanted)
            entries = sum(map(segments.entries, layout.segments.values()))
            return CopiedOut(
                target=str(target),
                partitions=partitions,
                seconds=_since(begun),
                segments=len(layout.segments),
                entries=entries,
            )
        keeper.renew(throttle=throttle)
        regular.prepare(wanted, subscriptions)
        regular.copy_schemas(source)
        engine = task.runtime.engine
        tag = task.runtime.tag(task.attempt.run_id or "copy-out", task.context)
        # Concurrent tasks share the throttle.
        job = replace(job, parallelism=max(1, engine.width(tag=tag)))
        copied = CopyRounds(engine, job, segments, store=store, context=task.context).run(tag)
        # Producers may have added versions since then, before they sent the messages that name them.
        regular.copy_schemas(source)
        proof = prove(engine, job, store, task.context, tag)
    return CopiedOut(
        target=str(target),
        partitions=partitions,
        seconds=_since(begun),
        segments=proof.segments,
        entries=copied.entries,
        already_copied=copied.already_copied,
        messages=proof.messages,
        size=proof.size,
        digest=proof.digest,
        certificate=proof.certificate,
        caught_up=copied.caught_up,
    )


def finish_copy(task: ClusterTask[ClusterInput], target: TopicName, *, claim: str = CLAIM) -> None:
    """End a copy: delete the subscription that retained its messages, and its records; idempotent.

    Args:
        task: the activity.
        target: the regular topic.
        claim: path of the claim that the caller holds.

    Raises:
        StoreConflict: the target has no other subscription, so that messages would be lost.
    """
    with task.cluster.store() as store:
        keeper = ClaimKeeper(store, PacedClaim, task.attempt, path=claim)
        keeper.renew()
        record, _ = read_stored(store, CopyRecord, record_path(target))
        if record is not None:
            regular = _target(task, store, target, record.partitions, keeper)
            regular.delete_keeper()
            regular.forget()


def _target(
    task: ClusterTask[ClusterInput],
    store: CasStore,
    target: TopicName,
    partitions: int,
    keeper: ClaimKeeper[PacedClaim],
) -> CopyTarget:
    def fence() -> None:
        keeper.require()

    admin = FencedAdmin.of(task.admin, fence, task.cluster.change_or_never)
    return CopyTarget(admin, store, target, partitions, fence)


def _job(
    task: ClusterTask[ClusterInput], target: CopyTarget, hashing: KeyHash, *, brokers_url: str, claim: str
) -> CopyOut:
    return CopyOut(
        store=task.input.store,
        attempt=task.attempt,
        brokers_url=brokers_url or task.cluster.service_url(),
        admin_urls=task.input.admin_urls,
        target=target.name,
        partitions=target.partitions,
        hashing=hashing,
        access=task.cluster.stores,
        wire=task.runtime.wire_of(task.input.credentials),
        claim=claim,
    )


def _record(source: TopicName, layout: SegmentLayout, job: CopyOut) -> CopyRecord:
    return CopyRecord(
        source=f"{source.namespace_path}/{source.topic}",
        partitions=job.partitions,
        hashing=job.hashing,
        pruned=tuple(sorted({*range(layout.next_segment_id)} - {*layout.segments})),
        parents=parents_of(layout),
    )


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)


def _require_whole(source: TopicName, target: TopicName) -> None:
    if target.partition is not None or target.domain != "persistent":
        raise StoreConflict(
            f"{target} is not the full name of a persistent topic; expected persistent://tenant/namespace/topic"
        )
    if (source.namespace_path, source.topic) == (target.namespace_path, target.topic):
        raise StoreConflict(f"{target} has the name of the scalable topic, whose clients would find both; name another")


def _require_other(layout: SegmentLayout, target: CopyTarget) -> None:
    parts = {str(partition) for partition in target.parts}
    taken = [segment.legacy_topic_name for segment in layout.segments.values() if segment.legacy_topic_name in parts]
    if taken:
        raise StoreConflict(f"{taken[0]} belongs to the scalable topic itself; name another target")
