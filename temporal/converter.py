"""Conversion of values and failures for Temporal: JSON of the models, and refusals in one line."""

from __future__ import annotations

import json
from typing import Any, TypeGuard, get_args

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError

from models.base import Frozen, refusal
from models.lifecycle.failures import FailureKind
from models.lifecycle.input import Continued, start_refusal

# Operators have no use for a trace of our code that refused a wrong input.
_FORESEEN = frozenset(FailureKind) - {FailureKind.UNEXPECTED}


class _Json(PydanticJSONPlainPayloadConverter):
    def from_payload(self, payload: Payload, type_hint: Any = None) -> Any:
        try:
            return super().from_payload(payload, type_hint)
        except ValidationError as error:
            if fields := _started_with(type_hint):
                raise _refused_start(fields, payload) from None
            if not _is_from_operators(type_hint):
                raise
            raise ApplicationError(refusal(type_hint, error), type=FailureKind.INVALID_INPUT) from None


class Payloads(CompositePayloadConverter):
    """Converter to JSON of the models; an operator's value that cannot be read is refused, with the valid fields."""

    def __init__(self) -> None:
        usual = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(_Json() if isinstance(inner, JSONPlainPayloadConverter) else inner for inner in usual))


class Failures(DefaultFailureConverter):
    """Converter of failures; expected failures carry no trace."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Encode a failure."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, ApplicationError) and exception.type in _FORESEEN:
            failure.stack_trace = ""


DATA_CONVERTER = DataConverter(payload_converter_class=Payloads, failure_converter_class=Failures)
"""The converter of all clients and workers."""


def _started_with(hint: Any) -> type[Frozen] | None:
    """Return the input model, if this is the type of a workflow's argument."""
    models = get_args(hint)
    return next((model for model in models if _is_from_operators(model)), None) if Continued in models else None


def _refused_start(fields: type[Frozen], payload: Payload) -> ApplicationError:
    """Return the failure that makes the SDK fail the workflow; any other error would fail its task repeatedly."""
    why = start_refusal(fields, json.loads(payload.data))
    return ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)


def _is_from_operators(hint: Any) -> TypeGuard[type[Frozen]]:
    return isinstance(hint, type) and issubclass(hint, Frozen)
