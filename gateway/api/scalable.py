"""`/admin/v2/scalable`: topics, subscriptions, consumers, splits and merges (PIP-468, "REST API")."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel

from gateway.access.principals import Principal, Role
from gateway.answers import TopicFigures
from gateway.api.parameters import (
    BEARER,
    Consumer,
    Namespace,
    RegistrarOf,
    SegmentId,
    Subscription,
    Topic,
    TopicsOf,
    refusals,
)
from gateway.controllers import UpdateRejected
from gateway.errors import HTTPProblem
from models.lifecycle.failures import FailureKind
from models.segments.layout import SegmentLayout
from models.segments.segment import SubscriptionKind
from models.topic_controller.input import MAX_SEGMENTS, InitialPosition, SubscriptionRequest
from models.topic_controller.sessions import ConsumerAssignment, ConsumerKind, Instance, whole_assignment

router = APIRouter(prefix="/admin/v2/scalable/{tenant}/{namespace}", dependencies=[BEARER])

_NO_CONTENT, _NOT_FOUND, _CONFLICT = HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT


class Registration(BaseModel):
    """How a consumer reads.

    Attributes:
        kind: a STREAM consumer reads its share of the segments in order; each CHECKPOINT consumer reads all segments,
            also next to others of its subscription, and has no session.
        instance: random id of the consumer's process; the request that ends its session must carry it.
    """

    kind: ConsumerKind
    instance: Instance | None = None


@router.get("", tags=["topics"], responses=refusals())
async def list_topics(
    place: Namespace,
    topics: TopicsOf,
    property: Annotated[  # noqa: A002 - the name in brokers' API
        list[str] | None, Query(description="`key=value`; topics must have all given properties.")
    ] = None,
) -> list[str]:
    """Return the controlled topics of a namespace."""
    wanted = [pair.partition("=") for pair in property or ()]
    if not all(key and equals for key, equals, _ in wanted):
        raise HTTPProblem(HTTPStatus.PRECONDITION_FAILED, "invalid property; expected property=key=value")
    return await topics.names(*place, {key: value for key, _, value in wanted})


@router.put("/{topic}", status_code=_NO_CONTENT, tags=["topics"], responses=refusals(_CONFLICT))
async def create_topic(
    topic: Topic,
    topics: TopicsOf,
    segments: Annotated[
        int, Query(alias="numInitialSegments", ge=1, le=MAX_SEGMENTS, description="Initial number of segments.")
    ] = 1,
    properties: Annotated[dict[str, str] | None, Body(description="Notes, kept with the layout.")] = None,
) -> None:
    """Create a topic: start its controller, and answer when the topic is open."""
    await topics.create(topic, segments, properties or {})


@router.get("/{topic}", tags=["topics"], responses=refusals(_NOT_FOUND))
async def get_topic(topic: Topic, topics: TopicsOf) -> SegmentLayout:
    """Return the layout: all segments, active and sealed."""
    return await topics.layout(topic)


@router.delete(
    "/{topic}",
    status_code=_NO_CONTENT,
    tags=["topics"],
    responses=refusals(_NOT_FOUND, _CONFLICT),
)
async def delete_topic(
    topic: Topic,
    topics: TopicsOf,
    force: Annotated[bool, Query(description="Also while clients are connected.")] = False,  # noqa: FBT002 - a query
) -> None:
    """Delete a topic with all its messages, and end its controller."""
    await topics.delete(topic, force=force)


@router.get("/{topic}/stats", tags=["topics"], responses=refusals(_NOT_FOUND))
async def get_stats(topic: Topic, topics: TopicsOf) -> TopicFigures:
    """Return statistics, segment by segment, as the brokers report them now."""
    return await topics.figures(topic)


@router.put(
    "/{topic}/subscriptions/{subscription}",
    status_code=_NO_CONTENT,
    tags=["subscriptions"],
    responses=refusals(_NOT_FOUND, _CONFLICT),
)
async def create_subscription(
    topic: Topic,
    subscription: Subscription,
    topics: TopicsOf,
    type: Annotated[  # noqa: A002 - the name in brokers' API
        str, Query(description="`STREAM`: in order by key; `QUEUE`: all consumers together.")
    ] = SubscriptionKind.STREAM.value,
    initial_position: Annotated[
        InitialPosition,
        Query(
            alias="initialPosition",
            description="Where a new one starts: all stored messages, sealed segments first, or none.",
        ),
    ] = InitialPosition.EARLIEST,
) -> None:
    """Create a subscription, with a cursor on every segment; harmless when done twice."""
    if type not in {*SubscriptionKind}:
        # The same status as brokers of Pulsar 5.0.
        raise HTTPProblem(_NOT_FOUND, f"{type!r} is not a subscription type; expected {' or '.join(SubscriptionKind)}")
    request = SubscriptionRequest(name=subscription, kind=SubscriptionKind(type), initial_position=initial_position)
    await topics.subscribe(topic, request)


@router.delete(
    "/{topic}/subscriptions/{subscription}",
    status_code=_NO_CONTENT,
    tags=["subscriptions"],
    responses=refusals(_NOT_FOUND, _CONFLICT),
)
async def delete_subscription(topic: Topic, subscription: Subscription, topics: TopicsOf) -> None:
    """Delete a subscription with its cursors on all segments; harmless if it does not exist."""
    await topics.unsubscribe(topic, subscription)


@router.post(
    "/{topic}/subscriptions/{subscription}/consumers/{consumer}",
    tags=["consumers"],
    responses=refusals(_NOT_FOUND, _CONFLICT),
)
async def register_consumer(  # noqa: PLR0917 - FastAPI gives them by name
    topic: Topic,
    consumer: Consumer,
    request: Request,
    topics: TopicsOf,
    registrar: RegistrarOf,
    registration: Registration,
) -> ConsumerAssignment:
    """Register a consumer, or resume its session; return its segments. Later changes are published."""
    if registration.kind is ConsumerKind.CHECKPOINT:
        return whole_assignment(topic, await topics.layout(topic))
    try:
        return await registrar.join(topic, consumer, _deadline(request), registration.instance or "", _owner(request))
    except UpdateRejected as error:
        subscriptions = (await topics.status(topic)).subscriptions
        is_unknown = error.kind == FailureKind.REFUSED and consumer.subscription not in subscriptions
        raise HTTPProblem(_NOT_FOUND, error.reason) if is_unknown else error.refusal from error


@router.delete(
    "/{topic}/subscriptions/{subscription}/consumers/{consumer}",
    status_code=_NO_CONTENT,
    tags=["consumers"],
    responses=refusals(_NOT_FOUND, _CONFLICT),
)
async def unregister_consumer(
    topic: Topic,
    consumer: Consumer,
    request: Request,
    registrar: RegistrarOf,
    instance: Annotated[
        Instance | None, Query(description="Instance of the consumer; the session of another instance continues.")
    ] = None,
) -> None:
    """End a consumer's session; others get its segments. Harmless if there is none, or another instance has it."""
    await registrar.leave(topic, consumer, _deadline(request), instance or "", _owner(request))


@router.post(
    "/{topic}/split/{segment}",
    status_code=_NO_CONTENT,
    tags=["segments"],
    responses=refusals(_NOT_FOUND, _CONFLICT),
)
async def split_segment(topic: Topic, segment: SegmentId, topics: TopicsOf) -> None:
    """Divide an active segment in the middle of its hashes."""
    await topics.split(topic, segment)


@router.post(
    "/{topic}/merge/{first}/{second}",
    status_code=_NO_CONTENT,
    tags=["segments"],
    responses=refusals(_NOT_FOUND, _CONFLICT),
)
async def merge_segments(topic: Topic, first: SegmentId, second: SegmentId, topics: TopicsOf) -> None:
    """Make one segment of two active neighbours, in any order."""
    await topics.merge(topic, first, second)


def _owner(request: Request) -> str:
    """Return the client to which a consumer's session belongs; empty for an admin, who may use those of others."""
    principal: Principal = request.state.principal
    return "" if principal.role is Role.ADMIN else principal.identity


def _deadline(request: Request) -> float:
    return asyncio.get_running_loop().time() + request.app.state.consumer_timeout
