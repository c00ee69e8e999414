"""Names that people choose, and that become nodes of the metadata store."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.lifecycle.cluster import share_servers
from models.topic_controller.input import ControllerInput, SubscriptionRequest, controlled_topic, controller_id
from models.topic_controller.sessions import Registrations


@pytest.mark.parametrize("name", ["one", "ä", "日本", "a b", "\uf900", "x" * 200])
def test_names(name: str) -> None:
    """A name that every metadata store accepts is accepted."""
    assert Registrations(subscription="bill", consumers=(name,)).consumers == (name,)
    assert SubscriptionRequest(name=name).name == name


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\n", "\x80", "\ue000", "\ufffd", "😀", "x" * 201])
def test_names_that_a_store_refuses(name: str) -> None:
    """They are refused before anything is noted: otherwise no other consumer could be assigned anything any more."""
    with pytest.raises(ValidationError, match="invalid consumer name"):
        Registrations(subscription="bill", consumers=(name,))
    with pytest.raises(ValidationError, match="invalid subscription name"):
        SubscriptionRequest(name=name)


@pytest.mark.parametrize("name", ["__compaction", "pulsar.dedup", "pulsar.repl.other"])
def test_names_of_brokers_own_cursors(name: str) -> None:
    """No request creates a cursor of such a name, so a change would wait for it; nor may we delete such cursors."""
    with pytest.raises(ValidationError, match="is reserved for brokers"):
        SubscriptionRequest(name=name)


def test_the_id_of_a_controller() -> None:
    """It names the cluster and the topic, and both can be read from it."""
    made = controller_id("prod", "persistent://acme/shop/orders")
    assert made == "topic-controller/prod/acme/shop/orders"
    assert made != controller_id("staging", "acme/shop/orders")
    assert controlled_topic(made) == ("prod", "acme/shop/orders")
    assert controlled_topic("persistent://acme/shop/orders") is None


@pytest.mark.parametrize(
    ("metadata_url", "admin", "is_same"),
    [
        ("zk:b:2181,c:2181", "http://elsewhere", True),
        ("zk:elsewhere:2181", "http://broker:8080", True),
        ("oxia://oxia:6648", "http://broker:8080", True),
        ("zk:b:2181/chroot", "http://elsewhere", False),
        ("zk:elsewhere:2181", "http://elsewhere", False),
    ],
)
def test_clusters_of_one_name(metadata_url: str, admin: str, *, is_same: bool) -> None:
    """They are the same where they have servers in common, also after their metadata or their brokers have moved."""
    plan = {"cluster": "prod", "topic": "persistent://acme/shop/orders"}
    ours = {**plan, "metadata_url": "zk:a:2181,b:2181", "admin_urls": ["http://broker:8080"]}
    theirs = {**plan, "metadata_url": metadata_url, "admin_urls": [admin]}
    assert share_servers(*map(ControllerInput.model_validate, (ours, theirs))) is is_same


def test_properties_that_outgrow_a_record() -> None:
    """Input, state and each record have them, and Temporal ends a workflow whose input is too large."""
    given = {"cluster": "prod", "metadata_url": "zk:zk:2181", "admin_urls": ["http://broker:8080"]}
    plan = {**given, "topic": "persistent://acme/shop/orders"}
    ControllerInput.model_validate({**plan, "properties": {"note": "ä" * 32_766}})
    with pytest.raises(ValidationError, match="properties have 65,538 bytes; at most 65,536 are allowed"):
        ControllerInput.model_validate({**plan, "properties": {"note": "ä" * 32_767}})
