"""Errors that the gateway returns to clients."""

from __future__ import annotations

from http import HTTPStatus


class HTTPProblem(Exception):
    """A request that is refused or has failed.

    Attributes:
        status: HTTP status of the answer.
        reason: cause and cure, for `{"reason": …}`.
        headers: additional headers of the answer.
    """

    def __init__(self, status: HTTPStatus, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers or {}


def not_found(topic: str) -> HTTPProblem:
    """Return the answer for a topic that no controller leads."""
    return HTTPProblem(HTTPStatus.NOT_FOUND, f"no controller leads {topic}; create it with PUT")


def unavailable(reason: str) -> HTTPProblem:
    """Return the answer for a request that can be retried, and may have been applied."""
    return HTTPProblem(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "2"})
