"""Metrics of a gateway, next to those of Temporal's library."""

from __future__ import annotations

from datetime import timedelta

from temporalio.common import MetricMeter

REQUESTS = "pulsar_migrate_gateway_requests"
"""Counter of answered requests, by route and status."""

DURATION = "pulsar_migrate_gateway_request_duration"
"""Histogram of the time to an answer, by route."""

IN_FLIGHT = "pulsar_migrate_gateway_requests_in_flight"
"""Gauge of requests that are being served."""


class GatewayMetrics:
    """Counts the requests of a gateway.

    Args:
        meter: of the process.
    """

    def __init__(self, meter: MetricMeter) -> None:
        self._requests = meter.create_counter(REQUESTS, "Answered requests, by route and status")
        self._duration = meter.create_histogram_timedelta(DURATION, "Time to the answer, by route", "s")
        self._in_flight = meter.create_gauge(IN_FLIGHT, "Requests that are being served")

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request.

        Args:
            route: route of the request; `-` if it has none.
            status: status of the answer; 0 if the client went away before it.
            seconds: time to the end of the answer.
        """
        self._requests.add(1, {"route": route, "status": str(status)})
        self._duration.record(timedelta(seconds=seconds), {"route": route})

    def serving(self, requests: int) -> None:
        """Report how many requests are being served."""
        self._in_flight.set(requests)
