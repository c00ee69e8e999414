"""The search attributes by which migrations are found: check and register."""

from __future__ import annotations

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.names import SEARCH_ATTRIBUTES
from process.exit_codes import CommandFailed, ExitCode
from temporal.client import ANSWER_LIMIT

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD


async def register_search_attributes(client: Client) -> tuple[str, ...]:
    """Register those search attributes of migrations that the namespace lacks; return their names.

    Without them a workflow that sets one would be retried for ever and show nothing but a warning in a log.

    Raises:
        CommandFailed: one has another type, or the right to add is missing; the message holds the command that adds.
    """
    missing = await missing_search_attributes(client)
    if missing:
        await _add(client, missing)
    return missing


async def missing_search_attributes(client: Client) -> tuple[str, ...]:
    """Names of those search attributes of migrations that the namespace lacks.

    Raises:
        CommandFailed: one has another type, or they cannot be listed.
    """
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=ANSWER_LIMIT
        )
    except RPCError as error:
        raise _not_registered(client, SEARCH_ATTRIBUTES, "cannot be listed", error) from error
    there = dict(listed.custom_attributes)
    for name in SEARCH_ATTRIBUTES:
        if there.get(name, _KEYWORD) != _KEYWORD:
            cure = f"temporal operator search-attribute remove --namespace {client.namespace} --name {name} --yes"
            raise CommandFailed(ExitCode.CONFLICT, f"search attribute {name} exists, but is not a Keyword.", cure)
    return tuple(name for name in SEARCH_ATTRIBUTES if name not in there)


async def _add(client: Client, names: tuple[str, ...]) -> None:
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=dict.fromkeys(names, _KEYWORD))
    try:
        await client.operator_service.add_search_attributes(request, timeout=ANSWER_LIMIT)
    except RPCError as error:
        # Workers that start together register the same names.
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise _not_registered(client, names, "are missing and cannot be added", error) from error


def create_line(namespace: str, names: tuple[str, ...]) -> str:
    """The `temporal` line that registers them."""
    listed = " ".join(f"--name {name} --type Keyword" for name in names)
    return f"temporal operator search-attribute create --namespace {namespace} {listed}"


def _not_registered(client: Client, names: tuple[str, ...], what: str, error: RPCError) -> CommandFailed:
    if error.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED}:
        cause = f"Temporal does not answer: {error.message}."
        return CommandFailed(ExitCode.UNREACHABLE, cause, "check TEMPORAL_ADDRESS and the server")
    cause = f"search attributes {', '.join(names)} {what}: {error.message}."
    return CommandFailed(ExitCode.USAGE, cause, f"run with the right to add: {create_line(client.namespace, names)}")
