"""Topics of namespaces become scalable in waves on a real broker, under a workflow of a real Temporal server."""

from __future__ import annotations

import pytest

from activities.pulsar.namespace_guard import recorded_namespaces
from activities.scalable_topic.cluster import recorded_topics
from clients.cas.store import CasStore
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.namespaces import Retention
from clients.pulsar.names import TopicName
from clients.pulsar.records.scalable_topics import read_scalable, recorded_subscriptions
from models.lifecycle.claim import CLAIM
from models.lifecycle.status import Outcome, WaitKind
from models.scalable_topic.namespace_input import ScalableNamespaceInput
from models.scalable_topic.state import NamespaceCertificate, NamespaceFigures
from models.segments.layout_check import layout_faults
from models.segments.repair import comes_from
from pulsar_devstack.servers.stack import Stack
from tests.support.blue_green.namespaces import create_namespace
from tests.support.lifecycle.environment import Environment

OWN = Retention(retention_time_in_minutes=7, retention_size_in_m_b=70)
PARTITIONS = (0, 3)
SUBSCRIPTION = "all"


def _input(stack: Stack, admin: PulsarAdmin, *topics: str, **more: object) -> ScalableNamespaceInput:
    given: dict[str, object] = {
        "cluster": admin.brokers.runtime_configuration()["clusterName"],
        "metadata_url": stack.metadata_url,
        "admin_urls": stack.admin_urls,
        "topics": topics,
        "hold_before_cutover": False,
    }
    return ScalableNamespaceInput.model_validate({**given, **more})


def _topics(admin: PulsarAdmin, namespace: str, count: int) -> list[TopicName]:
    """Return topics with and without partitions in turn, each with a subscription."""
    create_namespace(admin, namespace)
    admin.namespaces.set_retention(namespace, OWN)
    names = [TopicName.parse(f"persistent://{namespace}/t{number:03d}") for number in range(count)]
    for number, name in enumerate(names):
        if partitions := PARTITIONS[number % len(PARTITIONS)]:
            admin.topics.create_partitioned(name, partitions)
        else:
            admin.topics.create(name)
        admin.subscriptions.create(name, SUBSCRIPTION)
    return names


def _cannot(admin: PulsarAdmin, name: TopicName) -> None:
    """Make a topic that cannot become scalable: brokers cannot record such a subscription."""
    admin.subscriptions.create(name, "with/slash")


def _is_tidy(admin: PulsarAdmin, store: CasStore, namespace: str) -> None:
    assert admin.namespaces.retention(namespace) == OWN
    assert store.get(CLAIM) is None
    assert namespace not in recorded_namespaces(store)
    assert [topic for topic in recorded_topics(store) if topic.namespace_path == namespace] == []


def test_topics_of_two_namespaces_become_scalable(
    stack: Stack, admin: PulsarAdmin, store: CasStore, environment: Environment
) -> None:
    """Each is complete, with records and cursors, and nothing of the migration is left."""
    names = [name for space in ("waves/one", "waves/two") for name in _topics(admin, space, 3)]
    report = environment.operator.run(
        _input(stack, admin, "waves/*/*", exclude=["waves/two/t002"], waves={"canary": 1, "gate": "none"})
    )
    assert report.outcome is Outcome.DONE, report.notes
    figures = NamespaceFigures.model_validate(report.figures)
    assert (figures.topics_scalable, figures.topics_failed) == (5, 0)
    proof = NamespaceCertificate.model_validate(report.certificate)
    assert (proof.segments, proof.subscriptions, proof.faults) == (9, 5, 0)
    for name in names[:5]:
        layout = read_scalable(store, name).layout
        assert layout is not None
        assert layout_faults(layout) == []
        assert set(recorded_subscriptions(store, name)) == {SUBSCRIPTION}
    assert read_scalable(store, names[5]).layout is None
    for space in ("waves/one", "waves/two"):
        _is_tidy(admin, store, space)


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_failing_topics_stop_the_waves(
    stack: Stack, admin: PulsarAdmin, store: CasStore, environment: Environment, count: int
) -> None:
    """When more fail than the budget allows no further topic begins, and the report names those that failed."""
    failing = (count // 4, count // 2)
    names = _topics(admin, space := f"budget/of-{count}", count)
    for number in failing:
        _cannot(admin, names[number])
    waves = {"canary": 1, "wave_size": max(count // 10, 2), "parallelism": 8, "gate": "none"}
    budget = {"error_budget": {"items": 1}, "when_held": "stop"}
    report = environment.operator.run(_input(stack, admin, f"{space}/*", waves={**waves, **budget}), limit=800)
    assert report.outcome is Outcome.DONE_WITH_FAILURES
    (failed,) = [items for items in report.failed_items if items.what == "item(s) failed"]
    assert [item.path for item in failed.items] == [f"{space}/t{number:03d}" for number in failing]
    assert all("SUBSCRIPTION_NAME" in item.reason for item in failed.items)
    begun = NamespaceFigures.model_validate(report.figures).topics_scalable
    assert begun is not None
    assert failing[1] - 1 <= begun < count - 2
    _is_tidy(admin, store, space)


def test_a_dry_run_of_many_topics_writes_nothing(
    stack: Stack, admin: PulsarAdmin, store: CasStore, environment: Environment
) -> None:
    """It counts, and names the topics that cannot become scalable."""
    names = _topics(admin, "survey/space", 3)
    _cannot(admin, names[1])
    report = environment.operator.run(_input(stack, admin, "survey/space/*", dry_run=True))
    assert report.outcome is Outcome.PLANNED
    assert report.summary.startswith("ready: 3 topics in 1 namespaces"), report.summary
    assert "1 of them cannot become scalable as they are" in report.summary
    (blocked,) = report.failed_items
    assert [item.path for item in blocked.items] == ["survey/space/t001"]
    assert [read_scalable(store, name).layout for name in names] == [None] * 3
    _is_tidy(admin, store, "survey/space")


def test_a_topic_whose_name_is_taken_is_reported(
    stack: Stack, admin: PulsarAdmin, store: CasStore, environment: Environment
) -> None:
    """A dry run and a migration name it with the cure; `replace_empty` makes it scalable, and then it is left out."""
    names = _topics(admin, "taken/space", 3)
    admin.scalable_topics.create(names[1])
    given = {"waves": {"gate": "none", "error_budget": {"items": 1}}}
    for more, what in (({"dry_run": True}, "topic(s) cannot become scalable"), ({}, "item(s) failed")):
        report = environment.operator.run(_input(stack, admin, "taken/space/*", **given, **more))
        assert report.outcome is (Outcome.PLANNED if more else Outcome.DONE_WITH_FAILURES), report.notes
        (failed,) = [items for items in report.failed_items if items.what == what]
        assert [item.path for item in failed.items] == ["taken/space/t001"]
        assert "NAME_TAKEN" in failed.items[0].reason
        assert "replace_empty" in failed.items[0].reason
    assert NamespaceFigures.model_validate(report.figures).topics_scalable == 2
    assert not admin.topics.internal_stats(names[1].of_partition(0)).terminated
    report = environment.operator.run(_input(stack, admin, "taken/space/*", replace_empty=True, **given))
    assert report.outcome is Outcome.DONE, report.notes
    assert NamespaceFigures.model_validate(report.figures).topics_scalable == 1
    layout = read_scalable(store, names[1]).layout
    assert layout
    assert comes_from(layout, [str(names[1].of_partition(number)) for number in range(3)])
    _is_tidy(admin, store, "taken/space")
    assert "NO_TOPICS" in environment.operator.refusal(_input(stack, admin, "taken/space/*")).message


def test_patterns_that_fit_nothing_are_refused(stack: Stack, admin: PulsarAdmin, environment: Environment) -> None:
    """The blocker says what was looked for."""
    failure = environment.operator.refusal(_input(stack, admin, "missing/has/*"))
    assert "NO_TOPICS" in failure.message


def test_the_stop_switch(stack: Stack, admin: PulsarAdmin, store: CasStore, environment: Environment) -> None:
    """No topic starts while the stop file exists; without it, the topic becomes scalable."""
    names = _topics(admin, "stopped/one", 1)
    environment.stop_file.write_text("OPS-7: the network is being repaired\n")
    run = environment.operator.start(
        _input(stack, admin, "stopped/one/*", waves={"canary": 0, "gate": "none", "parallelism": 1})
    )
    try:
        status = run.wait_until_it_waits_for(WaitKind.STOP_SWITCH)
        assert status.waiting is not None
        assert status.waiting.why == "the stop switch is set: OPS-7: the network is being repaired"
        assert not any(read_scalable(store, name).layout for name in names)
    finally:
        environment.stop_file.unlink()
    report = run.result()
    assert report.outcome is Outcome.DONE, report.notes
    assert NamespaceFigures.model_validate(report.figures).topics_scalable == len(names)
    _is_tidy(admin, store, "stopped/one")
