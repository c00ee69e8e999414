"""`/admin/v2/segments`: single segments by their descriptors (PIP-468, "Segment topics")."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Query

from gateway.api.parameters import BEARER, Descriptor, Topic, TopicsOf, refusals
from gateway.errors import HTTPProblem
from models.topic_controller.input import MAX_SUBSCRIPTIONS, SubscriptionName

router = APIRouter(
    prefix="/admin/v2/segments/{tenant}/{namespace}/{topic}/{descriptor}", tags=["segments"], dependencies=[BEARER]
)

_CHANGED = refusals(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@router.put("", status_code=HTTPStatus.NO_CONTENT, responses=_CHANGED)
async def ensure_segment(
    topic: Topic,
    descriptor: Descriptor,
    topics: TopicsOf,
    subscriptions: Annotated[
        list[SubscriptionName] | None,
        Body(max_length=MAX_SUBSCRIPTIONS, description="Subscriptions that must have a cursor on it."),
    ] = None,
) -> None:
    """Create the topic of a segment of the layout, with cursors of subscriptions at the earliest message."""
    await topics.ensure_segment(topic, descriptor, tuple(subscriptions or ()))


@router.post("/terminate", status_code=HTTPStatus.NO_CONTENT, responses=_CHANGED)
async def terminate_segment(topic: Topic, descriptor: Descriptor, topics: TopicsOf) -> None:
    """Accept a sealed segment, and refuse an active one: no segment would take messages of its hashes."""
    if (await topics.segment(topic, descriptor)).active:
        reason = f"{descriptor} is active, and its hashes would have no segment; split it, or merge it with a neighbour"
        raise HTTPProblem(HTTPStatus.CONFLICT, reason)


@router.delete("", status_code=HTTPStatus.NO_CONTENT, responses=_CHANGED)
async def delete_segment(
    topic: Topic,
    descriptor: Descriptor,
    topics: TopicsOf,
    force: Annotated[bool, Query(description="Also one that only retention keeps.")] = False,  # noqa: FBT002 - a query
) -> None:
    """Remove a sealed segment that all subscriptions have consumed; harmless if it does not exist."""
    await topics.delete_segment(topic, descriptor, force=force)
