"""The matrix of faults: which steps of which migration a late attempt comes back to."""

from __future__ import annotations

from importlib import import_module

import pytest

from activities.lifecycle.step import steps_of
from tests.faults.lifecycle.rounds import ZOMBIE, Choice
from worker.catalog import ALL

PACKAGES = sorted({kind.package for kind in ALL.values()})
"""Kinds of one package share its rounds."""

READING = {
    "blue_green": {"precheck", "list_namespaces", "census"},
    "scalable_topic": {"precheck", "await_clients", "drain", "verify", "survey", "list_topics", "check_operation"},
    "topic_controller": {"report", "find_drained", "observe", "await_prune", "await_scale"},
}
"""Steps that change nothing, of migrations whose steps do not say so themselves."""

ELSEWHERE = {
    # Rounds have no services that are stopped, or that have left the source, no double of a plugin, and no dead target;
    # and what is done to topics that are scalable already has none.
    "metadata_store": {"copy_whole", "clean_source"},
    # The census changes something with a plugin only.
    "bookie_cluster": {
        "promote",
        "set_pace",
        "set_read_mode",
        "close_client",
        "remove_copies",
        "do_without_target",
        "census",
    },
    "blue_green": set[str](),
    "scalable_topic": {"operate", "complete_operation"},
    "topic_controller": set[str](),
}
"""Steps whose late attempts have no rounds: tests of single activities show what their fences do."""


@pytest.mark.parametrize("package", PACKAGES)
def test_each_changing_step_has_a_round_with_a_late_attempt(package: str) -> None:
    """A new step that changes something needs a round in which a frozen attempt of it continues late."""
    prefix = f"{package}_"
    registered = steps_of(f"activities.{package}")
    steps = {step.name.removeprefix(prefix) for step in registered}
    choice: Choice = import_module(f"tests.faults.{package}.rounds").ROUNDS
    late = {fault_round.gate.step for fault_round in choice.matrix(1) if fault_round.victim == ZOMBIE}
    reading = {step.name.removeprefix(prefix) for step in registered if step.options.reads_only}
    assert steps - late - reading - READING.get(package, set()) - ELSEWHERE[package] == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_sample_has_a_late_worker(package: str) -> None:
    """Every run of the tests has a round of each migration in which a frozen worker comes back too late."""
    choice: Choice = import_module(f"tests.faults.{package}.rounds").ROUNDS
    assert any(fault_round.victim == ZOMBIE for fault_round in choice.sample(1))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_third_of_the_rounds_is_on_an_ensemble(package: str) -> None:
    """Of 150 rounds of a migration a third or more has three ZooKeepers; its name is enough to repeat a round."""
    choice: Choice = import_module(f"tests.faults.{package}.rounds").ROUNDS
    rounds = choice.rounds(150, 454)
    assert len(rounds) == 150
    assert sum(fault_round.ensemble for fault_round in rounds) >= 45
    assert choice.replay(map(str, rounds)) == rounds
