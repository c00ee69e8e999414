"""Why migrations fail, and why they cannot start."""

from __future__ import annotations

from enum import StrEnum

from models.lifecycle.base import Frozen


class FailureKind(StrEnum):
    """Types of the failures that end a workflow or an activity; part of the public interface."""

    PRECHECK_FAILED = "PrecheckFailed"
    VERIFICATION_FAILED = "VerificationFailed"
    CONFLICT = "Conflict"
    UNREACHABLE = "Unreachable"
    DENIED = "Denied"
    UNSUPPORTED = "Unsupported"
    NOT_READY = "ParticipantsNotReady"
    DEADLINE = "DeadlineExceeded"
    REFUSED = "Refused"
    IN_USE = "SourceInUse"
    NOT_WRITABLE = "RecordNotWritable"
    UNEXPECTED = "Unexpected"


class Blocker(Frozen):
    """Why a migration cannot start, and what to do about it."""

    code: str
    cause: str
    cure: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.cause} Cure: {self.cure}"
