"""The automatic throttle of a copy: sources that say how the cluster is, and their limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from models.addresses import WebUrl
from models.base import Frozen, Result
from models.lifecycle.fields import Duration
from models.text import shown

_LONGEST_LIMIT = timedelta(minutes=10)
_MOST_ADDRESSES = 200


def _server(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if "@" in text or not host or not separator or not port.isdigit() or "/" in text:
        raise ValueError("a server of ZooKeeper is host:port; for its metrics use http://host:port/metrics")
    return text


SourceUrls = Annotated[tuple[WebUrl, ...], Field(max_length=_MOST_ADDRESSES)]
Servers = Annotated[tuple[Annotated[str, AfterValidator(_server)], ...], Field(max_length=_MOST_ADDRESSES)]


class AutoThrottle(Frozen):
    """Sources and limits that stop a running copy while the cluster suffers. Without a source nothing does.

    Attributes:
        bookies: addresses of bookies' metrics: `http://host:8000/metrics`.
        bookie_latency: the copy stops while 99 % of a bookie's entries take longer to write.
        brokers: addresses of brokers' metrics: `http://host:8080/metrics/`.
        broker_latency: the copy stops while 99 % of a broker's messages take longer to publish.
        zookeepers: servers of ZooKeeper, `host:port`, that answer `mntr`.
        zookeeper_metrics: addresses of their metrics instead: `http://host:7000/metrics`, or AdminServer's
            `http://host:8080/commands/monitor`.
        zookeeper_latency: the copy stops while requests take longer, on average since the last look.
        zookeeper_outstanding: the copy stops while more requests of a server wait.
        http: address that answers 2xx while the copy may run; any other answer stops it.
        every: time between two looks.
        timeout: longest wait for a source. One that does not answer stops the copy.
    """

    bookies: SourceUrls = ()
    bookie_latency: Duration = Field(default=timedelta(milliseconds=100), gt=timedelta(0), le=_LONGEST_LIMIT)
    brokers: SourceUrls = ()
    broker_latency: Duration = Field(default=timedelta(milliseconds=200), gt=timedelta(0), le=_LONGEST_LIMIT)
    zookeepers: Servers = ()
    zookeeper_metrics: SourceUrls = ()
    zookeeper_latency: Duration = Field(default=timedelta(milliseconds=100), gt=timedelta(0), le=_LONGEST_LIMIT)
    zookeeper_outstanding: int = Field(default=100, ge=1)
    http: WebUrl | None = None
    every: Duration = Field(default=timedelta(seconds=5), ge=timedelta(seconds=1), le=timedelta(minutes=5))
    timeout: Duration = Field(default=timedelta(seconds=2), ge=timedelta(milliseconds=100), le=timedelta(minutes=1))

    def __str__(self) -> str:
        """Return its fields that are not the defaults; `off` without a source."""
        sources = (self.bookies, self.brokers, self.zookeepers, self.zookeeper_metrics, self.http)
        return self.model_dump_json(exclude_defaults=True) if any(sources) else "off"


class Pause(Result):
    """A pause that an operator has ordered.

    Attributes:
        by: who; empty for an unknown sender.
        since: when.
        reason: why; empty if no reason was given.
    """

    by: str = ""
    since: datetime
    reason: str = ""

    def __str__(self) -> str:
        """Return what the copy waits for, with who has paused it, and why."""
        return f"`resume`: paused by {self.by or 'the operator'}{f' ({shown(self.reason)})' if self.reason else ''}"


class CopyOrders(Result):
    """The orders that a running copy asks its workflow for: the answer of the query `copy_orders`.

    Attributes:
        pause: the copy must stop; None if it may run.
        throttle: what stops it by itself; None for nothing.
    """

    pause: Pause | None = None
    throttle: AutoThrottle | None = None
