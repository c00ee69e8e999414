"""Metrics of a gateway, as Prometheus scrapes them from Temporal's library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from temporalio.runtime import Runtime

from gateway.access.authenticator import Authenticator
from gateway.access.grants import Tokens
from gateway.api.app import build_app
from gateway.metrics import DURATION, IN_FLIGHT, REQUESTS, GatewayMetrics
from gateway.settings import GatewaySettings
from pulsar_devstack.servers.ports import PortBlock
from temporal.client import server_runtime
from tests.support.gateway.played import Played
from tests.support.gateway.tokens import token_entry, write

TOPIC = "/admin/v2/scalable/acme/shop/orders"
#: A runtime that is freed while its metrics are scraped would end the interpreter.
RUNTIMES: list[Runtime] = []


def scraped_runtime() -> tuple[Runtime, str]:
    """Return a runtime of the SDK, and the address of its metrics."""
    # A port that no outgoing connection takes.
    port = PortBlock().take(set())
    RUNTIMES.append(server_runtime(f"127.0.0.1:{port}"))
    return RUNTIMES[-1], f"http://127.0.0.1:{port}/metrics"


async def test_requests_are_counted(tmp_path: Path) -> None:
    """Answers are counted by route and status, refusals too, with the time that they took."""
    runtime, address = scraped_runtime()
    settings: dict[str, Any] = {"cluster": "c", "metadata_url": "zk:zk:2181", "admin_urls": ("http://broker:8080",)}
    app = build_app(
        Played(),
        GatewaySettings.model_validate({**settings, "hosts": "gateway"}),
        Authenticator(Tokens(write(tmp_path / "tokens.toml", token_entry("a-token", "reader", "*")))),
        GatewayMetrics(runtime.metric_meter),
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        for header in ({"Authorization": "Bearer a-token"}, {"Authorization": "Bearer another"}, {}):
            await client.get(TOPIC, headers=header)
        assert (await client.get("/healthz")).status_code == 200
    async with httpx.AsyncClient() as client:
        text = (await client.get(address, timeout=60)).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    answers = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in samples
        if sample.name == f"{REQUESTS}_total"
    }
    route = "/admin/v2/scalable/{tenant}/{namespace}/{topic}"
    assert answers == {(route, "200"): 1, ("-", "401"): 2}
    [in_flight] = [sample.value for sample in samples if sample.name == IN_FLIGHT]
    assert in_flight == 0
    counts = [sample for sample in samples if sample.name == f"{DURATION}_seconds_count"]
    durations = {sample.labels["route"]: sample.value for sample in counts}
    assert durations == {route: 1, "-": 2}
