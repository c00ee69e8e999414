"""Names and topics that cannot move are blockers that name them; both clusters are doubles here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green.context import BlueGreenTask
from activities.blue_green.precheck_names import check_namespace_names, check_topics
from activities.lifecycle.precheck import Findings
from clients.pulsar.names import TopicName
from models.blue_green.input import BlueGreenInput
from models.releases import parse_release
from tests.unit.blue_green.test_differences import SPACE, namespace, topic


def task(release: str = "5.0.1", scalable: tuple[str, ...] = ()) -> BlueGreenTask:
    """Two clusters of a release; blue has these scalable topics."""

    def names(_: str) -> list[str]:
        return list(scalable)

    return cast(
        "BlueGreenTask",
        SimpleNamespace(
            input=SimpleNamespace(green_cluster="g"),
            blue_scalable=SimpleNamespace(scalable_topics=SimpleNamespace(names=names)) if scalable else None,
            green_release=parse_release(release),
        ),
    )


def test_names_of_namespaces() -> None:
    """Namespaces of Pulsar 1 are named, and not read further."""
    findings = Findings()
    assert check_namespace_names(findings, ["acme/blue/old", "acme/orders"]) == ["acme/orders"]
    assert [(blocker.code, blocker.cause.rpartition(": ")[2]) for blocker in findings.blockers] == [
        ("BLUE_V1_NAMESPACES", "acme/blue/old")
    ]


def test_topics_that_cannot_move() -> None:
    """Padded names, partitions of nothing and scalable topics are blockers, and not compared further."""
    names = [TopicName.parse(f"{SPACE}/{name}") for name in ("t", "t ", "lone-partition-0", "parts")]
    whole, padded, lone, parts = names
    blue = namespace(topic(whole), topic(padded), topic(lone), topic(parts, 2))
    findings = Findings()
    assert list(check_topics(task(scalable=("topic://acme/orders/s",)), findings, blue).topics) == [whole, parts]
    assert [(blocker.code, blocker.cause.rpartition(": ")[2]) for blocker in findings.blockers] == [
        ("BLUE_LONE_PARTITIONS", str(lone)),
        ("BLUE_NAMES", f"'{padded}'"),
        ("BLUE_SCALABLE_TOPICS", "topic://acme/orders/s"),
    ]


def test_only_what_java_trims_at_the_end_is_padding() -> None:
    """Blanks in front and a no-break space are parts of a name; a control character at the end is none."""
    names = [TopicName.parse(f"{SPACE}/{name}") for name in (" lead", "\tlead", "nbsp\u00a0", "end\u0001")]
    findings = Findings()
    assert list(check_topics(task(), findings, namespace(*map(topic, names))).topics) == names[:3]
    assert [blocker.code for blocker in findings.blockers] == ["BLUE_NAMES"]


def test_older_releases_take_padded_names() -> None:
    """Nothing is refused that both releases take."""
    findings = Findings()
    blue = namespace(topic(TopicName.parse(f"{SPACE}/t ")))
    assert check_topics(task("4.2.4"), findings, blue) == blue
    assert findings.blockers == []


def test_namespaces_of_pulsar_1_can_be_excluded() -> None:
    """Such a namespace fits no pattern of those that move but `*/*`, and can be excluded by its name."""
    side = {"admin_urls": ["http://h:1"], "service_url": "http://h:1", "broker_service_url": "pulsar://h:2"}
    input = BlueGreenInput.model_validate(
        {
            "cluster": "b",
            "blue": {**side, "metadata_url": "zk:h:1/b"},
            "green_cluster": "g",
            "green": {**side, "metadata_url": "zk:h:1/g", "admin_urls": ["http://h:3"]},
            "exclude": ["acme/blue/old"],
        }
    )
    assert [input.rank(name) for name in ("acme/blue/old", "acme/blue/other", "acme/orders")] == [None, 0, 0]
    with pytest.raises(ValueError, match="namespaces"):
        BlueGreenInput.model_validate({**input.model_dump(), "namespaces": ["acme/blue/old"]})
