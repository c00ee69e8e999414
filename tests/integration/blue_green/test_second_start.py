"""A migration that is started again, after one that was terminated, rolled back, or has ended with failures."""

from __future__ import annotations

import pytest

from activities.blue_green.batch import drain, verify
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.records.namespace_flag import read_flag
from clients.stores import Access, open_cas_reader
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.store_url import parse_store_url
from pulsar_devstack.traffic.pulsar_client import send_to
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.backlogs import received, require_sent, sent
from tests.support.blue_green.cleanup import clean_up
from tests.support.blue_green.environment import Clusters
from tests.support.blue_green.namespaces import wait_until_listed
from tests.support.blue_green.steps import Steps, make_namespace
from tests.support.lifecycle.environment import Environment
from tests.support.waiting import wait_for

_LIMIT = 200.0
_OWN = PublishRate(publish_throttling_rate_in_msg=700)


def _fields(tenant: str, **more: object) -> dict[str, object]:
    waves: dict[str, object] = {"canary": 0, "gate": "none", "when_held": "stop", "attempts": 1}
    return {
        "namespaces": [f"{tenant}/*"],
        "waves": {**waves, "error_budget": {"items": 2}},
        "grace_window": "PT0S",
        "complete_cluster": False,
        **more,
    }


def test_terminated_while_writes_are_held_back(clusters: Clusters, environment: Environment) -> None:
    """The limit of a terminated run does not count as a difference; the next run restores it, and moves everything."""
    (topic,) = make_namespace(clusters, "again/held", "topic")
    clusters.blue_admin.namespaces.set_publish_rate("again/held", _OWN)
    gone = Steps(clusters, "again/held")
    gone.begin()
    assert not gone.quiesce().busy
    report = environment.operator.run(clusters.input(**_fields("again", namespaces=["again/held"])), _LIMIT)
    assert report.outcome is Outcome.DONE, report
    assert clusters.blue_admin.namespaces.publish_rate("again/held") == _OWN
    assert clusters.green_admin.namespaces.publish_rate("again/held") == _OWN
    send_to(clusters.blue.broker_url, [str(topic)])


@pytest.mark.parametrize(
    "phase",
    [pytest.param("SEED", marks=pytest.mark.exhaustive), "FLIP", pytest.param("DRAIN", marks=pytest.mark.exhaustive)],
)
def test_terminated_during_a_batch(clusters: Clusters, environment: Environment, phase: str) -> None:
    """The next run completes what was flipped, flips the rest, and delivers the idle backlog once."""
    tenant = f"terminated-{phase.lower()}"
    topics = make_namespace(clusters, f"{tenant}/one", "a", "b")
    clusters.blue_admin.subscriptions.create(topics[0], "idle")
    input = clusters.input(**_fields(tenant, idle_subscriptions="copy", quiesce_timeout="PT2M"))
    with Traffic.here(clusters.blue.broker_url, list(map(str, topics)), interval=0.02) as traffic:
        traffic.wait_for_more(30)
        run = environment.operator.start(input)
        environment.operator.wait_for_batch(input, f"{tenant}/one", phase)
        run.terminate()
        report = environment.operator.run(input, _LIMIT)
        assert report.outcome is Outcome.DONE, report
        traffic.wait_for_more(10)
        traffic.verify()
        expected = sent(traffic, topics[0])
        backlog = received(clusters.green.broker_url, str(topics[0]), "idle", least=len(expected))
        require_sent(backlog, expected, traffic)
    assert clusters.blue_admin.namespaces.publish_rate(f"{tenant}/one") is None


def test_a_batch_that_is_terminated_releases_writes(clusters: Clusters, environment: Environment) -> None:
    """The namespace of a terminated batch has failed; its writes continue while the migration waits for a decision."""
    (topic,) = make_namespace(clusters, "batch-gone/one", "topic")
    make_namespace(clusters, "batch-gone/two", "topic")
    # Nothing holds back a topic with a rate of its own, so that the batch waits for quiet writes.
    clusters.blue_admin.topic_policies.set(topic, "publishRate", {"publishThrottlingRateInMsg": 1_000})
    waves: dict[str, object] = {"canary": 1, "gate": "none"}
    input = clusters.input(**_fields("batch-gone", waves=waves, quiesce_timeout="PT2M"))
    with Traffic.here(clusters.blue.broker_url, [str(topic)], interval=0.02) as traffic:
        traffic.wait_for_more(30)
        run = environment.operator.start(input)
        batch = environment.operator.wait_for_batch(input, "batch-gone/one", "QUIESCE")
        wait_for("the limit", lambda: clusters.blue_admin.namespaces.publish_rate("batch-gone/one") is not None, 30)
        batch.terminate()
        run.wait_until_it_waits_for(WaitKind.ERROR_BUDGET, _LIMIT)
        assert clusters.blue_admin.namespaces.publish_rate("batch-gone/one") is None
        run.signal(Verb.ROLLBACK)
        assert run.result(_LIMIT).outcome is Outcome.ROLLED_BACK
        traffic.wait_for_more(10)
        traffic.verify()


@pytest.mark.exhaustive
def test_rolled_back_after_the_canary(clusters: Clusters, environment: Environment) -> None:
    """Moved namespaces stay; the next start completes them, although clients use green, and moves the rest."""
    topics = [*make_namespace(clusters, "gate/a", "topic"), *make_namespace(clusters, "gate/b", "topic")]
    waves: dict[str, object] = {"canary": 1, "gate": "canary", "when_held": "stop", "attempts": 1}
    with Traffic.here(clusters.blue.broker_url, list(map(str, topics))) as traffic:
        traffic.wait_for_more(10)
        run = environment.operator.start(clusters.input(**_fields("gate", waves=waves)))
        run.wait_until_it_waits_for(WaitKind.GATE, _LIMIT)
        run.signal(Verb.ROLLBACK)
        assert run.result(_LIMIT).outcome is Outcome.ROLLED_BACK
        assert _flags(clusters, "gate/a", "gate/b") == [True, False]
        traffic.wait_for_more(10)
        report = environment.operator.run(clusters.input(**_fields("gate")), _LIMIT)
        assert report.outcome is Outcome.DONE, report
        assert any("clients of gate/a are redirected to green already" in note for note in report.notes)
        assert _flags(clusters, "gate/a", "gate/b") == [True, True]
        traffic.wait_for_more(10)
        traffic.verify()


def test_a_topic_that_was_deleted_after_its_move(clusters: Clusters) -> None:
    """A later start, with more namespaces for example, compares a moved namespace again: that is not a fault."""
    namespace = "moved/before"
    topic, _ = make_namespace(clusters, namespace, "deleted", "there")
    first = Steps(clusters, namespace)
    first.move()
    assert first.batch(verify.verify).faults == ()
    clusters.green_admin.topics.delete(topic)
    (fault,) = first.batch(verify.verify).faults
    assert fault.reason == "green has no such topic"
    first.batch(drain.drain)
    first.finish()
    second = Steps(clusters, namespace, run_id="run-2")
    second.move()
    assert second.batch(verify.verify).faults == ()
    second.end()


@pytest.mark.exhaustive
def test_backlog_that_was_not_drained_in_time(clusters: Clusters, environment: Environment) -> None:
    """The namespace fails; its backlog is consumed at blue's address; the next start finds nothing left."""
    (topic,) = make_namespace(clusters, "undrained/one", "topic")
    clusters.blue_admin.subscriptions.create(topic, "idle")
    send_to(clusters.blue.broker_url, 3 * [str(topic)])
    input = clusters.input(**_fields("undrained", drain_timeout="PT3S"))
    failed = environment.operator.refusal(input, _LIMIT)
    assert "subscription idle has 3 messages left, and no consumer" in failed.message
    assert len(received(clusters.blue.broker_url, str(topic), "idle", least=3, acknowledge=True)) == 3
    report = environment.operator.run(input, _LIMIT)
    assert report.outcome is Outcome.DONE, report


def test_topics_of_blue_stay_until_they_are_cleaned_up(clusters: Clusters, environment: Environment) -> None:
    """Brokers of blue do not delete what moved: consumers by pattern list it there. The cleanup undoes that as well."""
    make_namespace(clusters, "kept/one", "topic")
    before = clusters.blue_admin.namespaces.policies("kept/one").raw.get("inactive_topic_policies")
    fields = _fields("kept", cleanup="remove", grace_window="PT1H")
    run = environment.operator.start(clusters.input(**fields))
    run.wait_until("the window", lambda status: status.phase == "GRACE", _LIMIT)
    inactive_topics = clusters.blue_admin.namespaces.inactive_topics("kept/one")
    assert inactive_topics is not None
    assert not inactive_topics.delete_while_inactive
    assert clusters.green_admin.namespaces.inactive_topics("kept/one") is None
    assert clean_up(run, _LIMIT).outcome is Outcome.DONE
    wait_until_listed(clusters.blue_admin, "kept/one", [])
    assert clusters.blue_admin.namespaces.policies("kept/one").raw.get("inactive_topic_policies") == before


def _flags(clusters: Clusters, *namespaces: str) -> list[bool]:
    with open_cas_reader(parse_store_url(clusters.blue.metadata_url), Access()) as store:
        return [read_flag(store, namespace) for namespace in namespaces]
