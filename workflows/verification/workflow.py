"""Compare both sides of a migration again, at any time at which both exist.

It is a workflow of its own: it neither changes nor waits for the migration, and a migration that has ended can be
verified too.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel
from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.verification import verify
from models.lifecycle.input import Continued
from models.lifecycle.names import keyword
from models.lifecycle.status import ProgressReport
from models.verification.input import KIND, VerificationInput
from models.verification.results import VerificationCertificate
from workflows.lifecycle.activity_calls import Call, FencedCalls
from workflows.lifecycle.failures import failure_of, to_exception
from workflows.lifecycle.search_attributes import KIND_KEY, TARGET_KEY, SearchAttributes
from workflows.lifecycle.start import OneInput, read_start


class _Numbers(BaseModel):
    started: datetime | None = None
    epoch: int = 0


@workflow.defn
class Verification(OneInput):
    """Compare both sides of a migration again, and return a certificate."""

    @workflow.init
    def __init__(self, input: VerificationInput | Continued) -> None:
        self._input, _ = read_start(VerificationInput, _Numbers, input)
        self._calls = FencedCalls(self._input, _Numbers())
        self._attributes = SearchAttributes()

    @workflow.run
    async def run(self, input: VerificationInput | Continued) -> VerificationCertificate:
        """Compare everything in the scope."""
        del input
        self._attributes.set(KIND_KEY.value_set(KIND), TARGET_KEY.value_set(keyword(self._input.target_name)))
        try:
            return await self._calls.ask(verify.compare, Call(self._input.summary))
        except ActivityError as error:
            raise to_exception(failure_of(error)) from error

    @workflow.signal
    def report_progress(self, report: ProgressReport) -> None:
        """Show what the running step waits for."""
        workflow.set_current_details(report.summary)
