"""Plans of the bookie cluster migration as users type them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from clients.stores import Access, StoreAccess
from models.bookie_cluster.input import BookieClusterInput, BrokerControl, Direction, LedgerScope, Routing
from models.bookie_cluster.results import IdCheck
from models.lifecycle.input import SourceCleanup
from models.store_url import parse_store_url

SOURCE = {"name": "old", "metadataServiceUri": "zk+hierarchical://zk-1:2181/ledgersA"}
TARGET = {"name": "new", "metadataServiceUri": "metadata-store:zk:zk-1:2181/new"}
PLAN: dict[str, Any] = {
    "cluster": "blue",
    "metadata_url": "zk:zk-1:2181",
    "source": SOURCE,
    "target": TARGET,
    "routing": "restart",
}


def test_least_plan() -> None:
    """Cluster, metadata store, both bookie clusters and the routing are enough; the defaults are careful."""
    input = BookieClusterInput.model_validate(PLAN)
    assert (input.cleanup, input.cleanup_at_window_end, input.max_deletions) == (SourceCleanup.LEAVE, False, None)
    assert (input.dry_run, input.advance_ids, input.skip_idgen_precheck) == (False, False, False)
    assert (input.ledgers, input.exclusive) == (LedgerScope.REFERENCED, False)
    assert input.broker_control is BrokerControl.MANUAL
    assert (input.rollback_window, input.deletion_delay) == (timedelta(hours=24), timedelta(hours=24))
    assert input.workflow_id == "bookie-cluster/blue"


def test_plan_survives_json() -> None:
    """A plan reads back from its own JSON."""
    input = BookieClusterInput.model_validate({**PLAN, "pause_deadline": "PT90S", "throttle": 2.5})
    assert BookieClusterInput.model_validate_json(input.model_dump_json()) == input


@pytest.mark.parametrize(
    ("wrong", "where", "what"),
    [
        ({"routng": "restart"}, "routng", "Extra inputs are not permitted"),
        ({"routing": "rolling"}, "routing", "'restart' or 'attribution'"),
        ({"ledgers": "some"}, "ledgers", "'all' or 'referenced'"),
        ({"broker_control": "ssh"}, "broker_control", "'manual', 'command' or 'webhook'"),
        ({"cleanup": "all"}, "cleanup", "'leave' or 'remove'"),
        ({"cluster": "a/b"}, "cluster", "match pattern"),
        ({"rollback_window": "P91D"}, "rollback_window", "less than or equal to 90 days"),
        ({"rollback_window": "a day"}, "rollback_window", "invalid duration 'a day'"),
        ({"pause_deadline": "PT0S"}, "pause_deadline", "greater than 0"),
        ({"old_ledger_read_timeout": "PT6M"}, "old_ledger_read_timeout", "less than or equal to 5 minutes"),
        ({"deletion_delay": "-PT1S"}, "deletion_delay", "greater than or equal to 0"),
        ({"migration_concurrency": 0}, "migration_concurrency", "greater than or equal to 1"),
        ({"throttle": 0}, "throttle", "greater than 0"),
        ({"max_deletions": 0}, "max_deletions", "greater than or equal to 1"),
        ({"registry_path": "admin/"}, "registry_path", "expected a node's path such as /a/b"),
        ({"registry_path": "/a//b"}, "registry_path", "expected a node's path such as /a/b"),
        ({"metadata_url": "a:2181"}, "metadata_url", "has no scheme; write zk:a:2181"),
        ({"pause_deadline": 3600}, "pause_deadline", "3600 has no unit"),
        ({"exclusive": "true"}, "exclusive", "'true' is neither true nor false"),
        ({"metadata_url": "oxia://a:6648"}, "metadata_url", "kept in ZooKeeper only; write zk:host:port"),
        ({"source": {**SOURCE, "name": "a b"}}, "source.name", "match pattern"),
        ({"source": {**SOURCE, "name": ".."}}, "source.name", "match pattern"),
        ({"source": {"name": "old"}}, "source.metadataServiceUri", "Field required"),
        ({"target": {**TARGET, "metadataServiceUri": "etcd://a:1/l"}}, "target.metadataServiceUri", "unsupported"),
        (
            {"target": {**TARGET, "metadataServiceUri": "zk://a:1"}},
            "target.metadataServiceUri",
            "no root of the ledgers",
        ),
    ],
)
def test_wrong_fields_are_named(wrong: dict[str, Any], where: str, what: str) -> None:
    """A field that is wrong or unknown is refused by its name, with the reason."""
    with pytest.raises(ValidationError) as refused:
        BookieClusterInput.model_validate({**PLAN, **wrong})
    (error,) = refused.value.errors()
    assert ".".join(map(str, error["loc"])) == where
    assert what in error["msg"]


@pytest.mark.parametrize("field", PLAN)
def test_needed_fields(field: str) -> None:
    """Without one of these there is no plan."""
    with pytest.raises(ValidationError, match=rf"{field}\n  Field required"):
        BookieClusterInput.model_validate({name: value for name, value in PLAN.items() if name != field})


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"target": {**TARGET, "name": "old"}}, "source and target have the same name, 'old'"),
        ({"target": {**TARGET, "name": "switch-target"}}, "'switch-target' is a node of the registry itself"),
        ({"source": {**SOURCE, "name": "orchestrator"}}, "'orchestrator' is a node of the registry itself"),
        ({"target": {**SOURCE, "name": "new"}}, "the same root"),
        ({"target": {"name": "new", "metadataServiceUri": "zk://zk-1:2181/ledgersA/b"}}, "the same root"),
        ({"routing": "attribution", "ledgers": "all"}, "ledgers: with routing `attribution`"),
        ({"ledgers": "all"}, '"exclusive": true'),
        ({"target_credentials": "new"}, "are on the same servers, and have different credentials ('' and 'new')"),
        ({"cleanup_at_window_end": True}, 'cleanup_at_window_end does nothing with "cleanup": "leave"'),
    ],
)
def test_fields_that_do_not_fit_each_other(wrong: dict[str, Any], what: str) -> None:
    """Values that contradict each other are refused with the reason."""
    with pytest.raises(ValidationError) as refused:
        BookieClusterInput.model_validate({**PLAN, **wrong})
    assert what in str(refused.value)


def test_each_store_has_credentials() -> None:
    """A cluster without credentials of its own has the common ones; its roots get what its servers get."""
    source = {**SOURCE, "metadataServiceUri": "zk+hierarchical://zk-2:2181/ledgersA"}
    input = BookieClusterInput.model_validate(
        {**PLAN, "source": source, "credentials": "blue", "source_credentials": "old"}
    )
    assert {str(url): name for url, name in input.store_credentials.items()} == {
        "zk:zk-1:2181": "blue",
        "zk:zk-2:2181/ledgersA": "old",
        "zk:zk-1:2181/new/ledgers": "blue",
    }
    timeouts = {"blue": 1.0, "old": 2.0}
    access = Access.of_each(input.store_credentials, lambda name: Access(StoreAccess(timeout=timeouts[name])))
    assert access.to(parse_store_url("zk:zk-3:2181,zk-2:2181")).timeout == timeouts["old"]
    for other in ("zk:zk-1:2181/new", "zk:zk-9:2181", "oxia://zk-2:2181/ledgersA"):
        assert access.to(parse_store_url(other)).timeout == timeouts["blue"]


def test_directions() -> None:
    """A rollback reads where the switch writes; each direction has progress of its own."""
    input = BookieClusterInput.model_validate(PLAN)
    forward, back = input.ends(Direction.FORWARD), input.ends(Direction.BACK)
    assert (forward.source, forward.target) == (back.target, back.source)
    assert (forward.switch_id, back.switch_id) == ("old-to-new", "new-to-old")
    assert input.routing is Routing.RESTART
    assert input.target.root.root == "/new/ledgers"


@pytest.mark.parametrize(("next_id", "safe"), [(1300, False), (1301, True), (0, False)])
def test_ids_lie_above(next_id: int, safe: bool) -> None:
    """The next id is safe above the highest in use, and not at it (I11)."""
    assert IdCheck(highest=1300, next_id=next_id, cure=0).safe is safe
