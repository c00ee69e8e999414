"""Sources that say how busy the servers of a cluster are: their metrics, ZooKeeper's `mntr`, or an HTTP endpoint."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from clients.closeable import Closeable
from clients.errors import StoreError
from clients.json_text import read_json
from clients.pulsar.admin.connections import TimedConnections
from clients.tls import Tls
from clients.zookeeper.access import ANONYMOUS, ZooKeeperAccess
from clients.zookeeper.coordination import four_letter
from models.lifecycle.auto_throttle import AutoThrottle
from models.text import shown

# Brokers report each topic, so their metrics can be long.
_MOST_BYTES = 256 << 20
_QUANTILE = "0.99"
# Bookies report the wait for a thread separately.
_ADDED = ("bookkeeper_server_ADD_ENTRY", "bookkeeper_server_ADD_ENTRY_REQUEST")
_PUBLISHED = ("pulsar_broker_publish_latency",)
_REQUESTS = ("readlatency", "updatelatency")
_OUTSTANDING = "outstanding_requests"


class NoReading(Exception):
    """A source does not say how busy its server is; the message says why."""


class Reading(NamedTuple):
    """A value that a source reports.

    Attributes:
        what: name of the value.
        value: in the unit of the limit; 0 for an idle server.
        limit: highest value at which the copy may run.
        unit: of both.
    """

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def too_high(self) -> bool:
        """True if the value is above its limit, or cannot be true."""
        return not 0 <= self.value <= self.limit

    def __str__(self) -> str:
        """Return the value with its limit."""
        return f"{self.what} is {self.value:g}{self.unit}, and the limit is {self.limit:g}{self.unit}"


class Source(Protocol):
    """One source.

    Attributes:
        name: of its server, for people.
    """

    name: str

    def read(self) -> list[Reading]:
        """Return what it reports now.

        Raises:
            NoReading: it does not answer, or not with what was asked for.
        """
        ...


class Sources(Closeable):
    """The sources of an automatic throttle; a context manager.

    Args:
        wanted: the sources, with their limits.
        admin: TLS settings for sources with `https`.
        zookeeper: TLS settings for `mntr`.

    Raises:
        OSError: a file of the TLS settings cannot be used.
    """

    def __init__(self, wanted: AutoThrottle, *, admin: Tls, zookeeper: ZooKeeperAccess = ANONYMOUS) -> None:
        timeout, context = wanted.timeout.total_seconds(), admin.shared_context()
        self._links: list[_Http] = []
        limits = _milliseconds(wanted.zookeeper_latency), wanted.zookeeper_outstanding

        def link() -> _Http:
            # Of its own for each source, because they are read at the same time.
            self._links.append(_Http(context, timeout))
            return self._links[-1]

        def summaries(
            kind: str, urls: Iterable[str], metrics: Sequence[str], what: str, limit: timedelta
        ) -> list[Source]:
            return [_Summary(f"{kind} {url}", link(), url, metrics, what, _milliseconds(limit)) for url in urls]

        self.all: list[Source] = [
            *summaries("bookie", wanted.bookies, _ADDED, "the time to add entries", wanted.bookie_latency),
            *summaries("broker", wanted.brokers, _PUBLISHED, "the time to publish", wanted.broker_latency),
            *(_ZooKeeper(f"ZooKeeper {host}", _mntr(host, zookeeper, timeout), *limits) for host in wanted.zookeepers),
            *(_ZooKeeper(f"ZooKeeper {url}", _monitor(link(), url), *limits) for url in wanted.zookeeper_metrics),
            *([_Endpoint(link(), wanted.http)] if wanted.http else []),
        ]

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        for link in self._links:
            link.close()


class _Http(Closeable):
    """Requests without credentials, each with a deadline for the whole answer; for one thread at a time."""

    def __init__(self, context: ssl.SSLContext, timeout: float) -> None:
        transport = TimedConnections(context, parts=1)
        # An answer that is packed would be unpacked without a limit.
        headers = {"accept-encoding": "identity"}
        self._client = httpx.Client(timeout=timeout, transport=transport, trust_env=False, headers=headers)
        self._timeout = timeout

    def close(self) -> None:
        """Free the connections; harmless when done twice."""
        self._client.close()

    @contextmanager
    def get(self, url: str, *, follow: bool) -> Generator[httpx.Response]:
        """Open the answer, without its body.

        Raises:
            NoReading: there is none.
        """
        try:
            with self._client.stream("GET", url, follow_redirects=follow) as response:
                yield response
        except httpx.TimeoutException as error:
            raise NoReading(f"it does not answer within {self._timeout:g} s") from error
        except httpx.HTTPError as error:
            raise NoReading(f"it does not answer ({shown(str(error)) or type(error).__name__})") from error

    def lines(self, url: str) -> Iterator[str]:
        """Yield the lines of a page.

        Raises:
            NoReading: it cannot be read, or not in time.
        """
        end, size, line = time.monotonic() + self._timeout, 0, list[bytes]()
        # Brokers answer `/metrics` with a redirect to `/metrics/`.
        with self.get(url, follow=True) as response:
            if not response.is_success:
                raise NoReading(f"it answers {response.status_code} to {url}")
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise NoReading("its answer is packed, which was not asked for")
            for chunk in response.iter_raw():
                size += len(chunk)
                if time.monotonic() > end or size > _MOST_BYTES:
                    raise NoReading(f"its answer does not end within {self._timeout:g} s")
                for piece in chunk.splitlines(keepends=True):
                    line.append(piece)
                    if piece.endswith(b"\n"):
                        yield _text(line)
            yield _text(line)


def _text(line: list[bytes]) -> str:
    """Return a line of several parts, and forget it."""
    text = b"".join(line).decode(errors="replace").rstrip()
    line.clear()
    return text


class _Endpoint:
    """An endpoint whose status says whether the copy may run."""

    def __init__(self, http: _Http, url: str) -> None:
        self.name = url
        self._http = http
        self._url = url

    def read(self) -> list[Reading]:
        """Return nothing if it agrees; see `Source.read`."""
        with self._http.get(self._url, follow=False) as response:
            if not response.is_success:
                raise NoReading(f"it answers {response.status_code}")
        return []


@dataclass
class _Summary:
    """The 99th percentile of a summary, in milliseconds, of requests that succeeded."""

    name: str
    http: _Http
    url: str
    metrics: Sequence[str]
    what: str
    limit: float

    def read(self) -> list[Reading]:
        """Return the highest of its series; see `Source.read`."""
        values = [
            sample.value
            for sample in _samples(self.http.lines(self.url), self.metrics)
            if sample.labels.get("quantile") == _QUANTILE and sample.labels.get("success", "true") == "true"
        ]
        if not values:
            raise NoReading(f"its metrics lack {' and '.join(self.metrics)} with quantile {_QUANTILE}")
        # No request in the last minutes is not a number.
        highest = max((value for value in values if not math.isnan(value)), default=0.0)
        return [Reading(f"{self.what} (99 %)", highest, self.limit, " ms")]


class _ZooKeeper:
    """Latency and waiting requests of one server of ZooKeeper."""

    def __init__(self, name: str, values: Callable[[], Mapping[str, float]], latency: float, outstanding: int) -> None:
        self.name = name
        self._values = values
        self._latency = latency
        self._outstanding = outstanding
        self._before: tuple[float, float] | None = None

    def read(self) -> list[Reading]:
        """Return both values; see `Source.read`."""
        values = self._values()
        if _OUTSTANDING not in values:
            raise NoReading(f"its values lack {_OUTSTANDING}")
        times, counts = _of_requests(values, "sum"), _of_requests(values, "cnt", "count")
        if not times or not counts:
            raise NoReading(f"its values lack {' and '.join(_REQUESTS)}, which ZooKeeper 3.6 and newer report")
        now = sum(times), sum(counts)
        before, self._before = self._before, now
        readings = [Reading("the number of requests that wait", values[_OUTSTANDING], self._outstanding)]
        # Its own average counts from its start, and hides what happens now. After its restart counts are lower.
        if before is not None and now[1] > before[1] and now[0] >= before[0]:
            latency = (now[0] - before[0]) / (now[1] - before[1])
            readings.append(Reading("the average time of requests", round(latency, 1), self._latency, " ms"))
        return readings


def _of_requests(values: Mapping[str, float], *kinds: str) -> list[float]:
    """Return the values of reads and writes; names have another order with ZooKeeper's metrics for Prometheus."""
    names = (name for kind in kinds for request in _REQUESTS for name in (f"{kind}_{request}", f"{request}_{kind}"))
    return [values[name] for name in names if name in values]


def _mntr(host: str, access: ZooKeeperAccess, timeout: float) -> Callable[[], Mapping[str, float]]:
    def values() -> Mapping[str, float]:
        try:
            answer = four_letter(host, "mntr", access=access, timeout=timeout)
        except StoreError as error:
            raise NoReading(str(error)) from error
        if answer is None:
            raise NoReading(
                "it may not answer `mntr`; add mntr to its 4lw.commands.whitelist, or use zookeeper_metrics instead"
            )
        pairs = (line.removeprefix("zk_").partition("\t") for line in answer.splitlines())
        return {name: number for name, _, text in pairs if (number := _number(text)) is not None}

    return values


def _monitor(http: _Http, url: str) -> Callable[[], Mapping[str, float]]:
    def values() -> Mapping[str, float]:
        text = "\n".join(http.lines(url))
        if not text.startswith("{"):
            names = (_OUTSTANDING, *(f"{name}_{kind}" for name in _REQUESTS for kind in ("sum", "count")))
            return {sample.name: sample.value for sample in _samples(text.splitlines(), names)}
        try:
            fields: object = read_json(text)
        except ValueError as error:
            raise NoReading("its answer is not JSON") from error
        pairs = fields.items() if isinstance(fields, dict) else ()  # pyright: ignore[reportUnknownVariableType]
        return {str(name): number for name, value in pairs if (number := _number(value)) is not None}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    return values


def _samples(lines: Iterable[str], names: Sequence[str]) -> Iterator[Sample]:
    """Yield the samples with these names.

    Raises:
        NoReading: they cannot be read.
    """
    starts = tuple(f"{name}{follows}" for name in names for follows in ("{", " "))
    try:
        for family in text_string_to_metric_families("\n".join(line for line in lines if line.startswith(starts))):
            yield from family.samples
    except ValueError as error:
        raise NoReading(f"its {' and '.join(names)} cannot be read") from error


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _milliseconds(limit: timedelta) -> float:
    return limit.total_seconds() * 1000
