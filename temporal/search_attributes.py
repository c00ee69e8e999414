"""The search attributes of migrations in a namespace: find out whether it has them, and add them where that is allowed.

Only Temporal's OperatorService lists and adds them. Temporal Cloud and roles without admin rights refuse it. Migrations
then run without search attributes, unless someone else has added them.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from models.lifecycle.names import SEARCH_ATTRIBUTES
from models.text import shown
from process.exit_codes import CommandFailed, ExitCode
from temporal.client import ANSWER_LIMIT, is_silent

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_log = logging.getLogger(__name__)


class Registration(NamedTuple):
    """Search attributes of a namespace after an attempt to add what it lacks.

    Attributes:
        namespace: name of the namespace.
        added: names that were added now.
        missing: names that the namespace lacks, or has with a type that migrations cannot use.
        cause: why they could not be added.
    """

    namespace: str
    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    cause: str = ""

    @property
    def warning(self) -> str:
        """Warning with what is missing, and the command that adds it; empty if nothing is missing."""
        if not self.missing:
            return ""
        return (
            f"search attributes {', '.join(self.missing)} are missing and could not be added ({self.cause}). "
            "Migrations run without search attributes, and lists show no phase of those that ended or have no worker. "
            "An administrator of Temporal can add them; restart workers afterwards: "
            f"{create_line(self.namespace, self.missing)}"
        )


async def register_search_attributes(client: Client) -> Registration:
    """Add the search attributes that the namespace lacks, if this client may.

    Raises:
        CommandFailed: one has another type, or Temporal does not answer, or refuses even to count workflows.
    """
    missing = await missing_search_attributes(client)
    if not missing:
        return Registration(client.namespace)
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=dict.fromkeys(missing, _KEYWORD))
    try:
        await client.operator_service.add_search_attributes(request, timeout=ANSWER_LIMIT)
    except RPCError as error:
        _require_answer(error)
        # Workers that start together register the same names.
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            return Registration(client.namespace, missing=missing, cause=shown(error.message))
    return Registration(client.namespace, added=missing)


async def register_for_server(client: Client) -> Registration:
    """Add search attributes when a worker or gateway starts, and log the result; raise as `register_search_attributes`.

    Args:
        client: client of Temporal.
    """
    registration = await register_search_attributes(client)
    if registration.added:
        _log.info("registered the search attributes %s", ", ".join(registration.added))
    if registration.warning:
        _log.warning("%s", registration.warning)
    return registration


async def missing_search_attributes(client: Client) -> tuple[str, ...]:
    """Return the search attributes of migrations that the namespace lacks.

    Raises:
        CommandFailed: one has another type, or Temporal does not answer, or refuses even to count workflows.
    """
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=ANSWER_LIMIT
        )
    except RPCError as error:
        _require_answer(error)
        return tuple([name for name in SEARCH_ATTRIBUTES if not await _can_be_queried(client, name)])
    types = dict(listed.custom_attributes)
    for name in SEARCH_ATTRIBUTES:
        if types.get(name, _KEYWORD) != _KEYWORD:
            cure = f"temporal operator search-attribute remove --namespace {client.namespace} --name {name} --yes"
            raise CommandFailed(ExitCode.CONFLICT, f"search attribute {name} exists, but is not a Keyword.", cure)
    return tuple(name for name in SEARCH_ATTRIBUTES if name not in types)


def create_line(namespace: str, names: tuple[str, ...]) -> str:
    """Return the `temporal` command that registers them."""
    listed = " ".join(f"--name {name} --type Keyword" for name in names)
    return f"temporal operator search-attribute create --namespace {namespace} {listed}"


async def _can_be_queried(client: Client, name: str) -> bool:
    """Return whether Temporal accepts a query with this attribute, which needs no right except to read."""
    try:
        await client.count_workflows(f"{name} = 'x'", rpc_timeout=ANSWER_LIMIT)
    except RPCError as error:
        _require_answer(error)
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            return False
        cause = f"Temporal refuses to count workflows: {error.message}."
        raise CommandFailed(ExitCode.USAGE, cause, "use credentials that may read TEMPORAL_NAMESPACE") from error
    return True


def _require_answer(error: RPCError) -> None:
    """Raise a failure if Temporal did not answer, and so did not refuse."""
    if is_silent(error):
        cause = f"Temporal does not answer: {error.message}."
        raise CommandFailed(ExitCode.UNREACHABLE, cause, "check TEMPORAL_ADDRESS and the server") from error
