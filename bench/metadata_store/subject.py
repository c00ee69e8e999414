"""Our bulk jobs alone, in a process with a Spark session that is up: `… ours SOURCE TARGET RECORDS`.

Prints READY, and then for each line of its standard input (`copy` or `compare`) one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

from clients.store import Record
from clients.stores import Access, open_writer
from models.lifecycle.claim import CLAIM, Attempt, PacedClaim
from models.metadata_store.input import MetadataStoreInput
from models.settings import Settings
from models.store_url import parse_store_url
from spark.engine import SparkEngine
from spark.metadata_store import jobs
from spark.metadata_store.spec import Pair

BENCH = Attempt("bench", "bench", 0, 0, 0)


class OursFailed(Exception):
    """Our copy is not what it must be: then its speed is worth nothing."""


class Jobs:
    """Copy and compare between two stores.

    Args:
        engine: a session that is up.
        source: address of the ZooKeeper.
        target: address of the Oxia.
        records: how many the source holds.
    """

    def __init__(self, engine: SparkEngine, source: str, target: str, records: int) -> None:
        input = MetadataStoreInput(cluster="bench", source=source, target=target, hold_before_cutover=False)
        self._engine, self._records = engine, records
        self._pair = Pair(input.source_url, input.target_url, Access(), parts=input.concurrency, attempt=BENCH)

    def copy(self) -> dict[str, float]:
        """Copy everything.

        Raises:
            OursFailed: fewer records were copied than there are.
        """
        self._claim()
        begin = time.perf_counter()
        copied = jobs.copy(self._engine, self._pair, tag="copy")
        seconds = time.perf_counter() - begin
        if copied.records < self._records:
            raise OursFailed(f"{copied.records} of {self._records} records were copied")
        return {"seconds": seconds, "records": copied.records}

    def compare(self) -> dict[str, float]:
        """Compare everything.

        Raises:
            OursFailed: the stores differ.
        """
        begin = time.perf_counter()
        result = jobs.compare(self._engine, self._pair, records=self._records, tag="compare")
        seconds = time.perf_counter() - begin
        if result.different.paths or result.records < self._records:
            raise OursFailed(f"{result.records} records compared, different: {result.different}")
        return {"seconds": seconds, "records": result.records}

    def _claim(self) -> None:
        """Claim the target for this process, as a migration does before its copy."""
        claim = PacedClaim(**BENCH._asdict()).encode()
        with open_writer(self._pair.target, self._pair.access, keep_versions=True) as writer:
            writer.put(Record(CLAIM.encode(), claim, 0, 0, 0, 0, 0), over=None)
            writer.flush()


def main(arguments: list[str]) -> None:
    """Serve orders until the end of the standard input."""
    source, target, records = arguments
    settings = Settings()
    engine = SparkEngine(
        settings.spark_master, driver_memory=settings.spark_driver_memory, conf=dict(settings.spark_conf)
    )
    engine.start()
    try:
        ours = Jobs(engine, str(parse_store_url(source)), str(parse_store_url(target)), int(records))
        orders = {"copy": ours.copy, "compare": ours.compare}
        print("READY", flush=True)
        for line in sys.stdin:
            print(json.dumps(orders[line.strip()]()), flush=True)
    finally:
        engine.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
