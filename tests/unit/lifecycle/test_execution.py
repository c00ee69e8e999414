"""The first argument of activities, as it is sent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter, ValidationError

from models.base import Result
from models.lifecycle.execution import Execution
from models.metadata_store.input import MetadataStoreInput
from temporal.converter import DATA_CONVERTER

INPUT = MetadataStoreInput(cluster="c", source="zk:127.0.0.1:1", target="oxia://127.0.0.1:2", full_verify=True)


class Answer(Result):
    """The result of an activity."""

    count: int


async def test_the_whole_input_travels() -> None:
    """An execution arrives as it was sent, with the fields that only its migration's input has."""
    sent = Execution(input=INPUT, run_id="run-1", started=datetime(2026, 1, 1, tzinfo=UTC), epoch=7)
    payloads = await DATA_CONVERTER.encode([sent])
    (received,) = await DATA_CONVERTER.decode(payloads, [Execution[MetadataStoreInput]])

    assert received == Execution[MetadataStoreInput].model_validate(sent.model_dump())
    assert received.input == INPUT


def test_results_tolerate_unknown_fields_and_inputs_do_not() -> None:
    """An older worker reads a newer worker's result with an unknown field; a mistyped field of an input is an error."""
    assert TypeAdapter(Answer).validate_python({"count": 1, "new": 2}) == Answer(count=1)
    with pytest.raises(ValidationError, match="ful_verify"):
        MetadataStoreInput.model_validate({**INPUT.model_dump(), "ful_verify": True})
