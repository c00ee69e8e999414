"""Path parameters and error responses that all routes share."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Path, Request, Security
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter, ValidationError

from gateway.answers import Reason
from gateway.errors import HTTPProblem
from gateway.registrations import ConsumerKey, Registrar
from gateway.topics import Topics
from models.topic_controller.input import ControlledTopic, SubscriptionName
from models.topic_controller.sessions import ConsumerName

BEARER = Security(HTTPBearer(auto_error=False, description="A token of the gateway's file, or a JWT of Pulsar."))
"""For the page only: the gate has checked the token."""

_TOPIC: TypeAdapter[str] = TypeAdapter(ControlledTopic)
_SUBSCRIPTION: TypeAdapter[str] = TypeAdapter(SubscriptionName)
_CONSUMER: TypeAdapter[str] = TypeAdapter(ConsumerName)


def checked(adapter: TypeAdapter[str], text: str) -> str:
    """Return a name that the controllers accept.

    Raises:
        HTTPProblem: they do not.
    """
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise HTTPProblem(HTTPStatus.PRECONDITION_FAILED, reason) from error


def _topic(tenant: str, namespace: str, topic: str) -> str:
    return checked(_TOPIC, f"persistent://{tenant}/{namespace}/{topic}")


def _namespace(tenant: str, namespace: str) -> tuple[str, str]:
    checked(_TOPIC, f"persistent://{tenant}/{namespace}/any")
    return tenant, namespace


def _subscription(subscription: str) -> str:
    return checked(_SUBSCRIPTION, subscription)


Subscription = Annotated[str, Depends(_subscription)]


def _consumer(subscription: Subscription, consumer: str) -> ConsumerKey:
    return ConsumerKey(subscription, checked(_CONSUMER, consumer))


def _topics(request: Request) -> Topics:
    return request.app.state.topics


def _registrar(request: Request) -> Registrar:
    return request.app.state.registrar


Namespace = Annotated[tuple[str, str], Depends(_namespace)]
Topic = Annotated[str, Depends(_topic)]
Consumer = Annotated[ConsumerKey, Depends(_consumer)]
TopicsOf = Annotated[Topics, Depends(_topics)]
RegistrarOf = Annotated[Registrar, Depends(_registrar)]
SegmentId = Annotated[int, Path(ge=0, description="Id of a segment.")]
Descriptor = Annotated[str, Path(description="`{first hash}-{last hash}-{id}` of a segment.", examples=["0000-7fff-1"])]

_MEANINGS = {
    HTTPStatus.UNAUTHORIZED: "no token, or an invalid one",
    HTTPStatus.FORBIDDEN: "the role or the tenants of the token are not sufficient",
    HTTPStatus.NOT_FOUND: "not found",
    HTTPStatus.CONFLICT: "not possible in the current state",
    HTTPStatus.PRECONDITION_FAILED: "invalid value",
    HTTPStatus.TOO_MANY_REQUESTS: "too many requests: retry later",
    HTTPStatus.SERVICE_UNAVAILABLE: "timed out: retry later; the request may still be applied",
}
_ALWAYS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.PRECONDITION_FAILED,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


def refusals(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for its page: the given ones, and those of every route."""
    return {
        status.value: {"model": Reason, "description": _MEANINGS[status].capitalize()}
        for status in sorted({*_ALWAYS, *statuses})
    }
