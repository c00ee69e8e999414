"""What the blue-green migration found, measured and proved, and the states that its workflows carry."""

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
    """What was found out.

    Attributes:
        precheck: the result of PRECHECK.
        differences: in what green still differs after PROVISION; the first of these.
        census: the last look in the grace window.
        busy: what still used blue at COMPLETE.
        not_moved: namespaces of blue with topics that did not move.
    """

    precheck: Precheck | None = None
    differences: list[str] | None = None
    census: Census | None = None
    busy: list[str] | None = None
    not_moved: Count | None = None


class BlueGreenFigures(Figures):
    """What was measured.

    Attributes:
        blockers: how many a dry run found.
        missing: what green lacked, in a dry run.
        created: what PROVISION created on green, by kind.
        namespaces_moved: and `namespaces_failed`.
        topics_moved: partitions and topics without partitions.
        longest_quiesce_seconds: of a batch, from the throttle until writes were quiet.
        longest_final_copy_seconds: of a batch, to copy the rest of backlogs while writes were quiet.
        copied_messages: of idle subscriptions, and their `copied_bytes`.
        longest_flip_seconds: of a batch, from its flags until all its topics were terminated.
        longest_drain_seconds: of a batch, until nothing was left on blue.
        repaired: topics that were loaded again because they could not have been drained.
        skipped_messages: of idle subscriptions, given up as the input says.
        deleted_topics: that the cleanup removed from blue.
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
    """What was compared, and what came of it.

    Attributes:
        blue: the cluster that was left, and `green`, the one that took over.
        topics_compared: on both sides, after the drain of their batch.
        subscriptions_on_green: of these topics.
        unused_subscriptions: those among them that blue did not have at LOAD, and nobody uses.
        faults: what was wrong.
        entries_compared: that were copied and are equal in every byte; a batch of messages is one.
        subscriptions_copied: that continue with a copy, and have the same entries left on both sides.
        missing_clients: clients of blue that did not come to green within a minute, of so many `clients`.
        cluster_flag: whether the flag of the whole cluster is set.
        completed_at: when COMPLETE ended.
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
    """The state of the migration.

    Attributes:
        waves: how far the namespaces are.
        completion: the result of COMPLETE.
        refused_cleanup: why the last cleanup was refused, so that it is told once.
    """

    facts: BlueGreenFacts = Field(default_factory=BlueGreenFacts)
    figures: BlueGreenFigures = Field(default_factory=BlueGreenFigures)
    certificate: BlueGreenCertificate = Field(default_factory=BlueGreenCertificate)
    waves: WaveState
    completion: Completion | None = None
    refused_cleanup: str = ""


class BatchFacts(Figures):
    """What was found out about a batch."""

    loaded: Loaded | None = None
    seeded: CopyFigures | None = None
    quiet: Quiet | None = None
    final_copy: FinalCopy | None = None
    flipped: Flipped | None = None
    drained: Drained | None = None


class BatchFigures(Figures):
    """What was measured of a batch; see `BlueGreenFigures`."""

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
    """What was compared of a batch.

    Attributes:
        check: the result of VERIFY.
        copies: what was compared of backlogs that were copied.
        missing_clients: clients of blue that did not come to green, of which some are named; of so many `clients`.
        failed: namespaces with a fault, with the first reason.
    """

    check: BatchCheck | None = None
    copies: CopyProof | None = None
    missing_clients: Count | None = None
    clients: Count | None = None
    failed: dict[str, str] = Field(default_factory=dict[str, str])


class BatchState(MigrationState[BatchFacts, BatchFigures, BatchCertificate]):
    """The state of a batch."""

    facts: BatchFacts = Field(default_factory=BatchFacts)
    figures: BatchFigures = Field(default_factory=BatchFigures)
    certificate: BatchCertificate = Field(default_factory=BatchCertificate)
