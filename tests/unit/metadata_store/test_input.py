"""Plans as users type them, and addresses of stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from models.lifecycle.input import SourceCleanup
from models.lifecycle.status import Undo
from models.lifecycle.verbs import WindowChange
from models.metadata_store.input import MetadataStoreInput, Mode
from models.metadata_store.phases import Phase
from models.migration_flag import Flag, FlagPhase
from models.store_url import parse_store_url
from workflows.metadata_store.policy import offline_copy, policies_of

PLAN: dict[str, Any] = {"cluster": "blue", "source": "zk:zk-1:2181/pulsar", "target": "oxia://oxia-1:6648/pulsar"}


def test_least_plan() -> None:
    """Cluster, source and target are enough; the defaults are careful."""
    input = MetadataStoreInput.model_validate(PLAN)
    assert (input.mode, input.cleanup, input.cleanup_at_window_end) == (Mode.LIVE, SourceCleanup.LEAVE, False)
    assert (input.dry_run, input.replace_target) == (False, False)
    assert input.validation_window == timedelta(hours=24)
    assert input.workflow_id == "metadata-store/blue"


def test_plan_survives_json() -> None:
    """A plan reads back from its own JSON."""
    input = MetadataStoreInput.model_validate({**PLAN, "blocked_deadline": "PT90S", "throttle": 2.5})
    assert MetadataStoreInput.model_validate_json(input.model_dump_json()) == input


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("PT30S", timedelta(seconds=30)),
        ("PT1.5S", timedelta(seconds=1.5)),
        ("PT1H30M", timedelta(hours=1, minutes=30)),
        ("P3D", timedelta(days=3)),
        ("P1DT12H", timedelta(hours=36)),
        ("PT0S", timedelta(0)),
        ("90s", timedelta(seconds=90)),
        ("1.5h", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("24h", timedelta(days=1)),
        ("2 days", timedelta(days=2)),
        ("5 Minutes", timedelta(minutes=5)),
        ("250ms", timedelta(milliseconds=250)),
        ("00:01:30", timedelta(seconds=90)),
    ],
)
def test_durations(text: str, length: timedelta) -> None:
    """Durations are ISO 8601, or a number with its unit."""
    assert MetadataStoreInput.model_validate({**PLAN, "validation_window": text}).validation_window == length


@pytest.mark.parametrize(
    ("wrong", "where", "what"),
    [
        ({"sorce": "zk:a:1"}, "sorce", "Extra inputs are not permitted"),
        ({"validation_window": "P91D"}, "validation_window", "less than or equal to 90 days"),
        ({"validation_window": "-PT1S"}, "validation_window", "greater than or equal to 0"),
        ({"blocked_deadline": "PT0S"}, "blocked_deadline", "greater than 0"),
        (
            {"blocked_deadline": "5 minute hands"},
            "blocked_deadline",
            "invalid duration '5 minute hands'; write 90s, 30m, 24h, 2d or PT24H",
        ),
        ({"blocked_deadline": 300}, "blocked_deadline", "300 has no unit; write 90s, 30m, 24h, 2d or PT24H"),
        ({"blocked_deadline": "300"}, "blocked_deadline", "'300' has no unit"),
        ({"blocked_deadline": 1.5}, "blocked_deadline", "1.5 has no unit"),
        ({"blocked_deadline": True}, "blocked_deadline", "True has no unit"),
        ({"blocked_deadline": "9e99d"}, "blocked_deadline", "invalid duration"),
        ({"blocked_deadline": f"{10**12}d"}, "blocked_deadline", "invalid duration"),
        ({"dry_run": "true"}, "dry_run", "'true' is neither true nor false; write one of these, without quotes"),
        ({"dry_run": 1}, "dry_run", "1 is neither true nor false"),
        ({"replace_target": "no"}, "replace_target", "'no' is neither true nor false"),
        ({"source": "zk-1:2181,zk-2:2181/a"}, "source", "has no scheme; write zk:zk-1:2181,zk-2:2181/a"),
        ({"source": "zk:2181"}, "source", "has no scheme; write zk:zk:2181"),
        ({"target": "oxia:6648"}, "target", "has no scheme; write zk:oxia:6648, or oxia://host:port[/namespace]"),
        ({"preparation_timeout": "PT2H"}, "preparation_timeout", "less than or equal to 1 hour"),
        ({"cluster": ""}, "cluster", "at least 1 character"),
        ({"cluster": "a/b"}, "cluster", "match pattern"),
        ({"throttle": 0}, "throttle", "greater than 0"),
        ({"concurrency": 0}, "concurrency", "greater than or equal to 1"),
        ({"cleanup_limit": 0}, "cleanup_limit", "greater than or equal to 1"),
        ({"mode": "hot"}, "mode", "'live' or 'offline'"),
        ({"cleanup": "all"}, "cleanup", "'leave' or 'remove'"),
        ({"source": "etcd://a:2379"}, "source", "names a store that is not supported"),
        ({"target": "oxia://a"}, "target", "expected oxia://host:port[/namespace]"),
        ({"source": "zk:a:1/c?batchingMaxDelayMillis=10"}, "source", "write zk:a:1/c, and keep the parameters in"),
        ({"target": "oxia://a:1?batchingMaxDelayMillis=10"}, "target", "write oxia://a:1, and keep the parameters in"),
    ],
)
def test_wrong_fields_are_named(wrong: dict[str, Any], where: str, what: str) -> None:
    """A field that is wrong or unknown is refused by its name, with the reason."""
    with pytest.raises(ValidationError) as refused:
        MetadataStoreInput.model_validate({**PLAN, **wrong})
    (error,) = refused.value.errors()
    assert error["loc"] == (where,)
    assert what in error["msg"]


@pytest.mark.parametrize("field", ["cluster", "source", "target"])
def test_needed_fields(field: str) -> None:
    """Without cluster, source or target there is no plan."""
    with pytest.raises(ValidationError, match=rf"{field}\n  Field required"):
        MetadataStoreInput.model_validate({name: value for name, value in PLAN.items() if name != field})


def test_live_needs_zookeeper() -> None:
    """A live migration from Oxia is refused, and the refusal names the mode that can do it."""
    swapped = {**PLAN, "source": PLAN["target"], "target": PLAN["source"]}
    with pytest.raises(ValidationError, match='"mode": "offline"'):
        MetadataStoreInput.model_validate(swapped)
    assert MetadataStoreInput.model_validate({**swapped, "mode": "offline"}).source_url.scheme == "oxia"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"blocked_deadline": "30s"}, "blocked_deadline (30.0 s) is shorter than preparation_timeout (1 min)"),
        ({"preparation_timeout": "10m"}, "blocked_deadline (5 min) is shorter than preparation_timeout (10 min)"),
        ({"cleanup_at_window_end": True}, 'cleanup_at_window_end does nothing with "cleanup": "leave"'),
        ({"mode": "offline", "until": "PRE_COPY"}, "no copy next to the traffic to rehearse"),
        ({"two_persons": True, "hold_before_cutover": False}, "two_persons needs the hold"),
        (
            {"two_persons": True, "cleanup": "remove", "cleanup_at_window_end": True},
            "two_persons: a cleanup at the end of the window does not ask them",
        ),
    ],
)
def test_fields_that_do_not_fit_each_other(wrong: dict[str, Any], what: str) -> None:
    """Values that contradict each other are refused with the reason."""
    with pytest.raises(ValidationError) as refused:
        MetadataStoreInput.model_validate({**PLAN, **wrong})
    assert what in str(refused.value)


def test_offline_does_not_wait_for_services() -> None:
    """Limits of a phase that an offline migration does not have are not compared."""
    fields = {**PLAN, "mode": "offline", "blocked_deadline": "1s"}
    assert MetadataStoreInput.model_validate(fields).blocked_deadline == timedelta(seconds=1)


@pytest.mark.parametrize(
    ("source", "target", "same"),
    [
        ("zk:a:1/x", "zk:a:1/x", True),
        ("zk:a:1", "zk:a:1/x", True),
        ("zk:a:1/x/y", "zk:a:1/x", True),
        ("zk:a:1,b:1/x", "zk:b:1,c:1/x", True),
        ("zk:a:1/x", "zk:a:1/xy", False),
        ("zk:a:1/x", "zk:a:2/x", False),
        ("oxia://a:1/n", "oxia://a:1/n", True),
        ("oxia://a:1", "oxia://a:1/default", True),
        ("oxia://a:1/n", "oxia://a:1/m", False),
        ("zk:a:1/n", "oxia://a:1/n", False),
    ],
)
def test_trees_that_overlap(source: str, target: str, same: bool) -> None:
    """Source and target must not be, or hold, the same tree; the order does not matter."""
    first, second = parse_store_url(source), parse_store_url(target)
    assert first.overlaps(second) is second.overlaps(first) is same
    fields = {**PLAN, "mode": "offline", "source": source, "target": target}
    if same:
        with pytest.raises(ValidationError, match="the same tree"):
            MetadataStoreInput.model_validate(fields)
    else:
        assert MetadataStoreInput.model_validate(fields).target_url == second


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("zk:a:2181", "zk:a:2181"),
        ("zk://a:2181", "zk:a:2181"),
        ("zk://zk:2181/x", "zk:zk:2181/x"),
        ("a:2181", "zk:a:2181"),
        ("a:2181,b:2182/", "zk:a:2181,b:2182"),
        ("zk:a:2181,b:2182/x/y/", "zk:a:2181,b:2182/x/y"),
        ("zk:[::1]:2181/x", "zk:[::1]:2181/x"),
        ("oxia://a:6648", "oxia://a:6648/default"),
        ("oxia://a:6648/pulsar", "oxia://a:6648/pulsar"),
        ("zk:a:2181, b:2182 ,c:2183/x", "zk:a:2181,b:2182,c:2183/x"),
        ("zk:a:2181?sessionTimeoutMillis=1", "zk:a:2181"),
        ("zk:a:2181/c?path=/d&x=1", "zk:a:2181/c"),
        ("oxia://a:6648/pulsar?batchingMaxDelayMillis=10", "oxia://a:6648/pulsar"),
        ("oxia://a:6648?batchingMaxDelayMillis=10", "oxia://a:6648/default"),
    ],
)
def test_addresses(text: str, read: str) -> None:
    """Addresses are taken in all forms of Pulsar's configuration, and written in one."""
    url = parse_store_url(text)
    assert str(url) == read
    assert parse_store_url(read) == url


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("zk:a", ("a:2181",)),
        ("zk://a.b,[::1],c:2182/root", ("a.b:2181", "[::1]:2181", "c:2182")),
        ("zk:zk", ("zk:2181",)),
    ],
)
def test_servers_without_a_port(text: str, hosts: tuple[str, ...]) -> None:
    """A server without a port gets ZooKeeper's default port, as in brokers' settings."""
    assert parse_store_url(text).hosts == hosts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "zk:",
        "zk:2181",
        "zk:a:2181,",
        "zk:a:port",
        "oxia://",
        "oxia://a",
        "oxia://a:1/b/c",
        "rocksdb:/x",
        "http://a:1",
    ],
)
def test_invalid_addresses(text: str) -> None:
    """An invalid address is refused with the valid forms."""
    with pytest.raises(ValueError, match=r"(write|expected) (zk:host:port|oxia://host:port)"):
        parse_store_url(text)


def test_window_has_no_negative_remaining_time() -> None:
    """The remaining time of a window is never negative."""
    with pytest.raises(ValidationError, match="remaining"):
        WindowChange.model_validate({"remaining": "-PT1S"})


def test_flag_is_pulsars() -> None:
    """The flag reads and writes as Pulsar's own JSON (PIP-454, "Migration State")."""
    text = '{"phase":"PREPARATION","targetUrl":"oxia://a:6648/default"}'
    flag = Flag.model_validate_json(text)
    assert flag.phase is FlagPhase.PREPARATION
    assert flag.model_dump_json() == text


@pytest.mark.parametrize(("replace", "undo"), [(False, Undo.FREE), (True, Undo.NONE)])
def test_a_replaced_target_is_not_restored(replace: bool, undo: Undo) -> None:
    """With `replace_target` a rollback of the copy loses the old target, and reports that."""
    input = MetadataStoreInput.model_validate({**PLAN, "replace_target": replace})
    for policy in (policies_of(input)[Phase.PRE_COPY], offline_copy(input)):
        assert policy.undo is undo
        assert ("what the target held before is gone for good" in policy.undo_cost) is replace
        assert not policy.no_rollback
    assert policies_of(input)[Phase.PRECHECK].undo is Undo.FREE
