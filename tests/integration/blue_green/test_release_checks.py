"""Reports of a plan about names and topics that only one of two releases has."""

from __future__ import annotations

import json

import httpx

from clients.cas.store import CasStore
from clients.pulsar.names import TopicName
from clients.stores import Access, open_cas
from models.blue_green.input import KIND
from models.lifecycle.failures import FailureKind
from models.releases import Behaviour, behaviour_differences, default_differences, parse_release
from models.store_url import parse_store_url
from tests.support.blue_green.environment import BLUE, GREEN, Clusters
from tests.support.blue_green.namespaces import create_namespace, create_topic
from tests.support.lifecycle.commands import run_command
from tests.support.lifecycle.environment import Environment

SPACE = "odd/space"
V1 = f"odd/{BLUE}/old"
_REFUSES_PADDED = Behaviour.REFUSES_OUTER_WHITE_SPACE


def test_topics_that_cannot_move_are_named(clusters: Clusters, environment: Environment) -> None:
    """A partition without a topic, and features that one of both releases lacks, are blockers with their names."""
    admin, release = clusters.blue_admin, parse_release(clusters.blue_admin.brokers.version())
    create_namespace(admin, SPACE)
    beyond = _partition_beyond(clusters)
    expected = {"BLUE_LONE_PARTITIONS": f"persistent://{_lone_partition(clusters)}"}
    # To a broker without shadow topics it is a topic like any other, with this property.
    source, shadow = (TopicName.parse(f"{SPACE}/{name}") for name in ("source", "shadow"))
    admin.topics.create(source)
    admin.topics.create(shadow, {"PULSAR.SHADOW_SOURCE": str(source)})
    admin.topic_policies.set(source, "shadowTopics", [str(shadow)])
    expected["BLUE_SHADOW_TOPICS"] = f"{shadow}, {source}"
    ended = TopicName.parse(f"{SPACE}/ended")
    admin.topics.create(ended)
    url = f"{clusters.blue.admin_urls[0]}/admin/v2/persistent/{SPACE}/ended/terminate"
    httpx.post(url, follow_redirects=True, timeout=30).raise_for_status()
    expected["BLUE_TERMINATED_TOPICS"] = str(ended)
    if release.has(Behaviour.SCALABLE_TOPICS):
        admin.scalable_topics.create(TopicName.parse(f"{SPACE}/elastic"))
        expected["BLUE_SCALABLE_TOPICS"] = f"topic://{SPACE}/elastic"
    if clusters.green_release.has(_REFUSES_PADDED) and not release.has(_REFUSES_PADDED):
        create_topic(admin, f"{SPACE}/padded ")
        expected["BLUE_NAMES"] = f"'persistent://{SPACE}/padded '"
    if not release.has(Behaviour.REFUSES_V1_NAMESPACES):
        httpx.put(f"{clusters.blue.admin_urls[0]}/admin/namespaces/{V1}", json={}, timeout=30).raise_for_status()
        expected["BLUE_V1_NAMESPACES"] = V1
    try:
        failure = environment.operator.refusal(clusters.input(namespaces=["odd/*"]))
    finally:
        if not release.has(Behaviour.REFUSES_V1_NAMESPACES):
            httpx.delete(f"{clusters.blue.admin_urls[0]}/admin/namespaces/{V1}", timeout=30).raise_for_status()
        admin.namespaces.delete(SPACE, force=True)
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert f"than their topics have partitions: persistent://{beyond}" in failure.message
    assert {code: code in failure.message and name in failure.message for code, name in expected.items()} == (
        dict.fromkeys(expected, True)
    ), failure.message


def test_doctor_names_what_differs(clusters: Clusters, environment: Environment) -> None:
    """`doctor` names each difference between the releases of blue and green that matters in the migration."""
    blue, green = parse_release(clusters.blue_admin.brokers.version()), clusters.green_release
    done = run_command(environment, "doctor", KIND, "--input", clusters.input().model_dump_json(), "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    findings = json.loads(done.stdout)
    named = [finding["detail"] for finding in findings if finding["subject"] == f"releases of {BLUE} and {GREEN}"]
    expected = [*behaviour_differences(blue, green, KIND), *default_differences(blue, green, KIND)]
    assert named == (expected or [f"nothing that differs between {blue} and {green} matters"])


def _lone_partition(clusters: Clusters) -> str:
    """Make a topic that is named like a partition of nothing, as older releases left them; return its name."""
    topic = create_topic(clusters.blue_admin, f"{SPACE}/lone", 1)
    with open_cas(parse_store_url(clusters.blue.metadata_url), Access()) as store:
        store.delete(*_partitioned(store, "lone"))
    return f"{SPACE}/{topic.of_partition(0).topic}"


def _partition_beyond(clusters: Clusters) -> str:
    """Make a topic of one partition that has the partition 1 as well; return the name of that."""
    topic = create_topic(clusters.blue_admin, f"{SPACE}/short", 2)
    with open_cas(parse_store_url(clusters.blue.metadata_url), Access()) as store:
        path, version = _partitioned(store, "short")
        store.set(path, b'{"partitions":1}', version)
    return f"{SPACE}/{topic.of_partition(1).topic}"


def _partitioned(store: CasStore, topic: str) -> tuple[str, int]:
    """Return the node of a partitioned topic, with its version."""
    path = f"/admin/partitioned-topics/{SPACE}/persistent/{topic}"
    node = store.get(path)
    assert node is not None
    return path, node.version
