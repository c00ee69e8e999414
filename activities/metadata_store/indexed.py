"""Records with secondary indexes, partition keys or native sequences, which a copy of path and value loses.

Oxia has all three, and a record does not show them. ZooKeeper emulates them by plain records. After such a copy from or
to Oxia, Pulsar finds no open transactions, delivers aborted messages, and lists no topics by property (seen). PRECHECK,
PREPARATION and the commit search for such records: brokers of 5.0.1 write topics' records through their caches also
after the flag was set.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

from activities.lifecycle.precheck import Findings
from activities.pulsar.coverage import require_unblocked
from clients.json_text import read_json
from clients.store import Record, StoreReader
from clients.stores import Access, open_reader
from models.lifecycle.failures import summarize
from models.metadata_store.input import MetadataStoreInput, Mode

# Parents of the records that a transaction of a scalable topic writes with a partition key, an index, or a number from
# a sequence (5.0.1). `/txn/tc` and `/txn/tc-seq` are plain records.
_TRANSACTIONS = (
    b"/txn/id",
    b"/txn/op",
    b"/txn/segment-events",
    b"/txn/subscription-events",
    b"/txn/segment-state/aborted",
    b"/txn/segment-state/watermark",
)
_TOPICS = b"/topics"
_SHOWN = 10
_AT_ONCE = 1_000


def check_indexed(input: MetadataStoreInput, reader: StoreReader, findings: Findings) -> None:
    """Refuse records that a copy would remove from their indexes.

    Args:
        input: of the migration.
        reader: of the source.
        findings: get the blockers.

    Raises:
        StoreError: the source cannot be read.
    """
    to_oxia = input.target_url.scheme == "oxia"
    # In live mode also between ZooKeepers: a broker's earlier subscriptions to changes stay on the source (5.0.1).
    # mutant: metadata-store/transactions-leave-oxia
    if to_oxia or input.source_url.scheme == "oxia" or input.mode is Mode.LIVE:
        _check_transactions(reader, findings)
    if to_oxia:
        _check_properties(reader, findings)


def require_no_indexed(input: MetadataStoreInput, access: Access) -> None:
    """Check again for records that a copy would remove from their indexes, which may have come since PRECHECK.

    Args:
        input: the migration.
        access: credentials and timeout of stores.

    Raises:
        ApplicationError: `ParticipantsNotReady`, where there are such records.
        StoreError: the source cannot be read.
    """
    findings = Findings()
    with open_reader(input.source_url, access) as source:
        check_indexed(input, source, findings)
    require_unblocked(findings, "the source")


def has_scalable_topics(reader: StoreReader) -> bool:
    """Return whether a store has scalable topics.

    Raises:
        StoreError: the store cannot be read.
    """
    return bool(reader.children(_TOPICS))


def _check_transactions(reader: StoreReader, findings: Findings) -> None:
    # mutant: metadata-store/transactions-lose-their-indexes
    if used := [parent.decode() for parent in _TRANSACTIONS if reader.children(parent)]:
        findings.block(
            "TRANSACTIONS",
            f"{reader.url} has records of transactions on scalable topics below {', '.join(used)}; a copy loses their "
            "secondary indexes, partition keys and sequence numbers, so that brokers would not find open transactions, "
            "and would deliver aborted messages",
            "delete the scalable topics that had transactions, wait until brokers have removed these records, and "
            "start again; or keep this store",
        )


def _check_properties(reader: StoreReader, findings: Findings) -> None:
    count, named = 0, list[str]()
    for path in _with_properties(reader):
        count += 1
        if len(named) < _SHOWN:
            named.append(path.decode(errors="backslashreplace"))
    if count:
        names = summarize(named, shown=_SHOWN, total=count)
        findings.block(
            "TOPIC_PROPERTIES",
            f"{count:,} scalable topics have properties ({names}); a copy is not in Oxia's index of "
            "them, so that brokers would not list these topics by property",
            "delete these topics, or create them again without properties; or keep this store",
        )


def _with_properties(reader: StoreReader) -> Iterator[bytes]:
    """Return paths of the scalable topics that have properties, or may have."""
    # /topics/<tenant>/<namespace>/<topic>
    tenants = reader.children(_TOPICS)
    namespaces = list(reader.children_of(tenants)) if tenants else []
    topics = reader.children_of(namespaces) if namespaces else iter(())
    while paths := list(islice(topics, _AT_ONCE)):
        for record in reader.read(paths):
            if record is not None and (not isinstance(record, Record) or _may_have_properties(record.value)):
                yield record.path


def _may_have_properties(value: bytes) -> bool:
    # A record without a value is not a topic: load reports create such parents.
    if not value:
        return False
    try:
        record = read_json(value)
    except ValueError:
        # It may have a newer format.
        return True  # mutant: metadata-store/unknown-topics-have-no-properties
    return not isinstance(record, dict) or bool(cast("dict[str, object]", record).get("properties"))
