"""The errors of the stores' clients: their fields, their two branches, and look-ups by class."""

from __future__ import annotations

import pickle

import pytest
from pydantic import TypeAdapter, ValidationError
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.lifecycle.context import ActivityContext
from activities.lifecycle.runner import failure_of, report_to_workflow
from clients import errors
from clients.errors import FinalError, RetryableError, StoreError, by_class
from models.lifecycle.failures import FailureKind
from temporal.converter import DATA_CONVERTER

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StoreError)]
# Other packages may derive classes of their own.
LEAVES = [kind for kind in KINDS if not any(issubclass(other, kind) for other in KINDS if other is not kind)]


class LeaderMoved(errors.StoreUnreachable):
    """A class that no table names."""


def test_fields_travel() -> None:
    """An error that is pickled keeps its type, its message and its fields."""
    error = errors.LedgerUnreadable("no copy", server="bookie-1", path=b"/l", ledger_id=7, entry_id=0)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.LedgerUnreadable
    assert (str(copy), copy.fields) == ("no copy", error.fields)
    assert copy.fields == {"server": "bookie-1", "path": "/l", "ledger_id": 7, "entry_id": 0}


def test_another_message_keeps_the_rest() -> None:
    """`saying` changes the message, adds fields, and keeps type and fields."""
    error = errors.StoreDenied("no", path=b"/a").saying("ledger 3: no", ledger_id=3)
    assert type(error) is errors.StoreDenied
    assert (str(error), error.fields) == ("ledger 3: no", {"path": "/a", "ledger_id": 3})


@pytest.mark.parametrize("kind", LEAVES)
def test_each_is_final_or_retryable(kind: type[StoreError]) -> None:
    """Every error belongs to one of the two branches, and Temporal learns which."""
    retryable = issubclass(kind, RetryableError)
    assert retryable != issubclass(kind, FinalError)
    assert failure_of(kind("why")).non_retryable is not retryable


def test_types_of_failures() -> None:
    """`Unreachable` may always be tried again, and what is unreadable for good has a type of its own."""
    final = {failure_of(kind("why")).type for kind in LEAVES if issubclass(kind, FinalError)}
    again = {failure_of(kind("why")).type for kind in LEAVES if issubclass(kind, RetryableError)}
    assert not final & again
    assert again == {FailureKind.UNREACHABLE, FailureKind.CONTENTION}
    assert failure_of(errors.LedgerUnreadable("gone")).type == FailureKind.LEDGER_UNREADABLE


def test_a_new_class_counts_as_its_base() -> None:
    """A look-up by class follows the tree, so that a class that a table does not name raises nothing."""
    assert by_class({StoreError: 1, errors.StoreUnreachable: 2}, LeaderMoved("gone")) == 2
    assert by_class({StoreError: 1}, LeaderMoved("gone")) == 1
    failure = failure_of(LeaderMoved("gone", server="oxia-1"))
    assert (failure.type, failure.non_retryable) == (FailureKind.UNREACHABLE, False)
    assert failure.details == ({"server": "oxia-1"},)


async def test_causes_of_others_stay_out_of_histories() -> None:
    """A failure keeps the errors of ours that led to it, and no error that repeats what a server sent."""
    client = await Client.connect("127.0.0.1:1", lazy=True)

    async def fail() -> None:
        async with report_to_workflow(client, ActivityContext()):
            try:
                try:
                    TypeAdapter(int).validate_json(b"AKIA-secret")
                except ValidationError as error:
                    raise errors.StoreConflict("another form") from error
            except errors.StoreConflict as error:
                raise errors.StoreDenied("no") from error

    with pytest.raises(ApplicationError) as caught:
        await ActivityEnvironment().run(fail)
    failure = Failure()
    await DATA_CONVERTER.encode_failure(caught.value, failure)
    assert "another form" in str(failure)
    assert "AKIA" not in str(failure)
