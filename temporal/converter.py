"""Conversion of values and failures for Temporal: JSON of the models, and refusals in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError, FailureError

from models.base import Frozen, refusal
from models.lifecycle.failures import FailureKind
from models.lifecycle.input import Continued, start_refusal
from models.redaction import redacted, redacted_json
from temporal.encryption import REFUSED, UNREADABLE, PayloadUnreadable

# Operators have no use for a trace of our code that refused a wrong input.
_FORESEEN = frozenset(FailureKind) - {FailureKind.UNEXPECTED}

MAX_INPUT = 2**20
"""Most bytes of an input or of an update's argument, which become part of states and of inputs of steps.

Temporal allows twice as much, and ends a workflow that wants to start a step with more.
"""


class _Json(PydanticJSONPlainPayloadConverter):
    def to_payload(self, value: Any) -> Payload | None:
        payload = super().to_payload(value)
        if payload is not None:
            payload.data = redacted_json(payload.data, sentences_only=True)  # mutant: shared/secrets-in-results
        return payload

    def from_payload(self, payload: Payload, type_hint: Any = None) -> Any:
        try:
            value = super().from_payload(payload, type_hint)
        except ValidationError as error:
            if fields := _started_with(type_hint):
                raise _refused_start(fields, payload) from None
            if not _is_from_operators(type_hint):
                raise
            raise ApplicationError(refusal(type_hint, error), type=FailureKind.INVALID_INPUT) from None
        if isinstance(value, Frozen) and len(payload.data) > MAX_INPUT:  # mutant: shared/large-updates-end-a-workflow
            raise _too_long(len(payload.data))
        return value


class _Refused(EncodingPayloadConverter):
    """Refuses payloads that the codec does not accept, each where it does the least harm.

    Temporal's SDK drops a signal and refuses an update whose argument raises. The start of a workflow fails it, and
    anything else fails a task, which is tried again.
    """

    @property
    def encoding(self) -> str:
        """Encoding of these payloads; no value has it."""
        return REFUSED

    def to_payload(self, value: Any) -> Payload | None:
        """Leave values to the other converters."""
        del value

    def from_payload(self, payload: Payload, type_hint: Any = None) -> Any:
        """Raise the refusal."""
        why = payload.data.decode()
        if _started_with(type_hint) or _is_from_operators(type_hint):
            raise ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)
        raise PayloadUnreadable(why)


class _Unreadable(EncodingPayloadConverter):
    """Raises for payloads that cannot be decrypted now: signals are dropped, updates refused, and tasks tried again.

    A start or a result does not fail for good, because a worker with the key can read it.
    """

    @property
    def encoding(self) -> str:
        """Encoding of these payloads; no value has it."""
        return UNREADABLE

    def to_payload(self, value: Any) -> Payload | None:
        """Leave values to the other converters."""
        del value

    def from_payload(self, payload: Payload, type_hint: Any = None) -> Any:
        """Raise why it cannot be read."""
        del type_hint
        raise PayloadUnreadable(payload.data.decode())


class Payloads(CompositePayloadConverter):
    """Converter to JSON of the models; an operator's value that cannot be read is refused, with the valid fields."""

    def __init__(self) -> None:
        usual = DefaultPayloadConverter.default_encoding_payload_converters
        json_or_usual = (_Json() if isinstance(inner, JSONPlainPayloadConverter) else inner for inner in usual)
        super().__init__(*json_or_usual, _Refused(), _Unreadable())

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Return the values of payloads.

        Raises:
            PayloadUnreadable: one of them is encrypted, and this process has no codec.
            RuntimeError, KeyError: one of them cannot be read.
        """
        try:
            return super().from_payloads(payloads, type_hints)
        except KeyError as error:
            encodings = {payload.metadata.get("encoding", b"").decode(errors="replace") for payload in payloads}
            if unknown := sorted(encodings - {"", *(name.decode() for name in self.converters)}):
                raise PayloadUnreadable(
                    f"a payload has the encoding {unknown[0][:64]!r}, which this process cannot read; set "
                    "PULSAR_MIGRATE_PAYLOAD_KEYS_FILE or PULSAR_MIGRATE_PAYLOAD_CODEC as its workers have it"
                ) from error
            raise


class Failures(DefaultFailureConverter):
    """Converter of failures; they have no secrets, and expected ones carry no trace."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Encode a failure."""
        trace = exception.__traceback__
        if isinstance(exception, ApplicationError) and exception.type in _FORESEEN:
            # Before a codec gets the message and the trace together.
            exception.__traceback__ = None
        try:
            super().to_failure(exception, payload_converter, failure)
        finally:
            exception.__traceback__ = trace

    def _error_to_failure(self, error: FailureError, payload_converter: PayloadConverter, failure: Failure) -> None:
        super()._error_to_failure(error, payload_converter, failure)
        # mutant: shared/secrets-in-failures
        failure.message, failure.stack_trace = redacted(failure.message), redacted(failure.stack_trace)
        for payload in failure.application_failure_info.details.payloads:
            # People read them, and no step acts on them.
            if payload.metadata["encoding"] == b"json/plain":
                payload.data = redacted_json(payload.data, sentences_only=False)


class EncodedFailures(Failures):
    """Converter of failures for a payload codec, which then also encodes messages and traces."""

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)


DATA_CONVERTER = DataConverter(payload_converter_class=Payloads, failure_converter_class=Failures)
"""The converter of all clients and workers, without a payload codec."""


def _started_with(hint: Any) -> type[Frozen] | None:
    """Return the input model, if this is the type of a workflow's argument."""
    models = get_args(hint)
    return next((model for model in models if _is_from_operators(model)), None) if Continued in models else None


def _refused_start(fields: type[Frozen], payload: Payload) -> ApplicationError:
    """Return the failure that makes the SDK fail the workflow; any other error would fail its task repeatedly."""
    why = start_refusal(fields, json.loads(payload.data))
    return ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)


def _too_long(length: int) -> ApplicationError:
    why = f"the input has {length:,} bytes; the most are {MAX_INPUT:,}. Cure: use patterns, or several requests"
    return ApplicationError(why, type=FailureKind.INVALID_INPUT, non_retryable=True)


def _is_from_operators(hint: Any) -> TypeGuard[type[Frozen]]:
    return isinstance(hint, type) and issubclass(hint, Frozen)
