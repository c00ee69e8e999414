"""A blue-green migration from its dry run to its end, on two real clusters, under traffic."""

from __future__ import annotations

import pytest
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.blue_green.namespace_redirect import records
from clients.pulsar.admin.namespaces import PublishRate
from clients.pulsar.admin.tenants import Tenant
from clients.pulsar.names import TopicName
from clients.pulsar.records.namespace_flag import read_flag
from clients.stores import Access, open_cas_reader
from models.blue_green.claims import Stage
from models.blue_green.input import BlueGreenInput
from models.defects import has_defect
from models.lifecycle.claim import CLAIM
from models.lifecycle.failures import FailureKind
from models.lifecycle.status import Outcome, WaitKind
from models.lifecycle.verbs import Verb
from models.releases import parse_release
from models.store_url import parse_store_url
from pulsar_devstack.traffic.runner import Traffic
from tests.support.blue_green.environment import BLUE, GREEN, Clusters
from tests.support.blue_green.namespaces import set_topic_policies
from tests.support.lifecycle.environment import Environment
from tests.support.waiting import wait_for

RATE = PublishRate(publish_throttling_rate_in_msg=500)


def test_dry_run_names_what_green_lacks(clusters: Clusters, environment: Environment) -> None:
    """A dry run reports what would move and what green lacks, and writes nothing on either side."""
    release = parse_release(clusters.blue_admin.brokers.version())
    (topic, *_) = _namespaces(clusters, "dry", "one", "two")
    set_topic_policies(clusters.blue_admin, TopicName.parse(topic), {"publishRate": RATE.body()})
    accepted: tuple[str, ...] = ()
    if has_defect(release, "TERMINATE_REOPENS"):
        refused = environment.operator.run(_input(clusters, "dry", dry_run=True))
        assert "[OWN_PUBLISH_RATE] 1 topics" in refused.summary
        accepted = ("TERMINATE_REOPENS",)
    report = environment.operator.run(_input(clusters, "dry", dry_run=True, accept_defects=accepted))
    assert report.outcome is Outcome.PLANNED, report.summary
    assert "2 namespaces with 8 topics" in report.summary
    assert report.figures["missing"] > 2
    assert any("1 topics have their own publish rate" in note and topic in note for note in report.notes)
    shedders = [each.default("loadBalancerLoadSheddingStrategy") for each in (release, clusters.green_release)]
    differs = "loadBalancerLoadSheddingStrategy differs (blue: {}, green: {}); both are defaults".format(*shedders)
    assert any(differs in note for note in report.notes) is (shedders[0] != shedders[1])
    behaviour = f"brokers of blue ({release}) and green ({clusters.green_release}) differ: only "
    assert any(behaviour in note for note in report.notes) is (release.line != clusters.green_release.line)
    assert "dry" not in clusters.green_admin.tenants.names()
    assert not _claimed(clusters)


def test_traffic_moves_without_a_loss(clusters: Clusters, environment: Environment) -> None:
    """Namespaces move under traffic: no message is lost, order is kept, and only the flags remain on blue."""
    topics = _namespaces(clusters, "live", "one", "two")
    clusters.blue_admin.namespaces.set_publish_rate("live/one", RATE)
    with Traffic.here(clusters.blue.broker_url, topics) as traffic:
        traffic.wait_for_more(20)
        run = environment.operator.start(_input(clusters, "live", grace_window="PT1H"))
        environment.operator.wait_for_batch(_input(clusters, "live"), "live/one", "LOAD")
        (batch,) = run.view().children
        assert (batch.workflow_id, batch.execution) == ("blue-green/blue/live/one", "RUNNING")
        with pytest.raises(WorkflowAlreadyStartedError):
            environment.operator.start(_input(clusters, "live"))
        run.wait_until("the grace window", lambda status: status.phase == "GRACE")
        traffic.wait_for_more(20)
        assert all(_producers(clusters, topic) for topic in topics)
        run.signal(Verb.PROCEED)
        report = run.result()
        traffic.verify()
    assert report.outcome is Outcome.DONE, report.summary
    assert (report.figures["namespaces_moved"], report.certificate["faults"]) == (2, 0)
    assert report.certificate["missing_clients"] == 0
    assert clusters.blue_admin.namespaces.publish_rate("live/one") == RATE
    assert clusters.blue_admin.namespaces.publish_rate("live/two") is None
    assert _flags(clusters, "live/one", "live/two") == [True, True]
    assert not _claimed(clusters)


def test_rollback_before_the_flip_does_not_change_blue(clusters: Clusters, environment: Environment) -> None:
    """A migration that holds before its flip can be rolled back: clients stay on blue, and no record of it remains."""
    (topic, *_) = topics = _namespaces(clusters, "held", "one")
    with Traffic.here(clusters.blue.broker_url, topics) as traffic:
        run = environment.operator.start(_input(clusters, "held", hold_before_cutover=True))
        run.wait_until_it_waits_for(WaitKind.HOLD, phase="PROVISION")
        run.signal(Verb.ROLLBACK)
        report = run.result()
        traffic.wait_for_more(5)
        traffic.verify()
    assert report.outcome is Outcome.ROLLED_BACK
    assert TopicName.parse(topic) in {TopicName.parse(name) for name in clusters.green_admin.topics.names("held/one")}
    assert _flags(clusters, "held/one") == [False]
    assert not _claimed(clusters)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"green_cluster": "other"}, "GREEN_CLUSTER_NAME"),
        ({"cluster": "other"}, "BLUE_CLUSTER_NAME"),
        ({"namespaces": ["absent/*"]}, "NOTHING_SELECTED"),
    ],
)
def test_wrong_names_are_refused(
    clusters: Clusters, environment: Environment, fields: dict[str, object], code: str
) -> None:
    """Wrong names that brokers would accept silently are refused before anything is written."""
    failure = environment.operator.refusal(clusters.input(**fields))
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert code in failure.message
    assert not _claimed(clusters)


def test_an_address_of_another_cluster_is_refused(clusters: Clusters, environment: Environment) -> None:
    """Clients are redirected only to green, here never to blue itself; each address of the input is checked."""
    blue, green = clusters.blue, clusters.green
    no_broker = green.admin_urls[0].replace("http", "pulsar")
    for field, value, code in (
        ("service_url", blue.admin_urls[0], "GREEN_URL"),
        ("broker_service_url", blue.broker_url.partition(",")[0], "which is not a broker of green"),
        ("broker_service_url", no_broker, "does not answer like a broker"),
        ("admin_urls", [*green.admin_urls, blue.admin_urls[1]], f"{blue.admin_urls[1]} is the cluster 'blue'"),
    ):
        sides = {side: getattr(clusters.input(), side).model_dump(mode="json") for side in ("blue", "green")}
        # The input itself refuses an address that both sides have.
        sides["blue"]["admin_urls"] = blue.admin_urls[:1]
        sides["green"][field] = value
        failure = environment.operator.refusal(clusters.input(**sides, namespaces=["live/*"]))
        assert code in failure.message


def test_a_compacted_topic_is_a_question(clusters: Clusters, environment: Environment) -> None:
    """A compacted topic holds more than its messages, and green lacks that: an operator must accept it."""
    topic, *_ = map(TopicName.parse, _namespaces(clusters, "table", "one"))
    with Traffic.here(clusters.blue.broker_url, [str(topic)]) as traffic:
        traffic.wait_for_more(5)
    clusters.blue_admin.topics.compact(topic)
    wait_for("the compaction", lambda: "__compaction" in clusters.blue_admin.topics.stats(topic).subscriptions, 30)
    run = environment.operator.start(_input(clusters, "table"))
    status = run.wait_until_it_waits_for(WaitKind.DECISION, phase="PRECHECK")
    assert status.waiting
    assert "1 topics are compacted: their compacted state starts empty on green" in status.waiting.why
    run.signal(Verb.ROLLBACK)
    assert run.result().outcome is Outcome.ROLLED_BACK


def test_differences_on_green_are_refused(clusters: Clusters, environment: Environment) -> None:
    """A tenant or a namespace that differs on green is a blocker each, unless the operator has it aligned."""
    _namespaces(clusters, "differ", "one")
    clusters.blue_admin.tenants.update("differ", Tenant(admin_roles=("boss",), allowed_clusters=(BLUE,)))
    clusters.blue_admin.namespaces.set_message_ttl("differ/one", 10)
    clusters.green_admin.tenants.create("differ", Tenant(allowed_clusters=(GREEN,)))
    clusters.green_admin.namespaces.create("differ/one", {"message_ttl_in_seconds": 5})
    failure = environment.operator.refusal(_input(clusters, "differ"))
    for text in (
        "tenant differ differs on green: tenant differ: adminRoles differs (blue: boss, green: none)",
        "differ/one differs on green: namespace differ/one: message_ttl_in_seconds differs (blue: 10, green: 5)",
    ):
        assert f"[GREEN_DIFFERS] {text}" in failure.message
    report = environment.operator.run(_input(clusters, "differ", dry_run=True, align_differences=True))
    assert report.outcome is Outcome.PLANNED, report.summary


def _input(clusters: Clusters, tenant: str, **more: object) -> BlueGreenInput:
    fields: dict[str, object] = {
        "namespaces": [f"{tenant}/*"],
        "waves": {"gate": "none"},
        "grace_window": "PT0S",
        # Brokers delete what others' namespaces hold when it is idle for a minute, and then all would have moved.
        "complete_cluster": False,
    }
    return clusters.input(**{**fields, **more})


def _namespaces(clusters: Clusters, tenant: str, *names: str) -> list[str]:
    """Create namespaces on blue, each with a plain topic and one of three partitions; return their topics."""
    admin, topics = clusters.blue_admin, list[str]()
    admin.tenants.create(tenant, Tenant(allowed_clusters=(BLUE,)))
    for name in names:
        admin.namespaces.create(f"{tenant}/{name}", {"replication_clusters": [BLUE], "bundles": {"numBundles": 4}})
        plain, parts = (TopicName(tenant, name, topic) for topic in ("plain", "parts"))
        admin.topics.create(plain)
        admin.topics.create_partitioned(parts, 3)
        topics += [str(plain), *(str(parts.of_partition(number)) for number in range(3))]
    return topics


def _producers(clusters: Clusters, topic: str) -> int:
    return len(clusters.green_admin.topics.stats(TopicName.parse(topic)).publishers)


def _flags(clusters: Clusters, *namespaces: str) -> list[bool]:
    with open_cas_reader(parse_store_url(clusters.blue.metadata_url), Access()) as store:
        return [read_flag(store, namespace) for namespace in namespaces]


def _claimed(clusters: Clusters) -> list[str]:
    """Return what the migration left of its claims and records; those of namespaces that have moved stay."""
    paths: list[str] = []
    for stack in (clusters.blue, clusters.green):
        with open_cas_reader(parse_store_url(stack.metadata_url), Access()) as store:
            paths += [CLAIM] if store.get(CLAIM) else []
            paths += [namespace for namespace, record in records(store).items() if record.stage is not Stage.KEPT]
    return paths
