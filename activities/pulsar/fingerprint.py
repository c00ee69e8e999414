"""Facts of a cluster to which a receipt binds the start of a migration: they change only by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from activities.lifecycle.precheck import Findings
from activities.pulsar.exclusion import CLUSTERS
from activities.pulsar.registrations import registered
from activities.pulsar.releases import SeenBroker
from clients.store import Record, StoreReader, name_of, text_of
from models.base import json_sum
from models.coverage.results import FeatureUse
from models.lifecycle.failures import summarize
from models.lifecycle.input import MigrationInput, WorkflowInput
from models.lifecycle.receipt import RECEIPT_DRIFT
from models.store_url import StoreUrl

# Written once, by BookKeeper's setup of a cluster.
_INSTANCE = b"/ledgers/INSTANCEID"
_SHOWN = 20
_NAMED, _DIGITS = 5, 16


def cluster_facts(reader: StoreReader, store: StoreUrl, brokers: Sequence[SeenBroker] = ()) -> dict[str, str]:
    """Return the facts of a cluster, by name.

    Args:
        reader: of the metadata store of its brokers.
        store: its address.
        brokers: those that reported their release.

    Raises:
        StoreError: the store cannot be read.
    """
    services = [service.name for service in registered(reader)]
    clusters = sorted(name_of(path) for path in reader.children(CLUSTERS.encode()))
    (instance,) = reader.read([_INSTANCE])
    versions = {broker.name: f"Pulsar {broker.version or 'unknown'}" for broker in brokers}
    facts = {f"clusters in {store}": ", ".join(clusters) or "none"}
    facts |= {name: versions.get(name, "registered") for name in services}
    if isinstance(instance, Record):
        facts[f"ledgers of {store}"] = f"instance {text_of(instance.value, instance.path)}"
    return facts


def names_fact(names: Sequence[str]) -> str:
    """Return names as one fact: their number, the first ones, and a sum of all."""
    ordered = sorted(names)
    more = ", …" if len(ordered) > _NAMED else ""
    return f"{len(ordered)} ({', '.join(ordered[:_NAMED])}{more}; sum {json_sum({'names': ordered})[:_DIGITS]})"


def common_facts(features: Sequence[FeatureUse], zookeepers: Mapping[str, str]) -> dict[str, str]:
    """Return the facts of each migration: its own version, those of ZooKeeper, and the features in use."""
    facts = {"pulsar-migrate": version("pulsar-migrate")}
    facts |= {f"ZooKeeper {server}": release or "unknown" for server, release in zookeepers.items()}
    accepted = {True: ", accepted", False: ""}
    return facts | {f"feature {use.feature}": f"{use.outcome}{accepted[use.accepted]}" for use in features}


def check_receipt(findings: Findings, input: WorkflowInput, facts: Mapping[str, str]) -> None:
    """Add a blocker if servers differ from the receipt of the input, or if the receipt is too old."""
    if not isinstance(input, MigrationInput) or input.receipt is None:
        return
    receipt, age = input.receipt, datetime.now(UTC) - input.receipt.planned_at
    differences = receipt.drift(facts)  # mutant: shared/a-receipt-is-not-compared
    if differences:
        findings.block(
            RECEIPT_DRIFT,
            f"{len(differences)} facts differ from the receipt of {receipt.planned_at:%Y-%m-%d %H:%M}Z: "
            f"{summarize(differences, shown=_SHOWN)}",
            "check what changed, plan again, and start with the new receipt",
        )
    if input.receipt_max_age is not None and age > input.receipt_max_age:
        findings.block(
            "RECEIPT_TOO_OLD",
            f"the receipt of {receipt.planned_at:%Y-%m-%d %H:%M}Z is older than receipt_max_age",
            "plan again, and start with the new receipt",
        )
