"""How values and failures travel through Temporal: as JSON of the models, and refusals in one line."""

from __future__ import annotations

from typing import Any, TypeGuard

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

from models.lifecycle.base import Frozen, refusal
from models.lifecycle.failures import FailureKind

# A trace says where in our code a wrong input was noticed, which helps nobody.
_FORESEEN = frozenset(FailureKind) - {FailureKind.UNEXPECTED}


class _Json(PydanticJSONPlainPayloadConverter):
    def from_payload(self, payload: Payload, type_hint: Any = None) -> Any:
        try:
            return super().from_payload(payload, type_hint)
        except ValidationError as error:
            if not _is_from_operators(type_hint):
                raise
            raise ApplicationError(refusal(type_hint, error), type=FailureKind.INVALID_INPUT) from None


class Payloads(CompositePayloadConverter):
    """JSON of pydantic's models; what an operator sent and cannot be read is refused with the valid fields."""

    def __init__(self) -> None:
        usual = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(_Json() if isinstance(one, JSONPlainPayloadConverter) else one for one in usual))


class Failures(DefaultFailureConverter):
    """Failures as the SDK tells them; those that the project foresees have no trace."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Encode a failure."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, ApplicationError) and exception.type in _FORESEEN:
            failure.stack_trace = ""


DATA_CONVERTER = DataConverter(payload_converter_class=Payloads, failure_converter_class=Failures)
"""Of all clients and workers."""


def _is_from_operators(hint: Any) -> TypeGuard[type[Frozen]]:
    return isinstance(hint, type) and issubclass(hint, Frozen)
