"""The schema of a topic, which brokers delete together with any segment of the topic (5.0.0-M1, seen).

A segment has the schema of `tenant/namespace/topic`, as its neighbours and the regular topic have. Whoever deletes one
of them deletes the schema of all, with its versions, by which stored messages name what they hold. So nothing that the
migration makes may be deleted by brokers while the topic has a schema; and what it has to delete itself, where a topic
stays regular, it makes up for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from activities.lifecycle.schema_versions import complete_versions
from clients.cas.store import CasStore, retry
from clients.errors import StoreConflict
from clients.pulsar.admin.client import PulsarAdmin
from clients.pulsar.admin.schemas import Schema
from clients.pulsar.names import TopicName
from clients.pulsar.scalable_records import controller_of, read_scalable, set_while_none_leads
from models.scalable_topic.claims import KeptSchema
from models.segment_repair import with_kept_parents


def schemas_of(admin: PulsarAdmin, topic: TopicName) -> tuple[KeptSchema, ...]:
    """All versions of a topic's schema, as a record holds them."""
    return tuple(KeptSchema.model_validate(one.model_dump()) for one in admin.schemas.versions(topic))


def put_back_schemas(
    admin: PulsarAdmin, topic: TopicName, kept: Iterable[KeptSchema], fence: Callable[[], object]
) -> str:
    """Add the versions that are gone, with their numbers; in words what stands in the way, empty for nothing.

    Args:
        admin: of the cluster.
        topic: the regular one, or the scalable one that it has become.
        kept: what it had; their numbers begin with 0.
        fence: raises where somebody else is in charge; asked before the change.
    """
    wanted = [Schema.model_validate(one.model_dump()) for one in kept]
    if wanted:
        fence()
    if wanted and (other := complete_versions(admin, topic, wanted)):
        return (
            f"brokers have deleted the schema of {topic}, and version {other.version} is another now than it was: "
            "messages that name it cannot be read as they were written"
        )
    return ""


def keep_parents(store: CasStore, topic: TopicName, fence: Callable[[], object]) -> str:
    """Have brokers never drop the regular parents of a topic; harmless when done twice.

    A broker that leads the topic goes on with the layout that it has read, so none may.

    Args:
        store: the brokers' metadata store.
        topic: the scalable one.
        fence: raises where somebody else is in charge; asked before the change.

    Returns:
        The broker that leads it, where that stands in the way; empty where it is done.

    Raises:
        StoreConflict: the topic is not scalable any more.
        StoreContention: the record changes again and again.
    """

    def keep() -> str:
        record = read_scalable(store, topic)
        if record.layout is None:
            raise StoreConflict(f"the record of {topic} is {record.state} now")
        wanted = with_kept_parents(record.layout)
        if wanted == record.layout:
            return ""
        if leader := controller_of(store, topic):
            return leader
        fence()
        set_while_none_leads(store, topic, wanted, record.version)
        return ""

    return retry(keep, topic.scalable_path)


def keep_schema(admin: PulsarAdmin, store: CasStore, topic: TopicName, fence: Callable[[], object]) -> str:
    """The same where the topic has a schema: brokers delete a segment of a parent's name with it.

    Returns:
        Why that cannot be done, in words; empty where it is, or need not be.

    Raises:
        StoreConflict, StoreContention: see `keep_parents`.
    """
    if admin.schemas.latest(topic) is None or not (leader := keep_parents(store, topic, fence)):
        return ""
    return (
        f"{leader} leads {topic}, and would drop its parents with the schema, so stream consumers cannot begin: "
        "restart that broker while none of them is connected, and run the audit with fix"
    )
