"""A target that differs from its source in many records, as one does that an attempt of long ago left."""

from __future__ import annotations

from clients.store import Record
from clients.stores import Access, open_reader, open_writer
from models.store_url import parse_store_url
from spark.metadata_store.equivalence import migrates

_PARTS = 256


def damage(source: str, target: str, records: int) -> None:
    """Write another value over so many migrated records of the target."""
    access, left = Access(), records
    with (
        open_reader(parse_store_url(source), access) as reader,
        open_writer(parse_store_url(target), access, keep_versions=True) as writer,
    ):
        for part in reader.partitions(_PARTS):
            for batch in reader.scan(part):
                for record in batch[:left]:
                    if isinstance(record, Record) and migrates(record) and record.value:
                        writer.put(record._replace(value=b"damaged"), over=None)
                        left -= 1
        writer.flush()
