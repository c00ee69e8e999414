"""Persons who send verbs and updates under their names."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from models.bookie_cluster.updates import TargetLoss, TargetLossAnswer
from models.lifecycle.audit import Audit
from models.lifecycle.change_windows import ChangeWindows
from models.lifecycle.preview import VerbPreview
from models.lifecycle.verbs import ChangeWindowsAnswer, ChangeWindowsChange, Verb, VerbRequest, VerbResponse
from temporal.caller import act_for
from tests.workflows.lifecycle.harness import Run

ANA, BO = "pulsar-migrate:ana@one", "pulsar-migrate:bo@two"


class Persons:
    """Sends verbs in the names of persons.

    Args:
        client: of a command.
        run: the migration.
    """

    def __init__(self, client: Client, run: Run) -> None:
        self._handle: Any = client.get_workflow_handle(run.handle.id)

    async def steer(self, who: str, verb: Verb, reason: str = "") -> VerbResponse:
        """Give a verb, and return the answer."""
        return await self.send(who, VerbRequest(verb=verb, reason=reason))

    async def send(self, who: str, request: VerbRequest) -> VerbResponse:
        """Send a verb, and return the answer."""
        with act_for(who):
            return await self._handle.execute_update("steer", request, result_type=VerbResponse)

    async def refusal(self, who: str, name: str, argument: Any) -> str:
        """Send an update that is refused, and return why."""
        with act_for(who), pytest.raises(WorkflowUpdateFailedError) as refused:
            await self._handle.execute_update(name, argument)
        return str(refused.value.cause)

    async def preview(self, verb: Verb) -> VerbPreview:
        """Return the dry run of a verb."""
        return await self._handle.query("preview", VerbRequest(verb=verb), result_type=VerbPreview)

    async def audit(self) -> Audit:
        """Return the audit trail."""
        return await self._handle.query("audit", result_type=Audit)

    async def set_windows(self, who: str, windows: ChangeWindows) -> ChangeWindowsAnswer:
        """Send other change windows, and return the answer."""
        with act_for(who):
            change = ChangeWindowsChange(windows=windows, reason="OPS-7")
            return await self._handle.execute_update("set_change_windows", change, result_type=ChangeWindowsAnswer)

    async def give_up(self, who: str, cluster: str) -> bool:
        """Give up a lost target, and return whether that is approved."""
        with act_for(who):
            loss = TargetLoss(cluster=cluster)
            answer: TargetLossAnswer = await self._handle.execute_update(
                "rollback_without_target", loss, result_type=TargetLossAnswer
            )
        return answer.approved
