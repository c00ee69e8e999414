"""Connections to brokers, none of which is used again after an answer 5xx."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import httpx


class Connections(httpx.HTTPTransport):
    """Like httpx's own, but a connection ends with the first answer 5xx that comes over it.

    Where a request fails in a way that Pulsar does not foresee, its broker answers, and may continue writing to that
    connection: the next request over it has been answered with the failure of the one before, with the answer to
    another, or never (the cause is eclipse-ee4j/jersey#3397). `internal-info` of a topic that is not there does it.
    """

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the body of an answer 5xx has been read when it is returned."""
        answer = super().handle_request(request)
        if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
            return answer
        try:
            body = b"".join(cast("Iterable[bytes]", answer.stream))
        finally:
            # Before the answer is closed, which would keep the connection for the next request.
            answer.extensions["network_stream"].close()
            answer.close()
        return httpx.Response(
            answer.status_code,
            headers=answer.headers,
            stream=httpx.ByteStream(body),
            extensions=answer.extensions,
        )
