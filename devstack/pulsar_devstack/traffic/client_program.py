"""Producers and consumers in programs of their own: Pulsar's Java clients, and the Python client on the C++ library.

The last could do in this process what it does, if it could always be closed: after a flip by the broker's mechanism
alone its threads may wait for each other for good (3.13, seen).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from pulsar_devstack.servers.child_programs import AnsweringProgram
from pulsar_devstack.servers.java_programs import JAVA_SOURCES, JavaTool
from pulsar_devstack.servers.toolchain import Toolchain
from pulsar_devstack.traffic.client_access import ANONYMOUS, ClientAccess
from pulsar_devstack.traffic.client_log import V5Log
from pulsar_devstack.traffic.plan import QUEUE, SEND_LIMIT_MS, ConsumerPlan, Language, ProducerPlan
from pulsar_devstack.traffic.records import ConsumerRecord, ProducerRecord, Received, Sent

# The libraries' log shows how they follow a redirection, as that of Python's does.
_OPTIONS = ("-Xmx768m", "-Dlog.level=info")
_SHARED = [JAVA_SOURCES / f"{name}.java" for name in ("Clients", "Sender", "Receiver")]
_ROOT = Path(__file__).resolve().parents[2]


class ClientProgram:
    """Producers and consumers of one program, which answers as `data/java/Clients.java` says.

    Args:
        program: that answers.
        service_url: of the cluster that they begin with.
        shared: one client for all, instead of one for each.
        log: of V5 clients.
        access: credentials.
    """

    def __init__(
        self,
        program: AnsweringProgram,
        service_url: str,
        *,
        shared: bool,
        log: V5Log | None = None,
        access: ClientAccess = ANONYMOUS,
    ) -> None:
        self._program = program
        self._log = log
        self._common: dict[str, Any] = {
            "service": service_url,
            **asdict(access),
            "shared": shared,
            "queue": QUEUE,
            "send_limit_ms": SEND_LIMIT_MS,
        }
        self._producers: dict[str, ProducerRecord] = {}
        self._consumers: dict[str, ConsumerRecord] = {}
        # The program answers one question after the other, and records change with the answers.
        self._asking = threading.RLock()

    @classmethod
    def of(
        cls,
        language: Language,
        service_url: str,
        folder: Path,
        tools: Toolchain,
        *,
        shared: bool,
        access: ClientAccess = ANONYMOUS,
    ) -> Self:
        """Start the program for the library of a language; the library's log is in the folder.

        Args:
            language: which.
            service_url: of the cluster that they begin with.
            folder: for logs.
            tools: Java and the jars; for V5 with those of scalable topics.
            shared: one client for all, instead of one for each.
            access: credentials.
        """
        if language in {Language.PYTHON, Language.PYTHON_SCALABLE}:
            return cls(_python(folder), service_url, shared=shared, access=access)
        source = JAVA_SOURCES / ("MovingClients.java" if language is Language.JAVA else "ScalableClients.java")
        tool = JavaTool(source, tools, folder, options=_OPTIONS, shared=_SHARED)
        log = V5Log(tool.log) if language is Language.JAVA_V5 else None
        return cls(tool, service_url, shared=shared, log=log, access=access)

    def kill(self) -> None:
        """End it without closing its connections."""
        self._program.kill()

    def subscribe(self, plans: Sequence[ConsumerPlan]) -> None:
        """Open consumers, and begin to receive."""
        self._consumers = {plan.name: ConsumerRecord(plan) for plan in plans}
        self._ask("subscribe", plans=[asdict(plan) for plan in plans], **self._common)

    def attach(self, plans: Sequence[ConsumerPlan]) -> dict[str, str]:
        """Open additional consumers if possible; Java programs only.

        Returns:
            Those that could not be opened, by name, with the reason. One of them that is opened late receives all the
            same.
        """
        with self._asking:
            for plan in plans:
                self._consumers.setdefault(plan.name, ConsumerRecord(plan))
            refused: dict[str, str] = self._ask("attach", plans=[asdict(plan) for plan in plans], **self._common)
        return refused

    def leave(self, names: Sequence[str]) -> None:
        """End consumers, of which nothing more is expected then; of Java's programs alone."""
        self._ask("leave", names=list(names))
        for name in names:
            self._consumers[name].has_left = True

    def pause(self, names: Sequence[str], limit: float) -> bool:
        """Pause producers; Java programs only.

        Returns:
            Whether, after `limit` seconds at most, every message of theirs was acknowledged or refused.
        """
        return bool(self._ask("pause", names=list(names), limit=limit))

    def resume(self, names: Sequence[str]) -> None:
        """Resume producers; Java programs only."""
        self._ask("resume", names=list(names))

    def open_producers(self, plans: Sequence[ProducerPlan]) -> None:
        """Open producers, which do not send yet."""
        self._producers = {plan.name: ProducerRecord(plan) for plan in plans}
        self._ask("open_producers", plans=[asdict(plan) for plan in plans], **self._common)

    def start(self) -> None:
        """Begin to send."""
        self._ask("start")

    def stop_sending(self, limit: float) -> None:
        """End the sending, and wait, `limit` seconds at most, until every message was acknowledged or refused."""
        self._ask("stop_sending", limit=limit)

    def collect(self) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        """Return the records of all clients so far."""
        with self._asking:
            return self._collect(self._ask("collect"))

    def close(self) -> None:
        """End everything."""
        self._program.__exit__(None, None, None)

    def _ask(self, question: str, **more: Any) -> Any:
        with self._asking:
            return self._program.ask(question, **more)

    def _collect(self, noted: Any) -> tuple[list[ProducerRecord], list[ConsumerRecord]]:
        for name, record_data in noted["consumers"].items():
            record = self._consumers[name]
            record.received += [Received(*row) for row in record_data["received"]]
            record.breaks += record_data["breaks"]
            record.corrupt += record_data["corrupt"]
            record.errors += _errors(record_data["errors"])
        lost = self._log.news() if self._log else []
        for record in self._consumers.values():
            record.breaks += lost
        producers = [self._sent(self._producers[name], record_data) for name, record_data in noted["producers"].items()]
        return producers, list(self._consumers.values())

    @staticmethod
    def _sent(record: ProducerRecord, record_data: Any) -> ProducerRecord:
        record.sent += [Sent(*row) for row in record_data["sent"]]
        record.errors += _errors(record_data["errors"])
        sent = [*record.sent, *(Sent(*row) for row in record_data["open"])]
        # Java's futures complete once; only Python's callbacks can be called again.
        record.misreported += record_data.get("misreported", 0)
        return ProducerRecord(
            record.plan, sorted(sent, key=lambda message: message.at), list(record.errors), record.misreported
        )


def _errors(rows: Iterable[Sequence[Any]]) -> list[tuple[float, str]]:
    return [(when, reason) for when, reason in rows]


def _python(folder: Path) -> AnsweringProgram:
    """Start the Python program; the library's log is `python-clients.log` in the same folder."""
    command = [sys.executable, "-m", "pulsar_devstack.traffic.python_program", str(folder)]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return AnsweringProgram(command, folder / "python-program.log", {"PYTHONPATH": path})
