"""Many consumers of one subscription that join at once, over a gateway.

`python -m bench.topic_controller.joins URL` asks a gateway that runs; others call `measure`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass
from http import HTTPStatus

import httpx

from bench.lifecycle.machine import positive

_SUBSCRIPTION = "joins"
_TIMEOUT = 60.0


@dataclass(frozen=True)
class Wave:
    """Requests that were sent at once.

    Attributes:
        requests: how many.
        answered: with success.
        seconds: until the last answer.
        median_seconds: of one request.
        others: how many other answers came before those, by status or error.
    """

    requests: int
    answered: int
    seconds: float
    median_seconds: float
    others: dict[str, int]


@dataclass(frozen=True)
class Joins:
    """Consumers came, came again, and left.

    Attributes:
        join: the first registration of all of them.
        return_: of those that have a session already.
        leave: the end of all sessions.
    """

    join: Wave
    return_: Wave
    leave: Wave


def measure(url: str, topic: str, consumers: int, *, token: str = "", authorities: str = "") -> Joins:
    """Measure consumers of a new topic of four segments that join, return and leave, all at once.

    Args:
        url: of the gateway.
        topic: `tenant/namespace/topic`, which is created, and deleted at the end.
        consumers: how many.
        token: bearer token that allows everything; empty for none.
        authorities: file (PEM) that a gateway's certificate is checked against; empty for the system's.

    Raises:
        httpx.HTTPStatusError: the topic or its subscription cannot be created.
    """
    client = connections(url, token=token, authorities=authorities)
    return asyncio.run(_measure(client, f"/admin/v2/scalable/{topic}", consumers))


def connections(url: str, *, token: str = "", authorities: str = "") -> httpx.AsyncClient:
    """Open as many connections to a gateway as there are requests; arguments are those of `measure`."""
    return httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        timeout=_TIMEOUT,
        verify=ssl.create_default_context(cafile=authorities or None),
    )


async def _measure(client: httpx.AsyncClient, topic: str, consumers: int) -> Joins:
    subscription = f"{topic}/subscriptions/{_SUBSCRIPTION}"
    async with client:
        (await client.put(f"{topic}?numInitialSegments=4")).raise_for_status()
        (await client.put(subscription)).raise_for_status()
        paths = [f"{subscription}/consumers/consumer-{number}" for number in range(consumers)]
        join = await at_once(client, "POST", paths)
        again = await at_once(client, "POST", paths)
        leave = await at_once(client, "DELETE", paths)
        (await client.delete(f"{topic}?force=true")).raise_for_status()
    return Joins(join, again, leave)


async def at_once(client: httpx.AsyncClient, method: str, paths: list[str]) -> Wave:
    """Send requests at once, each again where the gateway asks for that, and wait for all answers."""
    others: Counter[str] = Counter()

    async def ask(path: str) -> float:
        """Send a request, and retry as consumers do; return the seconds until the answer, or -1 without one."""
        begin = time.monotonic()
        body = {"kind": "STREAM"} if method == "POST" else None
        while time.monotonic() < begin + _TIMEOUT:
            try:
                answer = await client.request(method, path, json=body)
            except httpx.HTTPError as error:
                others[type(error).__name__] += 1
                continue
            if answer.is_success:
                return time.monotonic() - begin
            others[str(answer.status_code)] += 1
            if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                break
            await asyncio.sleep(float(answer.headers["Retry-After"]))
        return -1.0

    begin = time.monotonic()
    durations = await asyncio.gather(*map(ask, paths))
    seconds = time.monotonic() - begin
    good = [duration for duration in durations if duration >= 0]
    return Wave(len(paths), len(good), seconds, statistics.median(good) if good else 0.0, dict(others))


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topic_controller.joins", description=__doc__)
    parser.add_argument("url", help="of a gateway; the environment's GATEWAY_TOKEN is sent to it")
    parser.add_argument("--consumers", type=positive, default=1000, help="how many (1000)")
    parser.add_argument("--topic", default=f"public/default/joins-{os.getpid()}", help="a new topic")
    options = parser.parse_args()
    figures = measure(options.url, options.topic, options.consumers, token=os.environ.get("GATEWAY_TOKEN", ""))
    print(json.dumps(asdict(figures), indent=1))


if __name__ == "__main__":
    _main()
