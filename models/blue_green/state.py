"""Facts, figures and certificates of the blue-green migration, and the states of its workflows."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from models.base import Figures
from models.blue_green.copies import CopyFigures, CopyProof, FinalCopy
from models.blue_green.results import BatchCheck, Census, Completion, Drained, Flipped, Loaded, Precheck, Quiet
from models.lifecycle.state import MigrationState
from models.lifecycle.units import Bytes, Count, Messages, Seconds, Topics
from models.lifecycle.waves import WaveState


class BlueGreenFacts(Figures):
    """Facts of the migration.

    Attributes:
        precheck: result of PRECHECK.
        differences: the first differences that remain after PROVISION.
        census: last check of blue in the grace window.
        busy: topics that were in use on blue at COMPLETE.
        not_moved: number of blue's namespaces that did not move.
    """

    precheck: Precheck | None = None
    differences: list[str] | None = None
    census: Census | None = None
    busy: list[str] | None = None
    not_moved: Count | None = None


class BlueGreenFigures(Figures):
    """Figures of the migration.

    Attributes:
        blockers: number of blockers of a dry run.
        missing: number of things that green lacked in a dry run.
        created: number of things that PROVISION created on green, by kind.
        namespaces_moved: namespaces whose clients are on green.
        namespaces_failed: namespaces that did not move, or have faults.
        topics_moved: partitions and topics without partitions.
        longest_quiesce_seconds: longest time of a batch from the publish limit until writes stopped.
        longest_final_copy_seconds: longest time of a batch for the final copy, while writes were held back.
        copied_messages: copied messages of idle subscriptions.
        copied_bytes: their bytes as stored.
        longest_flip_seconds: longest time of a batch from its flags until all its topics were terminated.
        longest_drain_seconds: longest time of a batch until its topics on blue were drained.
        repaired: topics that were unloaded during the flip, and loaded again to be drained.
        skipped_messages: messages of idle subscriptions that were given up, with `skip`.
        deleted_topics: topics that the cleanup deleted from blue.
    """

    blockers: Count | None = None
    missing: Count | None = None
    created: dict[str, int] | None = None
    namespaces_moved: Count | None = None
    namespaces_failed: Count | None = None
    topics_moved: Topics | None = None
    longest_quiesce_seconds: Seconds | None = None
    longest_final_copy_seconds: Seconds | None = None
    copied_messages: Messages | None = None
    copied_bytes: Bytes | None = None
    longest_flip_seconds: Seconds | None = None
    longest_drain_seconds: Seconds | None = None
    repaired: Topics | None = None
    skipped_messages: Messages | None = None
    deleted_topics: Topics | None = None


class BlueGreenCertificate(Figures):
    """Certificate of the migration: what was compared, and the result.

    Attributes:
        blue: name of the old cluster.
        green: name of the new cluster.
        topics_compared: topics that were compared after the drain of their batch.
        subscriptions_on_green: subscriptions of these topics on green.
        unused_subscriptions: subscriptions among them without consumers that blue did not have right before the flag.
        faults: number of faults.
        entries_compared: copied entries that are equal in every byte; a batch of messages is one entry.
        subscriptions_copied: subscriptions that continue with a copy, with equal unacknowledged entries.
        missing_clients: clients of blue that did not connect to green within a minute.
        clients: producers and consumers that blue had at LOAD.
        cluster_flag: the flag of the whole cluster is set.
        completed_at: time when COMPLETE ended.
    """

    blue: str | None = None
    green: str | None = None
    topics_compared: Topics | None = None
    subscriptions_on_green: Count | None = None
    unused_subscriptions: Count | None = None
    faults: Count | None = None
    entries_compared: Count | None = None
    subscriptions_copied: Count | None = None
    missing_clients: Count | None = None
    clients: Count | None = None
    cluster_flag: bool | None = None
    completed_at: datetime | None = None


class BlueGreenState(MigrationState[BlueGreenFacts, BlueGreenFigures, BlueGreenCertificate]):
    """State of the migration's workflow.

    Attributes:
        waves: progress of the namespaces.
        completion: result of COMPLETE.
        refused_cleanup: why the last cleanup was refused, so that it is reported once.
    """

    facts: BlueGreenFacts = Field(default_factory=BlueGreenFacts)
    figures: BlueGreenFigures = Field(default_factory=BlueGreenFigures)
    certificate: BlueGreenCertificate = Field(default_factory=BlueGreenCertificate)
    waves: WaveState
    completion: Completion | None = None
    refused_cleanup: str = ""


class BatchFacts(Figures):
    """Facts of a batch: the result of each step."""

    loaded: Loaded | None = None
    seeded: CopyFigures | None = None
    quiet: Quiet | None = None
    final_copy: FinalCopy | None = None
    flipped: Flipped | None = None
    drained: Drained | None = None


class BatchFigures(Figures):
    """Figures of a batch; see `BlueGreenFigures`."""

    topics: Topics | None = None
    quiesce_seconds: Seconds | None = None
    final_copy_seconds: Seconds | None = None
    copied_messages: Messages | None = None
    copied_bytes: Bytes | None = None
    flip_seconds: Seconds | None = None
    drain_seconds: Seconds | None = None
    repaired: Topics | None = None
    skipped_messages: Messages | None = None


class BatchCertificate(Figures):
    """Certificate of a batch.

    Attributes:
        check: result of VERIFY.
        copies: comparison of the copied backlogs.
        missing_clients: clients of blue that did not connect to green.
        clients: producers and consumers that blue had at LOAD.
        failed: first fault of each namespace that has one.
    """

    check: BatchCheck | None = None
    copies: CopyProof | None = None
    missing_clients: Count | None = None
    clients: Count | None = None
    failed: dict[str, str] = Field(default_factory=dict[str, str])


class BatchState(MigrationState[BatchFacts, BatchFigures, BatchCertificate]):
    """State of a batch's workflow."""

    facts: BatchFacts = Field(default_factory=BatchFacts)
    figures: BatchFigures = Field(default_factory=BatchFigures)
    certificate: BatchCertificate = Field(default_factory=BatchCertificate)
