"""What a plan says of names and topics that one release has and the other has not."""

from __future__ import annotations

import httpx

from clients.pulsar.names import TopicName
from clients.stores import Access, open_cas
from models.lifecycle.failures import FailureKind
from models.releases import parse_release
from models.store_url import parse_store_url
from tests.support.blue_green.environment import BLUE, Clusters
from tests.support.blue_green.namespaces import create_namespace, create_topic
from tests.support.lifecycle.environment import Environment

SPACE = "odd/space"
V1 = f"odd/{BLUE}/old"


def test_what_cannot_move_is_named(clusters: Clusters, environment: Environment) -> None:
    """A partition of nothing, and whatever one of both releases does not have, are blockers that name it."""
    admin, release = clusters.blue_admin, parse_release(clusters.blue_admin.brokers.version())
    create_namespace(admin, SPACE)
    expected = {"BLUE_LONE_PARTITIONS": f"persistent://{_lone_partition(clusters)}"}
    if release.has_scalable_topics:
        admin.scalable_topics.create(TopicName.parse(f"{SPACE}/elastic"))
        expected["BLUE_SCALABLE_TOPICS"] = f"topic://{SPACE}/elastic"
    if clusters.green_release.refuses_outer_white_space and not release.refuses_outer_white_space:
        create_topic(admin, f"{SPACE}/padded ")
        expected["BLUE_NAMES"] = f"'persistent://{SPACE}/padded '"
    if release.has_v1_namespaces:
        httpx.put(f"{clusters.blue.admin_urls[0]}/admin/namespaces/{V1}", json={}).raise_for_status()
        expected["BLUE_V1_NAMESPACES"] = V1
    try:
        failure = environment.operator.refusal(clusters.input(namespaces=["odd/*"]))
    finally:
        if release.has_v1_namespaces:
            httpx.delete(f"{clusters.blue.admin_urls[0]}/admin/namespaces/{V1}").raise_for_status()
        admin.namespaces.delete(SPACE, force=True)
    assert failure.type == FailureKind.PRECHECK_FAILED
    assert {code: code in failure.message and name in failure.message for code, name in expected.items()} == (
        dict.fromkeys(expected, True)
    ), failure.message


def _lone_partition(clusters: Clusters) -> str:
    """Make a topic that is named like a partition of nothing, as older releases left them; return its name."""
    topic = create_topic(clusters.blue_admin, f"{SPACE}/lone", 1)
    path = f"/admin/partitioned-topics/{SPACE}/persistent/lone"
    with open_cas(parse_store_url(clusters.blue.metadata_url), Access()) as store:
        node = store.get(path)
        assert node is not None
        store.delete(path, node.version)
    return f"{SPACE}/{topic.of_partition(0).topic}"
