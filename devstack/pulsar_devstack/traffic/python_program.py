"""A program with producers and consumers of the Python client: `python_program.py FOLDER`, asked in JSON lines.

It answers as `data/java/Clients.java` does. When standard input ends it ends too; what it holds stays open, as in
a crash.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pulsar_devstack.traffic.client_access import ClientAccess
from pulsar_devstack.traffic.plan import ConsumerPlan, ProducerPlan
from pulsar_devstack.traffic.python_clients import Noted, PythonClients
from pulsar_devstack.traffic.records import ConsumerRecord

_CONSUMERS = TypeAdapter(list[ConsumerPlan])
_PRODUCERS = TypeAdapter(list[ProducerPlan])


class _Program:
    """Handler of requests, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients: PythonClients | None = None
        self._reported: dict[str, dict[str, int]] = {}

    def perform(self, request: Mapping[str, Any]) -> Any:
        """Return the result of a request."""
        clients = self._with(request)
        match request["op"]:
            case "subscribe":
                clients.subscribe(_CONSUMERS.validate_python(request["plans"]))
            case "open_producers":
                clients.open_producers(_PRODUCERS.validate_python(request["plans"]))
            case "start":
                clients.start()
            case "stop_sending":
                clients.stop_sending(request["limit"])
            case "collect":
                return self._news(clients)
            case unknown:
                raise ValueError(unknown)
        return True

    def _with(self, request: Mapping[str, Any]) -> PythonClients:
        if self._clients is None:
            log = self._folder / "python-clients.log"
            access = ClientAccess(request["token"], request["authorities"])
            self._clients = PythonClients(request["service"], log, shared=request["shared"], options=access.options())
        return self._clients

    def _news(self, clients: PythonClients) -> dict[str, Any]:
        """Return the records since the last request."""
        producers, consumers = clients.noted()
        return {
            "producers": {producer.plan.name: self._of_producer(producer) for producer in producers},
            "consumers": {consumer.plan.name: self._of_consumer(consumer) for consumer in consumers},
        }

    def _of_producer(self, noted: Noted) -> dict[str, Any]:
        name = noted.plan.name
        fresh = self._fresh(name, sent=noted.sent, errors=noted.errors)
        return {**fresh, "open": noted.open, "misreported": self._more(name, "misreported", noted.misreported)}

    def _of_consumer(self, record: ConsumerRecord) -> dict[str, Any]:
        name = record.plan.name
        fresh = self._fresh(name, received=record.received, breaks=record.breaks, errors=record.errors)
        return {**fresh, "corrupt": self._more(name, "corrupt", record.corrupt)}

    def _more(self, name: str, what: str, count: int) -> int:
        before = self._reported[name].get(what, 0)
        self._reported[name][what] = count
        return count - before

    def _fresh(self, name: str, **lists: Sequence[Any]) -> dict[str, Any]:
        reported = self._reported.setdefault(name, {})
        fresh = {what: items[reported.get(what, 0) :] for what, items in lists.items()}
        reported.update({what: len(items) for what, items in lists.items()})
        return fresh


def main(folder: Path) -> None:
    """Answer until standard input ends."""
    program = _Program(folder)
    for line in sys.stdin:
        try:
            answer = {"result": program.perform(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - reported to the caller
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
    # Threads of the library may never end.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
