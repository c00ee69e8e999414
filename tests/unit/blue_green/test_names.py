"""Names and topics that cannot move are blockers that name them; both clusters are doubles here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from activities.blue_green import cluster
from activities.blue_green.checks.names import check_namespace_names, check_patterns, check_topics
from activities.blue_green.context import BlueGreenTask
from activities.blue_green.listing import is_of_brokers
from activities.lifecycle.precheck import Findings
from clients.cas.store import CasStore
from clients.pulsar.admin.clusters import ClusterMigration
from clients.pulsar.admin.topics import InternalInfo
from clients.pulsar.names import TopicName
from models.blue_green.input import BlueGreenInput
from models.releases import parse_release
from tests.support.blue_green.sides import side
from tests.unit.blue_green.test_differences import SPACE, namespace, topic


def task(release: str = "5.0.1", scalable: tuple[str, ...] = ()) -> BlueGreenTask:
    """Return two clusters of a release; blue has these scalable topics."""

    def names(_: str) -> list[str]:
        return list(scalable)

    def internal_info(_: TopicName) -> InternalInfo:
        return InternalInfo()

    def each(items: Iterable[TopicName], work: Callable[[TopicName], object]) -> list[object]:
        return [work(item) for item in items]

    return cast(
        "BlueGreenTask",
        SimpleNamespace(
            each=each,
            input=SimpleNamespace(green_cluster="g"),
            blue=SimpleNamespace(
                admin=SimpleNamespace(topics=SimpleNamespace(internal_info=internal_info)),
                scalable=SimpleNamespace(scalable_topics=SimpleNamespace(names=names)) if scalable else None,
            ),
            green=SimpleNamespace(release=parse_release(release)),
        ),
    )


def test_patterns_that_fit_nothing() -> None:
    """A typing error in `exclude` would move a namespace that must stay; in `namespaces` it would leave one on blue."""
    input = BlueGreenInput.model_validate(
        {
            "cluster": "b",
            "blue": side("blue"),
            "green_cluster": "g",
            "green": side("green"),
            "namespaces": ["shop/*", "shopp/*"],
            "exclude": ["shop/batch", "shop/[batch]"],
        }
    )
    findings = Findings()
    check_patterns(input, findings, ["shop/batch", "shop/orders"])
    assert [(blocker.code, blocker.cause.rpartition(": ")[2]) for blocker in findings.blockers] == [
        ("NOTHING_EXCLUDED", "'shop/[batch]'")
    ]
    assert [warning.rpartition(": ")[2] for warning in findings.warnings] == ["'shopp/*'"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pulsar/system", True),
        ("pulsar/broker-1.internal:8080", True),
        ("pulsar/blue/10.0.0.1:8080", True),
        ("sla-monitor/blue/10.0.0.1:8080", True),
        ("pulsar/app", False),
        ("pulsar/system2", False),
        ("public/functions", False),
        ("public/default", False),
    ],
)
def test_namespaces_of_brokers(name: str, expected: bool) -> None:
    """Only namespaces of brokers may stay on blue; any other keeps the flag of the whole cluster from being set."""
    assert is_of_brokers(name) is expected


def test_namespaces_that_the_flag_of_the_cluster_would_terminate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace without a flag stays on blue, whatever topics it has, and whether or not it was selected."""
    names = ["public/default", "public/functions", "pulsar/app", "pulsar/system", "shop/orders", "shop/prop/old"]

    def of_tenant(tenant: str) -> list[str]:
        return [name for name in names if name.startswith(f"{tenant}/")]

    def flagged(_: object, namespace: str) -> bool:
        return namespace == "shop/orders"

    monkeypatch.setattr(cluster, "read_flag", flagged)
    blue = SimpleNamespace(
        tenants=SimpleNamespace(names=lambda: ["public", "pulsar", "shop"]), namespaces=SimpleNamespace(names=of_tenant)
    )
    moved, remaining = cluster.split_namespaces(
        cast("BlueGreenTask", SimpleNamespace(blue=SimpleNamespace(admin=blue))), cast("CasStore", SimpleNamespace())
    )
    assert moved == ["shop/orders"]
    assert remaining == ["public/default", "public/functions", "pulsar/app", "shop/prop/old"]


@pytest.mark.parametrize(
    ("release", "wanted", "expected"), [("4.0.1", True, False), ("4.0.2", True, True), ("4.0.2", False, False)]
)
def test_the_flag_of_the_cluster(release: str, *, wanted: bool, expected: bool) -> None:
    """The flag is not set if brokers would also terminate the topics of their own health checks (#23572)."""
    double = SimpleNamespace(
        input=SimpleNamespace(complete_cluster=wanted), blue=SimpleNamespace(release=parse_release(release))
    )
    assert cluster.sets_cluster_flag(cast("BlueGreenTask", double)) is expected


def _always(answer: object) -> Callable[..., object]:
    def always(*_: object) -> object:
        return answer

    return always


def test_why_the_flag_of_the_cluster_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """COMPLETE names the namespaces that have not moved, and the defect of blue's release."""
    answers: dict[str, object] = {
        "split_namespaces": ([], ["public/default", "shop/old"]),
        "records": {},
        "rewrite_cluster_flag": None,
        "restore_settings": ([], 0),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(cluster, name, _always(answer))

    @contextmanager
    def store() -> Generator[None]:
        yield

    rewritten: list[bool] = []

    def rewrite(*_: object) -> None:
        rewritten.append(True)

    monkeypatch.setattr(cluster, "rewrite_remaining_flags", rewrite)
    for release, defect, clearing in (("4.0.1", "SYSTEM_TOPICS_FLAGGED", False), ("4.0.2", "", True)):
        double = SimpleNamespace(
            input=SimpleNamespace(complete_cluster=True, cluster="blue"),
            blue=SimpleNamespace(release=parse_release(release), store=store),
            keeper=_always(SimpleNamespace(renew=_always(None), require=_always(SimpleNamespace(clearing=clearing)))),
        )
        done = cluster.complete(cast("BlueGreenTask", double))
        assert (done.flagged, done.not_moved, done.stayed, done.defect) == (
            False,
            2,
            ("public/default", "shop/old"),
            defect,
        )
        # Their time says when clients were redirected, so they are written only if an attempt may still change them.
        assert rewritten == [True] * clearing


@pytest.mark.parametrize("migrated", [False, True])
def test_the_flag_of_a_lost_attempt_is_reported(monkeypatch: pytest.MonkeyPatch, *, migrated: bool) -> None:
    """An attempt was lost after it had set the flag; the next one finds a namespace that was created in between."""
    answers: dict[str, object] = {
        "split_namespaces": (["shop/orders"], ["shop/new"]),
        "_busy": (),
        "records": {},
        "rewrite_cluster_flag": ClusterMigration(migrated=migrated),
        "restore_settings": ([], 0),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(cluster, name, _always(answer))
    double = SimpleNamespace(
        input=SimpleNamespace(complete_cluster=True, cluster="blue"),
        blue=SimpleNamespace(release=parse_release("4.0.2"), store=nullcontext),
        keeper=_always(SimpleNamespace(renew=_always(None), require=_always(SimpleNamespace(clearing=False)))),
    )
    done = cluster.complete(cast("BlueGreenTask", double))
    assert (done.flagged, done.stayed) == (migrated, ("shop/new",))


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


def test_partitions_beyond_the_number_of_their_topic() -> None:
    """Partitions beyond their topic's number are blockers by name: no list has them, and green would not get them."""
    beyond = TopicName.parse(f"{SPACE}/parts-partition-7")
    findings = Findings()
    blue = replace(namespace(topic(TopicName.parse(f"{SPACE}/parts"), 2)), beyond=(beyond,))
    check_topics(task(), findings, blue)
    assert [(blocker.code, blocker.cause.rpartition(": ")[2]) for blocker in findings.blockers] == [
        ("BLUE_LONE_PARTITIONS", str(beyond))
    ]


def test_only_what_java_trims_at_the_end_is_padding() -> None:
    """Blanks in front and a no-break space are parts of a name; a control character at the end is none."""
    names = [TopicName.parse(f"{SPACE}/{name}") for name in (" lead", "\tlead", "nbsp\u00a0", "end\u0001")]
    findings = Findings()
    assert list(check_topics(task(), findings, namespace(*map(topic, names))).topics) == names[:3]
    assert [blocker.code for blocker in findings.blockers] == ["BLUE_NAMES"]


def test_older_releases_take_padded_names() -> None:
    """A name that both releases accept is not refused."""
    findings = Findings()
    blue = namespace(topic(TopicName.parse(f"{SPACE}/t ")))
    assert check_topics(task("4.2.4"), findings, blue) == blue
    assert findings.blockers == []


def test_namespaces_of_pulsar_1_can_be_excluded() -> None:
    """Such a namespace fits no pattern of those that move but `*/*`, and can be excluded by its name."""
    reached = {"admin_urls": ["http://h:1"], "service_url": "http://h:1", "broker_service_url": "pulsar://h:2"}
    input = BlueGreenInput.model_validate(
        {
            "cluster": "b",
            "blue": {**reached, "metadata_url": "zk:h:1/b"},
            "green_cluster": "g",
            "green": {**reached, "metadata_url": "zk:h:1/g", "admin_urls": ["http://h:3"]},
            "exclude": ["acme/blue/old"],
        }
    )
    assert [input.rank(name) for name in ("acme/blue/old", "acme/blue/other", "acme/orders")] == [None, 0, 0]
    with pytest.raises(ValueError, match="namespaces"):
        BlueGreenInput.model_validate({**input.model_dump(), "namespaces": ["acme/blue/old"]})
